"""The inference worker: arq's process life round lanes that claim and settle whole batches.

It owns start, stop and the tasks between; what happens to a job is the lanes' business.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from signal import Signals
from typing import Any, Final

from arq.connections import ArqRedis
from arq.cron import cron
from arq.worker import Worker

from jobs import codec
from jobs.connection import StoreError
from jobs.listing import prune
from jobs.registry import Registry
from jobs.store import JobStore
from workers.budget import ByteBudget
from workers.heartbeat import Heartbeat
from workers.lane import Lane
from workers.reaper import Reaper
from workers.serving import Serving
from workers.settings import WorkerSettings
from workers.tools import Tools
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions

QUEUE: Final = "inferq:maintenance"
HEALTH_KEY: Final = "inferq:maintenance:health"
HEALTH_SECONDS: Final = 10
_POLL_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


async def tidy(ctx: dict[str, Any]) -> int:
    """Drop index entries whose records are gone; returns how many. One worker of the fleet does it, once a minute."""
    return await prune(ctx["store"].connection)


class InferenceWorker(Worker):
    """arq's worker, with batches claimed by lanes in place of jobs taken one by one.

    arq keeps: hooks, context, signals, cron and the health key (so `arq --check` works). Replaced: `main`, which
    runs the lanes and survives Redis being away, and the signal handlers, which drain.
    """

    def __init__(self, settings: WorkerSettings, store: JobStore, **arq_options: Any) -> None:
        """Needs a running event loop; takes over `store` and closes it at the end."""
        pool = ArqRedis(
            pool_or_conn=store.connection.client.connection_pool,
            job_serializer=codec.encode,
            job_deserializer=codec.decode,
            default_queue_name=QUEUE,
        )
        super().__init__(
            cron_jobs=[cron(tidy, second=0, unique=True, timeout=50, max_tries=1)],
            redis_pool=pool,
            queue_name=QUEUE,
            health_check_key=HEALTH_KEY,
            health_check_interval=HEALTH_SECONDS,
            keep_result=0,
            job_serializer=codec.encode,
            job_deserializer=codec.decode,
            ctx={"store": store},
            **arq_options,
        )
        self._settings = settings
        self._store = store
        self._registry = Registry(store.connection)
        self._stopping = asyncio.Event()
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._tools = self._make_tools()
        self._serving = Serving(self._tools, self._registry, self._start_lane)

    def _make_tools(self) -> Tools:
        settings = self._settings
        options = EngineOptions(
            addresses=settings.engine,
            message_bytes=settings.engine_message_bytes,
            keepalive_seconds=settings.engine_keepalive_seconds or None,
        )
        return Tools(
            worker_id=f"{socket.gethostname()}-{secrets.token_hex(4)}",
            settings=settings,
            store=self._store,
            engine=TritonClient(options),
            threads=ThreadPoolExecutor(settings.prepare_threads, thread_name_prefix="prepare"),
            budget=ByteBudget(settings.inflight_bytes),
        )

    async def main(self) -> None:
        """Serve until a signal, then drain: in-flight batches end, the rest goes back uncounted."""
        tools, lanes = self._tools, self._serving.lanes
        self.ctx["redis"] = self.pool
        if self.on_startup:
            await self.on_startup(self.ctx)
        heartbeat = Heartbeat(
            tools, self._registry, version("inferq"), lambda: {name: lane.beat() for name, lane in lanes.items()}
        )
        reaper = Reaper(tools, self._registry, lambda: set(lanes))
        async with tools.engine:
            background = [
                asyncio.create_task(loop, name=name)
                for name, loop in (
                    ("heartbeat", heartbeat.run()),
                    ("cancels", heartbeat.listen()),
                    ("reaper", reaper.run()),
                    ("serving", self._serving.run()),
                    ("arq", self._run_arq()),
                )
            ]
            try:
                await self._until_stopped(background)
            finally:
                await self._drain()
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                with contextlib.suppress(StoreError):
                    await self._registry.leave(tools.worker_id)
                tools.threads.shutdown(wait=False, cancel_futures=True)

    async def _until_stopped(self, background: list[asyncio.Task[None]]) -> None:
        """Wait for the signal; a loop that ends by itself is a fault of ours and ends the process, loudly."""
        stop = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait([stop, *background], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done - {stop}:
            task.result()
            raise RuntimeError(f"the {task.get_name()} loop ended")

    async def _run_arq(self) -> None:
        """arq's own round: its health key and its cron."""
        while True:
            try:
                await self._poll_iteration()
            except Exception as exc:  # arq lets redis-py's errors through, and redis belongs to jobs
                log.debug("arq's round failed: %s", exc)
            await asyncio.sleep(_POLL_SECONDS)

    def _start_lane(self, lane: Lane) -> None:
        task = asyncio.create_task(lane.run(), name=f"lane-{lane.spec.name}")
        self._lane_tasks.add(task)
        task.add_done_callback(self._lane_ended)
        if self._stopping.is_set():
            lane.quiet()

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        self._lane_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s broke; the worker ends", task.get_name(), exc_info=task.exception())
            self._stopping.set()

    async def _drain(self) -> None:
        lanes = list(self._serving.lanes.values())
        deadline = time.monotonic() + self._settings.drain_seconds
        for lane in lanes:
            lane.quiet()
        if self._lane_tasks:
            await asyncio.wait(set(self._lane_tasks))
        await asyncio.gather(*(lane.stop(deadline) for lane in lanes))

    def handle_sig(self, signum: Signals) -> None:
        """Begin to drain; a second signal does nothing more (SIGKILL is always safe, and costs a lease)."""
        if not self._stopping.is_set():
            log.info("%s: draining for at most %g s", Signals(signum).name, self._settings.drain_seconds)
            self._stopping.set()

    async def close(self) -> None:
        """Close the store and run arq's shutdown hook. Legal twice."""
        if self._pool is None:
            return
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        if self.on_shutdown:
            await self.on_shutdown(self.ctx)
        self._pool = None
        await self._store.close()
