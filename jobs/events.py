"""What each event of `jobs.state` takes and answers, as plain data.

It owns these shapes and the form of a new id; it must not know how anything is stored.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from jobs.ids import random_id
from jobs.record import Job, JobRequest, Outcome
from jobs.tensors import Buffer


def new_job_id() -> str:
    """A fresh id: 128 random bits as 32 lower-case hex digits."""
    return random_id()


class Lease(NamedTuple):
    """The right to settle one attempt of one job; the attempt number is the fencing token."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to store. `payload` is the concatenation of the request's parts."""

    id: str
    tenant: str
    request: JobRequest
    payload: Buffer
    idempotency_key: str = ""
    fingerprint: str = ""


class Submitted(StrEnum):
    """What became of a submission. FULL: its model's queue is; CROWDED: the service; NO_MEMORY: Redis; QUOTA_…: its
    tenant's share."""

    OK = "OK"
    REPLAYED = "REPLAYED"
    CONFLICT = "CONFLICT"
    FULL = "FULL"
    CROWDED = "CROWDED"
    NO_MEMORY = "NO_MEMORY"
    QUOTA_RATE = "QUOTA_RATE"
    QUOTA_JOBS = "QUOTA_JOBS"
    QUOTA_BYTES = "QUOTA_BYTES"


class Standing(NamedTuple):
    """What a tenant holds after a submit, the new jobs included, and by how much it is ahead of its rate."""

    jobs: int
    nbytes: int
    ahead_ms: int


class SubmitReply(NamedTuple):
    """`job_id` is the stored job's: the first one's where an idempotency key was seen before.

    `standing` is the tenant's after the block, None where it was not looked at. `created_ms` is when the job was
    stored, by Redis' clock; 0 unless `word` is OK.
    """

    word: Submitted
    job_id: str
    standing: Standing | None = None
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job in hand for one attempt."""

    lease: Lease
    request: JobRequest
    failures: int
    redeliveries: int
    created_ms: int
    due_ms: int


class Suspects(IntEnum):
    """What a claim does where it comes upon a job that may be what kills workers."""

    AWAIT = 0
    """Take nothing more: the caller is busy with other jobs of the model, and becomes idle so."""
    TAKE = 1
    """Take it, if nothing was taken before it."""
    LEAVE = 2
    """Leave it to other workers."""


class Claim(NamedTuple):
    """What a claim gave; `next_due_ms` is when the next scheduled job of the model becomes due, 0 for none.

    `dropped` queue entries belonged to no sound job; `left` ones wait for a process that reads their
    newer version, or for another worker. `awaits`: the next one is a suspect, which is taken when the caller is idle.
    """

    jobs: list[Claimed]
    now_ms: int
    next_due_ms: int
    dropped: int = 0
    left: int = 0
    awaits: bool = False


@dataclass(frozen=True, slots=True)
class Succeed:
    """End as succeeded. `output` is the result payload, None where the outcome holds it inline."""

    lease: Lease
    outcome: Outcome
    output: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End as failed."""

    lease: Lease
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Retry:
    """Back to the queue, one failure counted."""

    lease: Lease
    outcome: Outcome
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Release:
    """Back to the queue, nothing counted; `is_loss` counts a redelivery, as when its worker had died."""

    lease: Lease
    delay_ms: int = 0
    is_loss: bool = False


Settlement = Succeed | Fail | Retry | Release


class Settled(StrEnum):
    """What became of a settlement."""

    OK = "OK"
    ALREADY = "ALREADY"
    LEASE_LOST = "LEASE_LOST"


class Canceled(StrEnum):
    """What a cancel found."""

    CANCELED = "CANCELED"
    STOPPING = "STOPPING"
    DONE = "DONE"
    NOT_FOUND = "NOT_FOUND"


class Deleted(StrEnum):
    """What a delete found."""

    OK = "OK"
    NOT_DONE = "NOT_DONE"
    NOT_FOUND = "NOT_FOUND"


class Inspection(NamedTuple):
    """A job and its place in the queue at `now_ms`.

    `rank` jobs of its model stand before it (-1: it is not ready), `depth` jobs of its model are queued.
    """

    job: Job
    rank: int
    depth: int
    now_ms: int


class Reaped(NamedTuple):
    """Ids that are queued again after their worker died, and those that failed since it died too often."""

    requeued: list[str]
    failed: list[str]


class Swept(NamedTuple):
    """Ids that the sweeper ended."""

    expired: list[str]
    lost: list[str]
