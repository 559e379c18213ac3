"""The life of a batch, step by step: load, prepare, collate, infer, split, settle.

Each job leaves through one of the settlements of `jobs.store`, decided in `policy`; nothing else ends a job here.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.errors import EngineFailed, EngineTimeout, InvalidInput, JobError, JobFailure, ModelRejected, OutputTooLarge
from jobs.errors import ErrorCode as Code
from jobs.record import Outcome, Timings
from jobs.spec import ModelSpec
from jobs.store import Claimed, Fail, Release, Settled, Settlement, Succeed
from workers.collate import Batch, Share, collate, split, to_call
from workers.items import Item, decoder_bytes, make_item, needs_preparation
from workers.persist import persist, shielded
from workers.policy import after_failure
from workers.stream import merge
from workers.tools import Tools
from workers.triton.messages import InferCall, InferReply
from workers.watch import EngineWatch

INLINE_BYTES = 2048
"""Results up to this size are stored inside the record: one command less, and they live as long as it."""

log = logging.getLogger(__name__)


class _Unwanted(Exception):
    """Every job of the call was canceled or lost meanwhile."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A batch's shares, and when its call was sent and answered (monotonic seconds)."""

    shares: list[Share]
    model_version: str
    batch_id: str
    sent: float
    ended: float


