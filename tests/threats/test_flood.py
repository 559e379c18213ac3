"""T: Body speed, T: Quotas: thousands of connections, uploads and slow bodies at once, from one machine on loopback.

The bounds leave room for a busy machine; `docs/security.md` says what was measured on an idle one.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import emptied
from tests.api.harness import MODEL, Hand, fp32_input, open_hand
from tests.api.processes import ApiProcess, api_process
from tests.support.databases import Database
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

CONNECTIONS, POSTS, SLOW = 2_000, 5_000, 1_000
POSTERS = 100
MOST_P99_SECONDS = 2.0
MOST_GROWTH_BYTES = 200 * 1024 * 1024

BODY = json.dumps({"model": MODEL, "inputs": [fp32_input([1.0, 2.0])]}).encode()


def _head(method: str, path: str, length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


class Wire:
    """A bare connection that sends requests and reads their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, process: ApiProcess) -> Wire:
        host, _, port = process.url.removeprefix("http://").rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, data: bytes) -> int:
        """The status of the answer to this request, which has been read whole."""
        self.writer.write(data)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
        await self.reader.readexactly(length)
        return int(lines[0].split()[1])

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def room_for_sockets() -> AsyncIterator[None]:
    """As many descriptors as this test needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16_384)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _idle(process: ApiProcess) -> None:
    """Connect, begin a head, and wait to be thrown out."""
    wire = await Wire.open(process)
    with suppress(OSError):
        wire.writer.write(b"GET /jobs HTTP/1.1\r\n")
        await wire.reader.read()
    wire.close()


async def _slow(process: ApiProcess, statuses: Counter[int], over: asyncio.Event) -> None:
    """Announce a body and send a byte of it a second, until thrown out or until it is over."""
    wire = await Wire.open(process)
    wire.writer.write(_head("POST", "/jobs", 1_000))
    answer = asyncio.create_task(wire.ask(b"{"))
    while not over.is_set() and not answer.done():
        wire.writer.write(b" ")
        await asyncio.wait((answer,), timeout=1)
    if answer.done() and not answer.exception():
        statuses[answer.result()] += 1
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)
    wire.close()


async def _post(process: ApiProcess, statuses: Counter[int]) -> None:
    wire = await Wire.open(process)
    for _ in range(POSTS // POSTERS):
        statuses[await wire.ask(_head("POST", "/jobs", len(BODY)) + BODY)] += 1
    wire.close()


# Polls come from a process of their own: what they wait for must be the server, not this test.
POLLER = """
import http.client, json, sys, threading, time
host, path = sys.argv[1:]
connection = http.client.HTTPConnection(host, timeout=60)
seconds, over = [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.wait(0.005):
    begun_at = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    seconds.append(time.perf_counter() - begun_at)
print(json.dumps(seconds))
"""


@asynccontextmanager
async def polling(process: ApiProcess, job_id: str, seconds: list[float]) -> AsyncIterator[None]:
    """Somebody else asks for this job again and again; how long that took each time is in the list at the end."""
    host = process.url.removeprefix("http://")
    poller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", POLLER, host, f"/jobs/{job_id}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert poller.stdin
    try:
        yield
    finally:
        poller.stdin.close()
        output, _ = await poller.communicate()
    assert poller.returncode == 0
    seconds.extend(json.loads(output))


def _descriptors(process: ApiProcess) -> int:
    return len(list(Path(f"/proc/{process.popen.pid}/fd").iterdir()))


def _memory(process: ApiProcess) -> int:
    pages = int(Path(f"/proc/{process.popen.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.fixture
async def hand(valkey_url: str) -> AsyncIterator[Hand]:
    """An empty database that knows the identity model."""
    async with open_hand(await emptied(valkey_url)) as opened:
        yield opened


@pytest.mark.timeout(240)
async def test_a_flood_slows_nobody_down_for_long_and_leaves_nothing(
    hand: Hand, valkey_url: str, tmp_path: Path
) -> None:
    url = Database.API.at(valkey_url)
    settings: dict[str, Any] = {"redis_url": url, "max_connections_per_address": 10_000, "access_log": 0}
    async with room_for_sockets():
        with api_process(tmp_path / "api.log", **settings) as process:
            await _warm_up(process)
            fds, memory = _descriptors(process), _memory(process)
            statuses, seconds = await _flood(process)
            assert {status // 100 for status in statuses if status != 503} <= {2, 4}, statuses
            assert statuses[202] >= POSTS - statuses[503]
            seconds.sort()
            assert seconds[int(len(seconds) * 0.99)] < MOST_P99_SECONDS
            await _until_back(process, fds, memory)
    redis = hand.store.connection.client
    for kind in ("in", "job"):
        assert len([key async for key in redis.scan_iter(f"inferq:{kind}:*", count=1000)]) == statuses[202] + 11


async def _warm_up(process: ApiProcess) -> None:
    wire = await Wire.open(process)
    for _ in range(10):
        assert await wire.ask(_head("POST", "/jobs", len(BODY)) + BODY) == 202
    wire.close()


async def _flood(process: ApiProcess) -> tuple[Counter[int], list[float]]:
    """Everything at once; the statuses of answers, and how long polls took."""
    job_id = await _a_job(process)
    statuses: Counter[int] = Counter()
    seconds: list[float] = []
    over = asyncio.Event()
    async with polling(process, job_id, seconds):
        crowd = [asyncio.create_task(_idle(process)) for _ in range(CONNECTIONS)]
        crowd += [asyncio.create_task(_slow(process, statuses, over)) for _ in range(SLOW)]
        await asyncio.gather(*(_post(process, statuses) for _ in range(POSTERS)))
    over.set()
    await asyncio.gather(*crowd)
    return statuses, seconds


async def _a_job(process: ApiProcess) -> str:
    wire = await Wire.open(process)
    wire.writer.write(_head("POST", "/jobs", len(BODY)) + BODY)
    head = await wire.reader.readuntil(b"\r\n\r\n")
    wire.close()
    location = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"location:"))
    return location.rpartition(b"/")[2].decode()


async def _until_back(process: ApiProcess, fds: int, memory: int) -> None:
    """Return once descriptors and memory are what they were, or nearly."""

    async def is_back() -> bool:
        return _descriptors(process) <= fds + 20 and _memory(process) <= memory + MOST_GROWTH_BYTES

    await eventually(is_back, 60)
    assert process.popen.poll() is None
