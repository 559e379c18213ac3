"""The inference worker: lanes that claim and settle whole batches, and what keeps their jobs safe meanwhile.

It owns the tasks of the process; what happens to a job is the lanes' business.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, Final

from arq.cron import cron

from jobs.connection import StoreError
from jobs.metrics import measured
from jobs.registry import Registry
from jobs.store import JobStore
from workers.budget import ByteBudget, DecodeRoom
from workers.heartbeat import Heartbeat
from workers.lane import Lane
from workers.process import Loops, ProcessWorker
from workers.reaper import Reaper
from workers.serving import Serving
from workers.settings import WorkerSettings
from workers.tools import Tools
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions

QUEUE: Final = "inferq:maintenance"
HEALTH_KEY: Final = "inferq:maintenance:health"
_POLL_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


async def sweep(ctx: dict[str, Any]) -> int:
    """End jobs that waited too long or that nobody holds; returns how many.

    The reaper does so all the time. This is for arq: once a minute one worker of the fleet does it as an arq job, so
    that arq's own health key and cron are known to work.
    """
    swept = await ctx["store"].expire()
    return len(swept.expired) + len(swept.lost)


class InferenceWorker(ProcessWorker):
    """Batches claimed by lanes in place of jobs taken one by one; arq's queue is left with housekeeping."""

    def __init__(self, settings: WorkerSettings, store: JobStore, **arq_options: Any) -> None:
        """Needs a running event loop; takes over `store` and closes it at the end."""
        super().__init__(
            store,
            queue=QUEUE,
            health_key=HEALTH_KEY,
            drain_seconds=settings.drain_seconds,
            cron_jobs=[cron(sweep, second=0, unique=True, timeout=50, max_tries=1)],
            **arq_options,
        )
        self._settings = settings
        self._registry = Registry(store.connection)
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._tools = self._make_tools()
        self._serving = Serving(self._tools, self._registry, self._start_lane)

    def _make_tools(self) -> Tools:
        settings = self._settings
        options = EngineOptions(
            addresses=settings.engine,
            message_bytes=settings.engine_message_bytes,
            shared_bytes=settings.engine_shared_bytes,
            keepalive_seconds=settings.engine_keepalive_seconds or None,
            tls=settings.engine_tls,
            tls_root_certificates=settings.engine_ca_file,
            tls_certificate=settings.engine_cert_file,
            tls_key=settings.engine_key_file,
            tls_server_name=settings.engine_server_name or None,
        )
        return Tools(
            worker_id=f"{socket.gethostname()}-{secrets.token_hex(4)}",
            settings=settings,
            store=self._store,
            engine=TritonClient(options),
            threads=ThreadPoolExecutor(settings.prepare_threads, thread_name_prefix="prepare"),
            budget=ByteBudget(settings.inflight_bytes),
            decoders=DecodeRoom(settings.decode_bytes),
        )

    def loops(self) -> Loops:
        """Leases and cancels, the reaper, the models that the engine has, and arq's own round."""
        lanes = self._serving.lanes
        heartbeat = Heartbeat(
            self._tools,
            self._registry,
            version("inferq"),
            lambda: {name: lane.beat() for name, lane in lanes.items()},
            lambda: self._serving.unloaded,
        )
        return {
            "heartbeat": heartbeat.run,
            "cancels": heartbeat.listen,
            "reaper": Reaper(self._tools, self._registry, lambda: set(lanes)).run,
            "serving": self._serving.run,
            "arq": self._run_arq,
        }

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The engine's channel, and the threads that prepare."""
        async with self._tools.engine, measured(self._settings, self._page):
            try:
                yield
            finally:
                with contextlib.suppress(StoreError):
                    await self._registry.leave(self._tools.worker_id)
                self._tools.threads.shutdown(wait=False, cancel_futures=True)

    async def _page(self) -> str:
        return self._tools.measures.page({name: lane.beat() for name, lane in self._serving.lanes.items()})

    async def _run_arq(self) -> None:
        """arq's own round: its health key and its cron."""
        while True:
            try:
                async with asyncio.timeout(self._settings.redis_timeout_seconds):
                    await self._poll_iteration()
            except Exception as exc:  # arq lets redis-py's errors through, and redis belongs to jobs
                log.debug("arq's round failed: %s", exc)
            await asyncio.sleep(_POLL_SECONDS)

    def _start_lane(self, lane: Lane) -> None:
        task = asyncio.create_task(lane.run(), name=f"lane-{lane.spec.name}")
        self._lane_tasks.add(task)
        task.add_done_callback(self._lane_ended)
        if self.is_stopping:
            lane.quiet()

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        self._lane_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s broke; the worker ends", task.get_name(), exc_info=task.exception())
            self.stop_soon()

    async def drain(self) -> None:
        """In-flight batches end, the rest goes back uncounted."""
        lanes = list(self._serving.lanes.values())
        deadline = time.monotonic() + self.drain_seconds
        for lane in lanes:
            lane.quiet()
        if self._lane_tasks:
            await asyncio.wait(set(self._lane_tasks))
        await asyncio.gather(*(lane.stop(deadline) for lane in lanes))
