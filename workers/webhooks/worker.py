"""The webhook worker: takes due deliveries from arq's queue, a few of each host, and runs them as arq's jobs.

It owns the tasks of the process and how many run at once; what happens to a message is the courier's business.
"""

import asyncio
import contextlib
import logging
import os
import resource
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version
from random import Random
from time import monotonic
from typing import Any, Final

from arq.worker import Retry, func

from jobs.connection import StoreError, StoreFull, translate
from jobs.deliveries import Deliveries, Shares, Taken
from jobs.gather import Gatherer
from jobs.keys import ANNOUNCED_CHANNEL, DELIVERIES_QUEUE
from jobs.listener import Listener
from jobs.metrics import measured
from jobs.outbox import DELIVER
from jobs.registry import Registry, WorkerBeat, WorkerRole
from jobs.store import JobStore
from workers.process import Loops, ProcessWorker
from workers.webhooks.courier import Courier
from workers.webhooks.hosts import Hosts, Pace
from workers.webhooks.measures import Measures
from workers.webhooks.places import GOOD_SHARE, SHARE, SLOW_SHARE, Places
from workers.webhooks.resolver import Resolve, SystemResolver
from workers.webhooks.sender import Fault, Sender
from workers.webhooks.settings import WebhookWorkerSettings

HEALTH_KEY: Final = f"{DELIVERIES_QUEUE}:health"
_BEAT_SECONDS: Final = 3.0
_RETRY_SECONDS: Final = 0.5
_LOOK_EVERY_SECONDS: Final = 1.0
_SHORTEST_PAUSE_SECONDS: Final = 0.01
"""Between two looks at the queue: what ends meanwhile is replaced in one round trip."""
_AFTER_FAULT_SECONDS: Final = 10.0
_BLOCK: Final = 64
"""Attempts that are recorded in one round trip."""
_LEASE_MARGIN_SECONDS: Final = 5.0
_LONGEST_RUN_SECONDS: Final = 600.0
_OTHER_FILES: Final = 1024
"""Connections to Redis, and those to receivers that are kept for a moment."""
_UNLIMITED_TRIES: Final = 1_000_000
"""How often a message was tried is the delivery's business: arq's counter forgets after a day."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """One run of a delivery by this worker. Once `is_recorded`, its place in arq's queue is settled as well."""

    taken: Taken
    pace: Pace = Pace.PROMPT
    has_begun: bool = False
    is_recorded: bool = False


async def deliver(ctx: dict[str, Any]) -> None:
    """arq's function for a delivery, whose id is the job's; raises Retry where what came of it isn't recorded."""
    run: Run = ctx["runs"][ctx["job_id"]]
    run.has_begun = True
    try:
        reply = await ctx["courier"].carry(run.taken)
    except StoreError as exc:
        log.warning("delivery %s waits for Redis: %s", run.taken.id, exc)
        raise Retry(defer=_AFTER_FAULT_SECONDS) from exc
    if reply is not None:
        run.is_recorded = True
        run.pace = Pace.SLOW if reply.fault is Fault.TIMEOUT else Pace.PROMPT


