"""What the scripts reply, as the answers of the store's methods.

It owns how replies are read; it must not send anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from jobs import codec
from jobs.connection import StoreError, StoreFull, StoreUnavailable
from jobs.events import Inspection, Standing, SubmitReply, Submitted
from jobs.record import JOB_FIELDS, Job

_JOB_FIELDS: Final = tuple(name.encode() for name in JOB_FIELDS)


def submit_answer(
    written: Any, reply: Any, tenant: str, standings: Mapping[bytes, Standing]
) -> SubmitReply | StoreFull:
    """What became of a job, from the replies to its payload and to its script."""
    word, job_id, created_ms = reply[0].decode(), reply[1].decode(), int(reply[2]) if len(reply) > 2 else 0
    if word != "NO_PAYLOAD":
        return SubmitReply(Submitted(word), job_id, standings.get(tenant.encode()), created_ms)
    if isinstance(written, StoreFull):
        return written
    if isinstance(written, StoreError):
        raise written
    raise StoreUnavailable("The payload was gone before the job could be stored; submit it again")


def with_standings(blocks: Sequence[Any]) -> list[tuple[Any, Mapping[bytes, Standing]]]:
    """The replies to submissions, each with how its block left the tenants; raises the first refusal of a block."""
    replies: list[tuple[Any, Mapping[bytes, Standing]]] = []
    for block in blocks:
        if isinstance(block, StoreError):
            raise block
        *words, told = block
        standings = {told[i]: Standing(*told[i + 1 : i + 4]) for i in range(0, len(told), 4)}
        replies += [(word, standings) for word in words]
    return replies


def inspection(job_id: str, reply: Any) -> Inspection | codec.CodecError | None:
    """A job and its place in the queue; None for an unknown one, an error for one that can't be read."""
    if not reply:
        return None
    values, rank, depth, now_ms = reply
    fields = dict(zip(_JOB_FIELDS, values[-len(_JOB_FIELDS) :], strict=True))
    try:
        job = Job.from_hash(job_id, {name: value for name, value in fields.items() if value is not None})
    except codec.CodecError as exc:
        return exc
    return Inspection(_without_late_result(job, int(now_ms)), rank, depth, int(now_ms))


def _without_late_result(job: Job, now_ms: int) -> Job:
    """The job as it is shown once its result's time is up: an inline one lives as long as the record."""
    if job.outcome is None or job.outcome.inline is None or not job.has_expired(now_ms):
        return job
    return replace(job, outcome=replace(job.outcome, inline=None))


def joined(blocks: Sequence[Any]) -> list[Any]:
    """The replies of several blocks as those of one; raises the first refusal."""
    for block in blocks:
        if isinstance(block, StoreError):
            raise block
    return [reply for block in blocks for reply in block]
