"""Celery on Redis. Each process of its pool opens a channel of its own; see bench/NOTES.md for threads in their place.

The worker is `celery --app bench.peers.celery_tasks:celery worker --pool prefork`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery  # type: ignore[import-untyped]
from fastapi.concurrency import run_in_threadpool

from bench.peers.contract import make_app
from bench.peers.engine import BlockingEngine

REDIS = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0")

RESULTS = f"{REDIS.rpartition('/')[0]}/1"

celery = Celery("celery_tasks", broker=REDIS, backend=RESULTS)
celery.conf.update(
    accept_content=["msgpack"],
    task_serializer="msgpack",  # its JSON takes no bytes
    result_serializer="msgpack",
    worker_prefetch_multiplier=8,
    task_default_delivery_mode="transient",
    worker_enable_remote_control=False,
    task_send_sent_event=False,
    broker_connection_retry_on_startup=True,
)
engine = BlockingEngine()


@celery.task(name="infer")  # type: ignore[untyped-decorator]
def infer(model: str, data: bytes, content_type: str) -> bytes:
    """The job: one ModelInfer."""
    return engine.infer(model, data, content_type)


class CeleryQueue:
    """Jobs in Celery's queue. Its client blocks, so it is called in threads, as FastAPI's manual says."""

    async def submit(self, model: str, data: bytes, content_type: str) -> str:
        """Enqueue."""
        sent: Any = await run_in_threadpool(infer.apply_async, (model, data, content_type))
        return str(sent.id)

    async def result(self, job_id: str) -> bytes | None:
        """What `infer` returned."""
        return await run_in_threadpool(self._result, job_id)

    @staticmethod
    def _result(job_id: str) -> bytes | None:
        """What the backend holds: an AsyncResult would subscribe too, and its end can deadlock two threads."""
        found: dict[str, Any] = celery.backend.get_task_meta(job_id)
        if found["status"] == "FAILURE":
            raise RuntimeError(f"the task failed: {found['result']}")
        return bytes(found["result"]) if found["status"] == "SUCCESS" else None


@asynccontextmanager
async def open_queue() -> AsyncIterator[CeleryQueue]:
    """The queue; its pool opens by itself."""
    yield CeleryQueue()


app = make_app(open_queue)
