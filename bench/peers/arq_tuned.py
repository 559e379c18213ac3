"""arq, tuned as far as its settings go: 10 ms poll, 256 jobs at once, msgpack in place of pickle, uvloop.

The worker is `arq bench.peers.arq_tuned.WorkerSettings`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgpack
import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.jobs import Job

from bench.peers.contract import make_app
from bench.peers.engine import Engine

REDIS = RedisSettings.from_dsn(os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0"))


class ArqQueue:
    """Jobs in arq's queue."""

    def __init__(self, pool: ArqRedis) -> None:
        self._pool = pool

    async def submit(self, model: str, data: bytes, content_type: str) -> str:
        """Enqueue."""
        job = await self._pool.enqueue_job("infer", model, data, content_type)
        assert job is not None
        return job.job_id

    async def result(self, job_id: str) -> bytes | None:
        """What `infer` returned."""
        info = await Job(job_id, self._pool, _deserializer=self._pool.job_deserializer).result_info()
        return None if info is None else bytes(info.result)


@asynccontextmanager
async def open_queue() -> AsyncIterator[ArqQueue]:
    """The queue on a pool of its own."""
    pool = await create_pool(REDIS, job_serializer=msgpack.packb, job_deserializer=msgpack.unpackb)
    try:
        yield ArqQueue(pool)
    finally:
        await pool.aclose()


async def infer(ctx: dict[str, Any], model: str, data: bytes, content_type: str) -> bytes:
    """The job: one ModelInfer."""
    output: bytes = await ctx["engine"].infer(model, data, content_type)
    return output


async def startup(ctx: dict[str, Any]) -> None:
    """Open the channel."""
    ctx["engine"] = await Engine().__aenter__()


async def shutdown(ctx: dict[str, Any]) -> None:
    """Close it."""
    await ctx["engine"].__aexit__()


class WorkerSettings:
    """What `arq` reads."""

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    functions: ClassVar = [infer]
    on_startup = startup
    on_shutdown = shutdown
    redis_settings = REDIS
    poll_delay = 0.01
    max_jobs = 256
    log_results = False
    job_serializer = msgpack.packb
    job_deserializer = msgpack.unpackb


app = make_app(open_queue)
