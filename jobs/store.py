"""The one way to jobs in Redis: a method per event of `jobs.state`, each one atomic script, many jobs a round trip.

It owns what is stored and in which order; it must not decide policy (what to retry, when to give up) or know HTTP.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from jobs import codec, keys
from jobs.answers import inspection, joined, submit_answer, with_standings
from jobs.connection import Call, Connection, StoreError, StoreFull, StoreUnavailable
from jobs.errors import ErrorCode, JobError
from jobs.events import (
    Canceled,
    Claim,
    Claimed,
    Deleted,
    Fail,
    Inspection,
    Lease,
    Reaped,
    Release,
    Retry,
    Settled,
    Settlement,
    Standing,
    Submission,
    SubmitReply,
    Submitted,
    Succeed,
    Suspects,
    Swept,
    new_job_id,
)
from jobs.load import limits
from jobs.payloads import payload_call
from jobs.record import JOB_FIELDS, Job, JobRequest, Outcome
from jobs.settings import StoreSettings

__all__ = [
    "ALONE_FROM",
    "MAX_REDELIVERIES",
    "Canceled",
    "Claim",
    "Claimed",
    "Deleted",
    "Fail",
    "Inspection",
    "JobStore",
    "Lease",
    "Reaped",
    "Release",
    "Retry",
    "Settled",
    "Settlement",
    "Standing",
    "Submission",
    "SubmitReply",
    "Submitted",
    "Succeed",
    "Suspects",
    "Swept",
    "new_job_id",
]
"""The store, and the words that are spoken with it."""

MAX_REDELIVERIES: Final = 3
"""How often a job is run again after its worker or its engine died; then it fails."""

ALONE_FROM: Final = 2
"""From this many redeliveries a job runs alone, so that one that kills workers takes nobody else along again."""

T = TypeVar("T")

_LEASE_GRACE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_FSYNC_SHARE: Final = 0.8
"""Of a call's time, what may be spent on waiting for the disk: the reply must still arrive."""
_FORGET_LIMIT: Final = 1_000
_NO_OUTPUT: Final = "NO_OUTPUT"
_BLOCK: Final = 1_000
"""As many jobs as one script takes: Lua's stack bounds it, and Redis serves nobody else meanwhile."""