def _may_open(files: int) -> None:
    """Ask for so many open files where a process of this user may have them: each place is a connection or a lookup."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class WebhookWorker(ProcessWorker):
    """arq's worker for deliveries: its queue, its jobs, its run of a function.

    Taking them is ours, a block at a time in one script: arq's own way takes four round trips for each, lets the jobs
    of one slow host fill all its places, stops at the first name in the queue that is not text, and loses a place for
    good whenever Redis fails in between. So is their end, which is one step with the record of the attempt.
    """

    def __init__(
        self,
        settings: WebhookWorkerSettings,
        store: JobStore,
        deliveries: Deliveries | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        rng: Random | None = None,
        **arq_options: Any,
    ) -> None:
        """Needs a running event loop; takes over `store` and closes it at the end."""
        super().__init__(
            store,
            queue=DELIVERIES_QUEUE,
            health_key=HEALTH_KEY,
            drain_seconds=settings.drain_seconds,
            functions=[func(deliver, name=DELIVER, timeout=_LONGEST_RUN_SECONDS, max_tries=_UNLIMITED_TRIES)],
            max_jobs=settings.webhook_concurrency,
            log_results=False,
            **arq_options,
        )
        self._settings = settings
        self._id = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._registry = Registry(store.connection)
        self._deliveries = deliveries or Deliveries(store.connection)
        self._hosts = Hosts(settings.webhook_concurrency_per_host)
        self._places = Places(settings.webhook_concurrency)
        self._own_resolver = SystemResolver(settings.webhook_concurrency) if resolve is None else None
        self._news = asyncio.Event()
        self._taking = asyncio.Lock()
        self._runs: dict[str, Run] = {}
        self._sender = Sender(
            settings.webhook_allowed,
            resolve or self._own_resolver or SystemResolver(),
            timeout_seconds=settings.webhook_timeout_seconds,
            user_agent=f"inferq/{version('inferq')}",
            tls=tls,
        )
        self._records = Gatherer(self._deliveries.record, most=_BLOCK)
        self._measures = Measures()
        courier = Courier(
            store,
            self._records,
            self._sender,
            settings.webhook_secrets,
            settings.webhook_schedule,
            self._measures,
            rng or Random(),
        )
        self.ctx |= {"courier": courier, "runs": self._runs}

    def loops(self) -> Loops:
        """Taking deliveries, hearing of new ones, and saying that this worker lives."""
        listener = Listener(self._store.connection, [ANNOUNCED_CHANNEL], lambda *_: self._news.set(), self._news.set)
        return {"deliveries": self._take_for_ever, "announcements": listener.run, "heartbeat": self._beat_for_ever}

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The HTTP client, and the threads that resolve names."""
        _may_open(2 * self._settings.webhook_concurrency + _OTHER_FILES)
        async with self._sender, measured(self._settings, self._page):
            try:
                yield
            finally:
                await self._records.close()
                with contextlib.suppress(StoreError):
                    await self._registry.leave(self._id)
                if self._own_resolver is not None:
                    self._own_resolver.close()

    async def _page(self) -> str:
        try:
            queued = await self._deliveries.depth()
        except StoreError:
            queued = None
        return self._measures.page(len(self.tasks), queued)

    async def _take_for_ever(self) -> None:
        is_away = False
        while not self.is_stopping:
            try:
                async with self._taking:
                    pause_seconds = await self.take_once(monotonic())
                is_away = False
            except StoreError as exc:
                log.log(logging.DEBUG if is_away else logging.WARNING, "can't take deliveries: %s", exc)
                is_away, pause_seconds = True, _RETRY_SECONDS
            await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._news.wait()
            self._news.clear()
        await asyncio.Event().wait()

    async def take_once(self, now: float) -> float:
        """Start what is due and has room; gives for how many seconds there is nothing more to do, unless news come."""
        if self._places.free < 1 or self.is_stopping:
            return _LOOK_EVERY_SECONDS
        hand = await self._deliveries.take(
            self._places.free,
            lease_ms=round((self._settings.webhook_timeout_seconds + _LEASE_MARGIN_SECONDS) * 1000),
            room=self._hosts.first_room,
            rooms=self._hosts.rooms(now),
            shares=Shares(self._places.held, SHARE, GOOD_SHARE, SLOW_SHARE, self._hosts.good, self._hosts.slow),
        )
        if hand.dropped:
            log.warning("%d entries of the queue were no deliveries and are dropped", hand.dropped)
        for taken in hand.taken:
            self._start(taken)
        if not hand.next_due_ms:
            return _LOOK_EVERY_SECONDS
        return min(_LOOK_EVERY_SECONDS, max(0.0, (hand.next_due_ms - hand.now_ms) / 1000))

    def _start(self, taken: Taken) -> None:
        self._hosts.begun(taken.host)
        self._places.begun(taken.tenant)
        run = self._runs[taken.id] = Run(taken)
        task = asyncio.create_task(self._run(run), name=taken.id)
        self.tasks[taken.id] = task
        task.add_done_callback(lambda done: self._ended(run, done))

    async def _run(self, run: Run) -> None:
        """Let arq run a delivery. arq counts each run, which a full Redis refuses; then it is run without arq: what was
        delivered makes room."""
        try:
            await self.run_job(run.taken.id, run.taken.until_ms)
        except Exception as exc:  # arq lets redis-py's errors through, and redis belongs to jobs
            if run.has_begun or not isinstance(translate(exc), StoreFull):
                raise
            with contextlib.suppress(Retry):  # it is due again after its lease
                await deliver({**self.ctx, "job_id": run.taken.id})

    def _ended(self, run: Run, task: "asyncio.Task[None]") -> None:
        taken = run.taken
        self._hosts.ended(taken.host, run.pace, monotonic())
        if self._runs.get(taken.id) is run:
            del self.tasks[taken.id], self._runs[taken.id]
        if not task.cancelled() and task.exception() is not None:  # it stays in the queue and is due after its lease
            log.warning("delivery %s was interrupted: %r", taken.id, task.exception())
        self._leave_place(taken)

    def _leave_place(self, taken: Taken) -> None:
        """At once, or when the lookup of its host's name ends, which goes on in its thread though nobody waits."""
        name = taken.host.partition(":")[0]
        lookup = self._own_resolver.pending(name) if self._own_resolver is not None else None

        def leave(_: object = None) -> None:
            self._places.ended(taken.tenant)
            self._news.set()

        if lookup is None:
            leave()
        else:
            lookup.add_done_callback(leave)

    async def finish_job(self, job_id: str, *arguments: Any) -> None:
        """arq's end of a run, where the script that recorded the attempt has not seen to it."""
        if not self._runs[job_id].is_recorded:
            await super().finish_job(job_id, *arguments)

    async def _beat_for_ever(self) -> None:
        beat = WorkerBeat(self._id, socket.gethostname(), os.getpid(), version("inferq"), role=WorkerRole.WEBHOOKS)
        while True:
            try:
                await self._registry.beat(beat)
                await self.heart_beat()
            except Exception as exc:  # arq lets redis-py's errors through, and redis belongs to jobs
                log.debug("a heartbeat was missed: %s", exc)
            await asyncio.sleep(_BEAT_SECONDS)

    async def drain(self) -> None:
        """Sends in progress end; what is left is due again after its lease, for another worker."""
        self.stop_soon()
        async with self._taking:
            running = list(self.tasks.values())
        if running:
            await asyncio.wait(running, timeout=self.drain_seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
