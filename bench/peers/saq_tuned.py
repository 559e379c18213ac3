"""SAQ with 256 jobs at once and msgpack, which unlike its JSON takes bytes; it takes jobs by a blocking pop already.

The worker is `saq bench.peers.saq_tuned.settings`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import uvloop
from saq import Queue

from bench.peers.contract import make_app
from bench.peers.engine import TIMEOUT_SECONDS, Engine

REDIS = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0")


def make_queue() -> Any:
    """The queue, not yet connected."""
    return Queue.from_url(REDIS, dump=msgpack.packb, load=msgpack.unpackb)


class SaqQueue:
    """Jobs in SAQ's queue."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def submit(self, model: str, data: bytes, content_type: str) -> str:
        """Enqueue."""
        job = await self._queue.enqueue(
            "infer", model=model, data=data, content_type=content_type, timeout=int(TIMEOUT_SECONDS)
        )
        return str(job.key)

    async def result(self, job_id: str) -> bytes | None:
        """What `infer` returned."""
        job = await self._queue.job(job_id)
        return None if job is None or job.status != "complete" else bytes(job.result)


@asynccontextmanager
async def open_queue() -> AsyncIterator[SaqQueue]:
    """The queue on a pool of its own."""
    queue = make_queue()
    await queue.connect()
    try:
        yield SaqQueue(queue)
    finally:
        await queue.disconnect()


async def infer(ctx: dict[str, Any], *, model: str, data: bytes, content_type: str) -> bytes:
    """The job: one ModelInfer."""
    output: bytes = await ctx["engine"].infer(model, data, content_type)
    return output


async def startup(ctx: dict[str, Any]) -> None:
    """Open the channel."""
    ctx["engine"] = await Engine().__aenter__()


async def shutdown(ctx: dict[str, Any]) -> None:
    """Close it."""
    await ctx["engine"].__aexit__()


asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
settings = {
    "queue": make_queue(),
    "functions": [infer],
    "concurrency": 256,
    "startup": startup,
    "shutdown": shutdown,
}
app = make_app(open_queue)