class BatchRunner:
    """Runs the batches of one lane; at most `slots` engine calls at a time."""

    def __init__(self, tools: Tools, spec: ModelSpec, watch: EngineWatch, slots: asyncio.Semaphore) -> None:
        self._tools = tools
        self._spec = spec
        self._watch = watch
        self._slots = slots

    async def run(self, jobs: Sequence[Claimed], max_rows: int) -> None:
        """See claimed jobs to their settlement. When cancelled, those not yet settled are released uncounted."""
        leases = [job.lease for job in jobs]
        with self._tools.flights.holding(leases):
            try:
                items = await self._prepare(await self._load(jobs))
                async with asyncio.TaskGroup() as group:
                    for batch in collate(items, self._spec, max_rows):
                        group.create_task(self._complete(batch))
            except asyncio.CancelledError:
                await self._settle([Release(job.lease) for job in jobs])
                raise
            except Exception as exc:  # a fault of ours: counted like the engine's, so that it can't loop for ever
                log.exception("a batch of %s broke", self._spec.name)
                failure = EngineFailed(f"The worker failed ({type(exc).__name__}).")
                await self._settle([self._after(job, failure) for job in jobs])

    async def _load(self, jobs: Sequence[Claimed]) -> list[tuple[Claimed, bytes]]:
        payloads = await persist(lambda: self._tools.store.load([job.lease.job_id for job in jobs]))
        lost = Outcome(error=JobError(Code.LOST, "Its input is gone from the store."))
        await self._settle(
            [Fail(job.lease, lost) for job, payload in zip(jobs, payloads, strict=True) if payload is None]
        )
        return [(job, payload) for job, payload in zip(jobs, payloads, strict=True) if payload is not None]

    async def _prepare(self, loaded: Sequence[tuple[Claimed, bytes]]) -> list[Item]:
        made = await asyncio.gather(*(self._make(job, payload) for job, payload in loaded))
        await self._settle([one for one in made if not isinstance(one, Item)])
        return [one for one in made if isinstance(one, Item)]

    async def _make(self, job: Claimed, payload: bytes) -> Item | Settlement:
        spec = self._spec.of_version(job.request.model_version)
        arguments = (job, payload, spec, self._tools.settings.max_pixels)
        try:
            if not needs_preparation(job):
                return make_item(*arguments)
            async with asyncio.timeout(job.request.timeout_ms / 1000):
                return await self._in_thread(*arguments)
        except TimeoutError:
            return self._after(job, EngineTimeout("Preparing the input took longer than the job's timeout."))
        except JobFailure as failure:
            return self._after(job, failure)
        except Exception as exc:  # decoders raise many unrelated types on hostile bytes; one job must not harm others
            log.exception("preparing job %s broke", job.lease.job_id)
            return self._after(job, InvalidInput(f"The input could not be decoded ({type(exc).__name__})."))

    async def _in_thread(self, job: Claimed, payload: bytes, spec: ModelSpec, max_pixels: int) -> Item:
        """`make_item` once there is memory for it, which is held until the thread has ended, whoever gave up on it."""
        loop, room = asyncio.get_running_loop(), self._tools.decoders
        nbytes = decoder_bytes(job, payload, spec, max_pixels)
        await room.enter(nbytes)
        work = self._tools.threads.submit(make_item, job, payload, spec, max_pixels)

        def ended(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and the worker with it
                loop.call_soon_threadsafe(room.leave, nbytes)

        work.add_done_callback(ended)
        return await asyncio.wrap_future(work)

    async def _complete(self, batch: Batch) -> None:
        await self._settle(await self._infer(batch))

    async def _infer(self, batch: Batch) -> list[Settlement]:
        """How each item ended. What the engine refuses as a whole is cut in two until the culprit stands alone."""
        try:
            answer = await self._call(batch)
        except _Unwanted:
            return []
        except (ModelRejected, EngineFailed) as failure:
            if len(batch.items) == 1:
                return [self._after(batch.items[0].job, failure)]
            halves = await asyncio.gather(*(self._infer(half) for half in batch.halves()))
            return [settlement for half in halves for settlement in half]
        except JobFailure as failure:
            judged = self._watch.judge(failure, time.monotonic())
            self._tools.changed.set()
            return [self._after(item.job, judged) for item in batch.items]
        return [
            self._succeed(item, share, answer, len(batch.items))
            for item, share in zip(batch.items, answer.shares, strict=True)
        ]

    async def _call(self, batch: Batch) -> _Answer:
        """Send the batch once a slot is free, and cut the answer. Raises JobFailure, or _Unwanted when all gave up."""
        timeout_seconds = batch.items[0].job.request.timeout_ms / 1000
        spec = self._spec.of_version(batch.model_version)
        batch_id = secrets.token_hex(8)
        leases = [item.job.lease for item in batch.items]
        async with self._slots:
            sent = time.monotonic()
            call = to_call(batch, spec, batch_id)
            task = asyncio.ensure_future(self._send(call, spec, timeout_seconds))
            with self._tools.flights.calling(leases, task):
                try:
                    reply = await task
                except asyncio.CancelledError:
                    current = asyncio.current_task()
                    if current is not None and current.cancelling():
                        raise
                    raise _Unwanted from None
            ended = time.monotonic()
        shares = split(reply.outputs, batch, spec)
        self._watch.answered(batch.rows, sent, ended)
        self._tools.measures.called(self._spec.name, batch.rows, ended - sent)
        return _Answer(shares, reply.model_version, batch_id, sent, ended)

    async def _send(self, call: InferCall, spec: ModelSpec, timeout_seconds: float) -> InferReply:
        if spec.decoupled:
            return merge(await self._tools.engine.infer_stream(call, timeout_seconds), spec)
        return await self._tools.engine.infer(call, timeout_seconds)

    def _succeed(self, item: Item, share: Share, answer: _Answer, batch_size: int) -> Settlement:
        most = self._tools.settings.max_output_bytes
        if share.nbytes > most:
            detail = f"The output has {share.nbytes} bytes; at most {most} are kept (INFERQ_MAX_OUTPUT_BYTES)."
            return self._after(item.job, OutputTooLarge(detail))
        payload = share.payload()
        is_inline = share.nbytes <= INLINE_BYTES
        outcome = Outcome(
            outputs=share.parts,
            inline=bytes(payload) if is_inline else None,
            model_version=answer.model_version,
            timings=Timings(
                prepare_ms=item.prepare_ms,
                batch_wait_ms=max(0.0, answer.sent - item.ready_at) * 1000,
                inference_ms=(answer.ended - answer.sent) * 1000,
            ),
            batch_size=batch_size,
            batch_id=answer.batch_id,
        )
        return Succeed(item.job.lease, outcome, None if is_inline else payload)

    def _after(self, job: Claimed, failure: JobFailure) -> Settlement:
        return after_failure(job, failure, Outcome(error=failure.error), self._tools.rng)

    async def _settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how attempts ended, whatever happens to this task; leases that were dropped are left alone."""
        wanted = [one for one in settlements if self._tools.flights.is_wanted(one.lease)]
        if wanted:
            await shielded(self._settle_all(wanted))

    async def _settle_all(self, settlements: Sequence[Settlement]) -> None:
        replies = await persist(lambda: self._tools.store.settle(settlements))
        for settlement in settlements:
            word = replies[settlement.lease]
            self._tools.flights.done(settlement.lease)
            if word is Settled.LEASE_LOST:
                log.info("job %s: attempt %d came too late, its outcome is dropped", *settlement.lease)
            else:
                self._tools.measures.settled(self._spec.name, settlement)
