"""The life that all our workers share: arq's, on the store's own connections, through outages and to a drained end.

It owns start, signals, the loops of a process and its stop. It must not know what a worker works on.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from signal import Signals
from typing import Any, Final

from arq.connections import ArqRedis
from arq.cron import CronJob
from arq.worker import Function, Worker

from jobs import codec
from jobs.loops import end
from jobs.store import JobStore

HEALTH_SECONDS: Final = 10

Loops = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]
"""What a process does for ever, by name."""

log = logging.getLogger(__name__)


class ProcessWorker(Worker):
    """arq's worker, with loops of our own in place of the one that takes jobs and ends with the first lost connection.

    arq keeps hooks, context, functions, cron and the health key (so `arq --check` works). Replaced: `main`, and the
    signal handlers, which drain.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        queue: str,
        health_key: str,
        drain_seconds: float,
        functions: Sequence[Function] = (),
        cron_jobs: Sequence[CronJob] = (),
        **arq_options: Any,
    ) -> None:
        """Needs a running event loop; takes over `store` and closes it at the end."""
        pool = ArqRedis(
            pool_or_conn=store.connection.client.connection_pool,
            job_serializer=codec.encode,
            job_deserializer=codec.decode,
            default_queue_name=queue,
        )
        super().__init__(
            functions,
            cron_jobs=cron_jobs,
            redis_pool=pool,
            queue_name=queue,
            health_check_key=health_key,
            health_check_interval=HEALTH_SECONDS,
            keep_result=0,
            job_serializer=codec.encode,
            job_deserializer=codec.decode,
            ctx={"store": store},
            **arq_options,
        )
        self.drain_seconds = drain_seconds
        self._store = store
        self._stopping = asyncio.Event()

    @abstractmethod
    def loops(self) -> Loops:
        """What runs from start to stop; a loop that ends by itself ends the process, loudly."""

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[object]:
        """What is open while the loops run."""

    @abstractmethod
    async def drain(self) -> None:
        """Take no more work, and finish or give back what is in hand within `drain_seconds`."""

    @property
    def is_stopping(self) -> bool:
        """Whether the process was told to end."""
        return self._stopping.is_set()

    def stop_soon(self) -> None:
        """Begin to end, as a signal does."""
        self._stopping.set()

    async def main(self) -> None:
        """Serve until a signal, then drain."""
        self.ctx["redis"] = self.pool
        if self.on_startup:
            await self.on_startup(self.ctx)
        async with self.opened():
            background = [asyncio.create_task(loop(), name=name) for name, loop in self.loops().items()]
            try:
                await self._until_stopped(background)
            finally:
                await self.drain()
                await end(*background)

    async def _until_stopped(self, background: list[asyncio.Task[None]]) -> None:
        """Wait for the signal, or for a fault of ours: a loop that ended."""
        stop = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait([stop, *background], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done - {stop}:
            task.result()
            raise RuntimeError(f"the {task.get_name()} loop ended")

    def handle_sig(self, signum: Signals) -> None:
        """Begin to drain; a second signal does nothing more (SIGKILL is always safe, and costs a lease)."""
        if not self.is_stopping:
            log.info("%s: draining for at most %g s", Signals(signum).name, self.drain_seconds)
            self.stop_soon()

    async def close(self) -> None:
        """Close the store and run arq's shutdown hook. Legal twice."""
        if self._pool is None:
            return
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        if self.on_shutdown:
            await self.on_shutdown(self.ctx)
        self._pool = None
        await self._store.close()
