"""arq as it comes: its default poll, concurrency and serializer.

The worker is `arq bench.peers.arq_stock.WorkerSettings`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from arq import create_pool

from bench.peers.arq_tuned import REDIS, ArqQueue, infer, shutdown, startup
from bench.peers.contract import make_app


@asynccontextmanager
async def open_queue() -> AsyncIterator[ArqQueue]:
    """The queue on a pool of its own."""
    pool = await create_pool(REDIS)
    try:
        yield ArqQueue(pool)
    finally:
        await pool.aclose()


class WorkerSettings:
    """What `arq` reads."""

    functions: ClassVar = [infer]
    on_startup = startup
    on_shutdown = shutdown
    redis_settings = REDIS


app = make_app(open_queue)
