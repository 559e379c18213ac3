"""Deliveries per second of one webhook worker, beside a bare loop of the same HTTP client and the same receiver.

Run it with `python -m bench.webhooks`. It starts a Valkey, a receiver and a worker as processes, each on what cores the
machine has left, and prints one line.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from inferq.stack import StackEnvironment, ValkeyServer
from jobs import keys
from jobs.connection import Call
from jobs.datatypes import Datatype
from jobs.destination import AllowList
from jobs.record import InputPart, InputSource, JobRequest, Outcome, OutputPart, RequestedOutput
from jobs.settings import StoreSettings
from jobs.store import JobStore, Submission, Succeed, new_job_id
from jobs.webhook import Webhook
from workers.webhooks.resolver import SystemResolver
from workers.webhooks.sender import Sender

COUNT = 10_000
AT_ONCE = 32
SECRET = "whsec_" + "c2VjcmV0" * 4
BODY = b'{"type":"job.succeeded","data":{' + b"x" * 900 + b"}}"

RECEIVER = """
import asyncio, uvloop
class Receiver(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.rest = transport, b""
    def data_received(self, data):
        self.rest += data
        while (end := self.rest.find(b"\\r\\n\\r\\n")) >= 0:
            at = self.rest[:end].lower().find(b"content-length:")
            size = end + 4 + int(self.rest[at + 15:end + 2].split(b"\\r\\n", 1)[0])
            if len(self.rest) < size:
                return
            self.rest = self.rest[size:]
            self.transport.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
async def main():
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
uvloop.run(main())
"""


@contextmanager
def running(*argv: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process, killed at the end of the block."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def fill(store: JobStore, url: str) -> None:
    """So many jobs that succeeded, each with a message that is due."""
    part = InputPart("x", InputSource.TENSOR, 64, Datatype.FP32, (16,))
    request = JobRequest("m", (part,), (RequestedOutput("y"),), webhook=Webhook(url))
    outcome = Outcome(outputs=(OutputPart("y", Datatype.UINT8, (6,), 6),), inline=b"answer")
    for _ in range(COUNT // 100):
        await store.submit_many([Submission(new_job_id(), "local", request, bytes(64)) for _ in range(100)])
        claim = await store.claim("m", 100, worker="bench", lease_ms=60_000)
        await store.settle([Succeed(job.lease, outcome) for job in claim.jobs])


async def bare(url: str) -> float:
    """Sends per second without a queue: the same client, as many at once."""
    left = iter(range(COUNT))
    async with Sender(AllowList.parse(["127.0.0.0/8"]), SystemResolver(), timeout_seconds=15) as sender:

        async def send() -> None:
            for _ in left:
                assert (await sender.send(url, {"webhook-id": "m"}, BODY)).fault is None

        began = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(AT_ONCE)))
        return COUNT / (time.perf_counter() - began)


async def measured(url: str, redis_url: str) -> tuple[float, float]:
    """(deliveries, bare sends) per second."""
    store, _ = await JobStore.open(StoreSettings(redis_url=redis_url))
    await fill(store, url)
    worker = (sys.executable, "-m", "workers", "webhooks")
    environment = {
        "INFERQ_REDIS_URL": redis_url,
        "INFERQ_WEBHOOK_SECRET": SECRET,
        "INFERQ_WEBHOOK_ALLOW": "127.0.0.0/8",
    }

    async def left_below(most: int) -> int:
        """How many are not delivered, once that is fewer than `most`."""
        count = most
        while count >= most:
            (count,) = await store.connection.run(Call("ZCARD", keys.undelivered_key("local")))
            await asyncio.sleep(0.01)
        return int(count)

    with running(*worker, **environment):
        first, began = await left_below(COUNT), time.perf_counter()
        await left_below(1)
        delivered = first / (time.perf_counter() - began)
    await store.close()
    return delivered, await bare(url)


def main() -> None:
    """Print the numbers."""
    with tempfile.TemporaryDirectory() as folder, running(sys.executable, "-c", RECEIVER) as receiver:
        assert receiver.stdout is not None
        url = f"http://127.0.0.1:{int(receiver.stdout.readline())}/hook"
        valkey = ValkeyServer(StackEnvironment.find(), Path(folder))
        valkey.start()
        try:
            delivered, sent = uvloop.run(measured(url, valkey.url))
        finally:
            valkey.stop()
    print(f"webhooks: {delivered:.0f} deliveries/s, {sent:.0f} bare sends/s, ratio {delivered / sent:.2f}")


if __name__ == "__main__":
    main()
