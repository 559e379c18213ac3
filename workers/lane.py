"""One model's path through a worker: claim what is ready while a credit is free, and hand it to the batch runner.

Lanes share nothing but the byte budget and the threads, so a slow or dead model never delays another.
"""

import asyncio
import contextlib
import logging
import time
from typing import Final

from jobs.connection import StoreError, StoreUnavailable
from jobs.registry import LaneBeat, LaneState
from jobs.spec import ModelSpec
from jobs.store import ALONE_FROM, Claim, Claimed, Release, Suspects
from workers.batch import BatchRunner
from workers.persist import persist, shielded
from workers.sizer import BatchSizer
from workers.tools import Tools
from workers.watch import EngineWatch

_BELL_SECONDS: Final = 1.0
_SHORTEST_BELL_SECONDS: Final = 0.01
_BUDGET_LOOK_SECONDS: Final = 0.25
_PROBE_TIMEOUT_SECONDS: Final = 2.0
_STORE_PAUSE_SECONDS: Final = 0.25
_OVERLAP_BELOW_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


class Lane:
    """Claims, and runs batches in the background, until `quiet`; `stop` sees the running ones out."""

    def __init__(self, tools: Tools, spec: ModelSpec) -> None:
        self._tools = tools
        self.spec = spec
        target_seconds = tools.settings.target_latency_ms / 1000
        self._sizer = BatchSizer(spec.max_batch_size, target_seconds)
        self._slots = asyncio.Semaphore(max(1, spec.instances) + 1)
        self._watch = EngineWatch(self._sizer, tools.settings.reload_grace_seconds, time.monotonic())
        self._batches: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._is_quiet = False
        self._has_suspect = False

    @property
    def credits(self) -> int:
        """How many batches may be in flight: one for each instance, and one more that is prepared meanwhile.

        Where calls are slow the extra one gains nothing, and its jobs would spend their timeout in the engine's queue.
        """
        overlap = 1 if self._sizer.mean_call_seconds() < _OVERLAP_BELOW_SECONDS else 0
        return max(1, self.spec.instances) + overlap

    def beat(self) -> LaneBeat:
        """What to tell the world."""
        state = LaneState.ENGINE if self._watch.breaker.is_open else LaneState.READY
        return LaneBeat(state, len(self._batches), self.credits, self._sizer.settled)

    def adopt(self, spec: ModelSpec) -> None:
        """The engine describes the model anew: later batches follow it."""
        if spec.max_batch_size != self.spec.max_batch_size:
            self._sizer = BatchSizer(spec.max_batch_size, self._tools.settings.target_latency_ms / 1000)
            self._watch.sizer = self._sizer
        self.spec = spec

    async def run(self) -> None:
        """Work until `quiet`. While the store does not do what it is asked, say so once and try again."""
        complaint = ""
        while not self._is_quiet:
            try:
                await self.run_once()
                complaint = ""
            except StoreError as exc:
                if str(exc) != complaint:
                    complaint = str(exc)
                    log.log(_severity(exc), "lane %s can't claim: %s", self.spec.name, complaint)
                await asyncio.sleep(_STORE_PAUSE_SECONDS * (1 + self._tools.rng.random()))

    async def run_once(self) -> None:
        """One round: wait for a credit, for the engine and for work, and start at most one batch."""
        if self._has_suspect or len(self._batches) >= self.credits or self._tools.budget.is_spent:
            await self._one_freed()
        elif self._watch.breaker.is_open:
            await self._probe()
        else:
            size = self._sizer.next_size()
            claim = await self._claim(size)
            if claim.jobs:
                await self._start(claim.jobs, size)
            if len(claim.jobs) < size:
                await self._wait_for_bell(claim)

    def quiet(self) -> None:
        """Take no more work. Legal twice."""
        self._is_quiet = True
        self._freed.set()

    async def stop(self, deadline: float) -> None:
        """See running batches out until `deadline` (monotonic seconds), then give their jobs back. Legal twice."""
        self.quiet()
        running = set(self._batches)
        if running:
            _, late = await asyncio.wait(running, timeout=max(0.0, deadline - time.monotonic()))
            for batch in late:
                batch.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _claim(self, size: int) -> Claim:
        """Take up to `size` jobs; a suspect only when its place in quarantine is sure.

        One that were in hand meanwhile would count as one that ran, if this process died of another lane's.
        """
        quarantine = self._tools.quarantine
        claim = await self._take(size, Suspects.LEAVE if quarantine.is_taken else Suspects.AWAIT)
        if not claim.awaits or claim.jobs or self._batches or not quarantine.enter():
            return claim
        has_suspect = False
        try:
            claim = await self._take(size, Suspects.TAKE)
            has_suspect = _is_suspect(claim.jobs)
            return claim
        finally:
            if not has_suspect:
                quarantine.leave()

    async def _take(self, size: int, suspects: Suspects) -> Claim:
        tools = self._tools
        return await tools.store.claim(
            self.spec.name, size, worker=tools.worker_id, lease_ms=tools.lease_ms, suspects=suspects
        )

    async def _start(self, jobs: list[Claimed], size: int) -> None:
        """Run the jobs that may run now as a batch in the background; give the others back."""
        is_suspect = _is_suspect(jobs)
        admitted, rest = self._tools.budget.admit(jobs)
        if admitted:
            runner = BatchRunner(self._tools, self.spec, self._watch, self._slots)
            batch = asyncio.create_task(runner.run(admitted, size), name=f"batch-{self.spec.name}")
            self._batches.add(batch)
            self._has_suspect = is_suspect
            batch.add_done_callback(lambda done: self._ended(done, admitted))
        elif is_suspect:
            self._tools.quarantine.leave()
        if rest:
            await self._give_back(rest)
            await self._one_freed()

    async def _give_back(self, jobs: list[Claimed]) -> None:
        """Release these claims uncounted, at their old place."""
        log.info("lane %s gives %d jobs back: INFERQ_INFLIGHT_BYTES is used up", self.spec.name, len(jobs))
        releases = [Release(job.lease) for job in jobs]
        await shielded(persist(lambda: self._tools.store.settle(releases)))

    def _ended(self, batch: asyncio.Task[None], jobs: list[Claimed]) -> None:
        self._batches.discard(batch)
        self._tools.budget.free(jobs)
        if self._has_suspect:
            self._has_suspect = False
            self._tools.quarantine.leave()
        self._freed.set()
        if not batch.cancelled() and batch.exception() is not None:
            log.error("a batch of %s could not be settled", self.spec.name, exc_info=batch.exception())

    async def _one_freed(self) -> None:
        """Wait until one of this lane's batches ends; look again now and then, since others share the byte budget."""
        self._freed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BUDGET_LOOK_SECONDS):
                await self._freed.wait()

    async def _wait_for_bell(self, claim: Claim) -> None:
        """Wait until a job is submitted or a scheduled one becomes due, but not for ever: a bell can get lost."""
        wait_seconds = _BELL_SECONDS
        if claim.next_due_ms:
            wait_seconds = min(wait_seconds, max(_SHORTEST_BELL_SECONDS, (claim.next_due_ms - claim.now_ms) / 1000))
        if not self._is_quiet:
            await self._tools.store.wait_for_work(self.spec.name, wait_seconds)

    async def _probe(self) -> None:
        """Ask the engine whether it serves the model again, when the breaker says that it is time."""
        wait_seconds = self._watch.breaker.seconds_to_probe(time.monotonic())
        if wait_seconds > 0:
            await asyncio.sleep(min(wait_seconds, _BELL_SECONDS))
            return
        engine, name = self._tools.engine, self.spec.name
        if await engine.is_model_ready(name, "", _PROBE_TIMEOUT_SECONDS):
            log.info("the engine serves %s again", name)
            self._watch.serving(time.monotonic())
            self._tools.changed.set()
        elif self._watch.is_in_grace(time.monotonic()) or not await engine.is_ready(_PROBE_TIMEOUT_SECONDS):
            self._watch.breaker.trip(time.monotonic())
        else:
            self._watch.breaker.close()  # the engine answers and the model is gone: let its jobs fail as not found


def _is_suspect(jobs: list[Claimed]) -> bool:
    """Whether this is a job that may be what kills workers; such a job is alone."""
    return bool(jobs) and jobs[0].redeliveries >= ALONE_FROM


def _severity(exc: StoreError) -> int:
    return logging.WARNING if isinstance(exc, StoreUnavailable) else logging.ERROR