class JobStore:
    """Jobs in one Redis. Every method raises what `Connection.run` raises, and is bounded by its deadline."""

    def __init__(
        self, connection: Connection, settings: StoreSettings, clock_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`clock_ms` overrides Redis' clock in tests; 0 means that Redis' own is used."""
        self.connection = connection
        self._settings = settings
        self._clock_ms = clock_ms

    @classmethod
    async def open(cls, settings: StoreSettings) -> "tuple[JobStore, list[str]]":
        """A store on a proven server, and warnings about it; raises StoreMisconfigured or StoreUnavailable."""
        connection = Connection.from_settings(settings)
        try:
            return cls(connection, settings), await connection.check(needs_disk=settings.durable)
        except BaseException:
            await connection.close()
            raise

    async def close(self) -> None:
        """Close all connections. Legal twice."""
        await self.connection.close()

    async def submit(self, submission: Submission) -> SubmitReply:
        """Store one job; when this returns OK it is stored (and fsynced, where `durable` is set)."""
        return (await self.submit_many([submission]))[0]

    async def submit_many(self, submissions: Sequence[Submission]) -> list[SubmitReply]:
        """Store jobs in one round trip; each is stored or refused by itself.

        A job that finds no memory is NO_MEMORY; where Redis takes nothing at all, StoreFull is raised.
        """
        if not submissions:
            return []
        blocks = _blocks(submissions)
        calls = [payload_call(keys.input_key(item.id), item.payload) for item in submissions]
        calls += [Call(*self._submit_arguments(block), script="submit") for block in blocks]
        if self._settings.durable:
            calls.append(Call("WAITAOF", 1, 0, int(self._settings.redis_timeout_seconds * 1000 * _FSYNC_SHARE)))
        replies = await self.connection.replies(*calls)
        synced = replies.pop() if self._settings.durable else [1]
        written, words = _cut(replies, len(submissions))
        answers = [
            submit_answer(payload, reply, item.tenant, standings)
            for item, payload, (reply, standings) in zip(submissions, written, with_standings(words), strict=True)
        ]
        stored = [answer for answer in answers if isinstance(answer, SubmitReply)]
        if not stored:
            raise next(answer for answer in answers if isinstance(answer, StoreError))
        if isinstance(synced, StoreError):
            raise synced
        if synced[0] < 1:
            raise StoreUnavailable("Redis has not written the job to disk in time; it may or may not be kept")
        return [
            answer if isinstance(answer, SubmitReply) else SubmitReply(Submitted.NO_MEMORY, item.id)
            for item, answer in zip(submissions, answers, strict=True)
        ]

    def _submit_arguments(self, block: Sequence[Submission]) -> list[Any]:
        record_ms = int(self._settings.record_ttl_seconds * 1000)
        head_start_ms = int(self._settings.head_start_seconds * 1000)
        arguments: list[Any] = [self._clock_ms(), codec.VERSION, record_ms, *limits(self._settings)]
        for item in block:
            request, encoded = item.request, item.request.encode()
            runs_ms = (request.max_failures + MAX_REDELIVERIES + 1) * (request.timeout_ms + _LEASE_GRACE_MS)
            arguments += (
                item.id,
                item.tenant,
                request.model,
                encoded,
                request.priority.head_start_ms(head_start_ms),
                request.run_at_ms,
                request.queue_ttl_ms,
                request.result_ttl_ms,
                request.queue_ttl_ms + runs_ms + request.result_ttl_ms + record_ms + _DAY_MS,
                keys.idempotency_key(item.tenant, item.idempotency_key) if item.idempotency_key else "",
                item.fingerprint,
                request.webhook.words if request.webhook else "",
                request.webhook.host if request.webhook else "",
                len(encoded) + memoryview(item.payload).nbytes,
            )
        return arguments

    async def claim(
        self, model: str, limit: int, *, worker: str, lease_ms: int, suspects: Suspects = Suspects.TAKE
    ) -> Claim:
        """Take up to `limit` due jobs (1,000 at most); a job whose workers died comes alone, and as `suspects` says.

        A record that can't be read although its version is known ends as `lost`.
        """
        most, at_suspects = min(limit, _BLOCK), suspects.value
        arguments = (self._clock_ms(), model, most, lease_ms, worker, codec.VERSION, ALONE_FROM, at_suspects)
        (reply,) = await self.connection.run(Call(*arguments, script="claim"))
        claimed: list[Claimed] = []
        broken: list[Settlement] = []
        now_ms, next_due_ms, dropped, left, stopped = reply[:5]
        for raw_id, attempt, failures, redeliveries, created_ms, due_ms, request in reply[5:]:
            lease = Lease(raw_id.decode(), attempt)
            try:
                decoded = JobRequest.decode(request)
            except codec.CodecError:
                broken.append(Fail(lease, Outcome(error=JobError(ErrorCode.LOST, "The stored request is damaged."))))
                continue
            claimed.append(Claimed(lease, decoded, failures, redeliveries, int(created_ms), int(due_ms)))
        if broken:
            await self.settle(broken)
        return Claim(claimed, int(now_ms), int(float(next_due_ms)), dropped, left, bool(stopped))

    async def load(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """The request payloads, None where one is gone."""
        if not job_ids:
            return []
        (payloads,) = await self.connection.run(Call("MGET", *map(keys.input_key, job_ids)))
        return list(payloads)

    async def extend(self, leases: Sequence[Lease], lease_ms: int) -> set[Lease]:
        """Renew leases and return those that are lost."""
        calls = [
            Call(self._clock_ms(), lease_ms, *(part for lease in block for part in lease), script="extend")
            for block in _blocks(leases)
        ]
        words = joined(await self.connection.run(*calls)) if calls else []
        return {lease for lease, word in zip(leases, words, strict=True) if word != b"OK"}

    async def settle(self, settlements: Sequence[Settlement]) -> dict[Lease, Settled]:
        """Record how attempts ended, all in one round trip; a lost lease changes nothing.

        A Redis at its memory limit takes results all the same, for every job that ends makes room.
        """
        words = await self._settle(settlements, is_full=False)
        refused = [item for item in settlements if words[item.lease] == _NO_OUTPUT]
        if refused:
            words |= await self._settle(refused, is_full=True)
        if _NO_OUTPUT in words.values():
            raise StoreUnavailable("Redis did not take a result; nothing is lost, settle again")
        return {lease: Settled(word) for lease, word in words.items()}

    async def _settle(self, settlements: Sequence[Settlement], *, is_full: bool) -> dict[Lease, str]:
        by_event: dict[str, list[Settlement]] = {}
        for settlement in settlements:
            by_event.setdefault(type(settlement).__name__.lower(), []).append(settlement)
        blocks = [(event, block) for event, items in by_event.items() for block in _blocks(items)]
        writes = [
            payload_call(keys.output_key(*item.lease), item.output, is_full=is_full)
            for item in settlements
            if isinstance(item, Succeed) and item.output is not None
        ]
        scripts = [
            Call(self._clock_ms(), *(part for item in block for part in _settle_arguments(item)), script=name)
            for name, block in blocks
        ]
        if not scripts:
            return {}
        written, replies = _cut(await self.connection.replies(*writes, *scripts), len(writes))
        for reply in [*(reply for reply in written if not isinstance(reply, StoreFull)), *replies]:
            if isinstance(reply, StoreError):
                raise reply
        return {
            item.lease: word.decode()
            for (_, block), words in zip(blocks, replies, strict=True)
            for item, word in zip(block, words, strict=True)
        }

    async def wait_for_work(self, model: str, timeout_seconds: float) -> bool:
        """Block until the model's doorbell rings; False when it did not ring within the time."""
        return await self.connection.block_pop([keys.wake_key(model)], timeout_seconds) is not None

    async def reap(self, models: Sequence[str], limit: int = 100) -> dict[str, Reaped]:
        """Take back the jobs of these models whose lease ran out, in one round trip."""
        error = JobError(
            ErrorCode.WORKER_LOST, f"Its worker died {MAX_REDELIVERIES + 1} times in a row while running this job."
        )
        outcome = Outcome(error=error).encode()
        replies = await self.connection.run(
            *(
                Call(self._clock_ms(), model, limit, MAX_REDELIVERIES, outcome, codec.VERSION, script="reap")
                for model in models
            )
        )
        return {
            model: Reaped(_ids(requeued), _ids(failed))
            for model, (requeued, failed) in zip(models, replies, strict=True)
        }

    async def expire(self, job_ids: Sequence[str] = (), limit: int = 100, look_again_ms: int = 5_000) -> Swept:
        """End jobs that waited too long or were left half-written; of these ids, or of all whose time has come.

        Without ids it also drops the index entries of records that are gone.
        """
        lost = Outcome(error=JobError(ErrorCode.LOST, "No worker held it, and it waited in no queue.")).encode()
        arguments = (self._clock_ms(), limit, look_again_ms, codec.VERSION, lost, *(job_ids or ("",)))
        calls = [Call(*arguments, script="expire")]
        if not job_ids:
            calls.append(Call(self._clock_ms(), _FORGET_LIMIT, script="forget"))
        reply, *_ = await self.connection.run(*calls)
        return Swept(_ids(reply[0]), _ids(reply[1]))

    async def cancel(self, job_id: str, tenant: str) -> Canceled:
        """Cancel a job; a running one ends at once too, and its worker is told to stop."""
        (word,) = await self.connection.run(Call(self._clock_ms(), job_id, tenant, script="cancel"))
        return Canceled(word.decode())

    async def delete(self, job_id: str, tenant: str, *, force: bool) -> Deleted:
        """Forget a job; one that is not done only with `force`, which cancels it."""
        (word,) = await self.connection.run(Call(self._clock_ms(), job_id, tenant, int(force), script="delete"))
        return Deleted(word.decode())

    async def get(self, job_id: str, tenant: str) -> Inspection | None:
        """A job of this tenant, or None; one that is past its queue deadline expires by being looked at.

        Raises CodecError where the record is damaged or of a newer version.
        """
        (found,) = await self.get_many([(job_id, tenant)])
        if isinstance(found, codec.CodecError):
            raise found
        return found

    async def get_many(self, wanted: Sequence[tuple[str, str]]) -> list[Inspection | codec.CodecError | None]:
        """As `get` for pairs of id and tenant, in one round trip; a damaged record is an error in its place."""
        calls = [Call(self._clock_ms(), *one, *JOB_FIELDS, script="inspect") for one in wanted]
        replies = await self.connection.run(*calls) if calls else []
        return [inspection(job_id, reply) for (job_id, _), reply in zip(wanted, replies, strict=True)]

    async def output(self, job: Job) -> bytes | None:
        """The result payload of a succeeded job, None once its time is up."""
        if job.outcome is None:
            return None
        if job.outcome.inline is not None:
            return job.outcome.inline
        (payload,) = await self.connection.run(Call("GET", keys.output_key(job.id, job.attempt)))
        return payload if payload is None else bytes(payload)


def _cut(replies: list[Any], at: int) -> tuple[list[Any], list[Any]]:
    return replies[:at], replies[at:]


def _settle_arguments(item: Settlement) -> tuple[Any, ...]:
    match item:
        case Release(lease, delay_ms, is_loss):
            return (*lease, delay_ms, int(is_loss))
        case Retry(lease, outcome, delay_ms):
            return (*lease, delay_ms, outcome.encode())
        case Succeed(lease, outcome, output):
            return (*lease, int(output is not None), outcome.encode())
        case Fail(lease, outcome):
            return (*lease, 0, outcome.encode())


def _blocks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[i : i + _BLOCK] for i in range(0, len(items), _BLOCK)]


def _ids(raw: Iterable[bytes]) -> list[str]:
    return [item.decode() for item in raw]
