"""A job as the api and the workers see it: what was asked, how far it is, what came out.

It owns the stored form of each; it must not talk to Redis and keeps no clock.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from jobs import codec
from jobs.datatypes import Datatype
from jobs.errors import JobError
from jobs.spec import OutputKind
from jobs.state import State
from jobs.webhook import DeliveryStatus, Webhook

Scalar = bool | int | float | str

LOCAL_TENANT: Final = "local"
"""The owner of every job while no API keys are in use."""


class Priority(StrEnum):
    """A head start in the queue, never a separate queue: nothing can starve."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    def head_start_ms(self, step_ms: int) -> int:
        """How much earlier than it was the job counts as submitted."""
        return {Priority.HIGH: step_ms, Priority.NORMAL: 0, Priority.LOW: -step_ms}[self]


class InputSource(StrEnum):
    """What the payload holds for an input."""

    TENSOR = "tensor"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class InputPart:
    """One input's place in the payload, which is the concatenation of all parts in this order.

    A tensor's `shape` is one item's, without the batch dimension, unless the request has `rows`: then its first
    dimension is the number of rows. An upload (a picture, a text, a file) has no datatype and no shape yet.
    """

    name: str
    source: InputSource
    nbytes: int
    datatype: Datatype | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output to compute; `classes` > 0 asks the engine for that many best classes instead of the numbers."""

    name: str
    classes: int = 0


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What was submitted, checked and complete; it never changes."""

    model: str
    inputs: tuple[InputPart, ...]
    outputs: tuple[RequestedOutput, ...]
    model_version: str = ""
    rows: int | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    request_id: str = ""
    priority: Priority = Priority.NORMAL
    queue_ttl_ms: int = 3_600_000
    timeout_ms: int = 60_000
    max_failures: int = 3
    result_ttl_ms: int = 86_400_000
    run_at_ms: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    webhook: Webhook | None = None

    def encode(self) -> bytes:
        """The stored form; jobs without a webhook pay nothing for there being such a thing."""
        plain = _members(self)
        plain["inputs"] = [_members(part) for part in self.inputs]
        plain["outputs"] = [_members(output) for output in self.outputs]
        if self.webhook is None:
            del plain["webhook"]
        else:
            plain["webhook"] = asdict(self.webhook)
        return codec.encode(plain)

    @classmethod
    def decode(cls, data: bytes) -> "JobRequest":
        """The inverse of `encode`; raises CodecError."""
        return _request_known(data) if len(data) <= _LONGEST_KNOWN_BYTES else _request(data)


def _members(record: Any) -> dict[str, Any]:
    """The members of a record with slots, as they are; `asdict` would copy each deeply, in five times the time."""
    return {name: getattr(record, name) for name in record.__slots__}


def _request(data: bytes) -> JobRequest:
    plain = codec.decode(data)
    with codec.reading("request"):
        plain["inputs"] = tuple(_input_part(item) for item in plain["inputs"])
        plain["outputs"] = tuple(RequestedOutput(**item) for item in plain["outputs"])
        plain["priority"] = Priority(plain["priority"])
        if "webhook" in plain:
            plain["webhook"] = Webhook.from_plain(plain["webhook"])
        return JobRequest(**plain)


_LONGEST_KNOWN_BYTES: Final = 1024
_request_known = lru_cache(maxsize=256)(_request)
"""Most jobs of a model ask for the same, payload and id aside: what was read once is not read again."""


def _input_part(plain: Mapping[str, Any]) -> InputPart:
    datatype = plain["datatype"]
    return InputPart(
        name=plain["name"],
        source=InputSource(plain["source"]),
        nbytes=plain["nbytes"],
        datatype=Datatype(datatype) if datatype else None,
        shape=tuple(plain["shape"]),
    )


@dataclass(frozen=True, slots=True)
class OutputPart:
    """One output's place in the result payload, which is the concatenation of all parts in this order."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    nbytes: int
    kind: OutputKind = OutputKind.TENSOR


@dataclass(frozen=True, slots=True)
class Timings:
    """Where an attempt's time went, in milliseconds with fractions."""

    prepare_ms: float = 0.0
    batch_wait_ms: float = 0.0
    inference_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to: outputs, or an error. `inline` holds the result payload where it is small."""

    error: JobError | None = None
    outputs: tuple[OutputPart, ...] = ()
    inline: bytes | None = None
    model_version: str = ""
    timings: Timings = Timings()
    batch_size: int = 0
    batch_id: str = ""

    def encode(self) -> bytes:
        """The stored form."""
        plain = _members(self)
        plain["error"] = self.error.to_plain() if self.error else None
        plain["outputs"] = [_members(part) for part in self.outputs]
        plain["timings"] = _members(self.timings)
        return codec.encode(plain)

    @classmethod
    def decode(cls, data: bytes) -> "Outcome":
        """The inverse of `encode`; raises CodecError."""
        plain = codec.decode(data)
        with codec.reading("outcome"):
            plain["error"] = JobError.from_plain(plain["error"]) if plain["error"] else None
            plain["outputs"] = tuple(_output_part(item) for item in plain["outputs"])
            plain["timings"] = Timings(**plain["timings"])
            return cls(**plain)


def _output_part(plain: Mapping[str, Any]) -> OutputPart:
    return OutputPart(
        name=plain["name"],
        datatype=Datatype(plain["datatype"]),
        shape=tuple(plain["shape"]),
        nbytes=plain["nbytes"],
        kind=OutputKind(plain["kind"]),
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One job's record at one instant; instants are Unix milliseconds of Redis' clock, 0 = not yet.

    `webhook_status` and `webhook_attempts` are of the latest message (None: there is none). While it is being tried,
    the result is kept beyond its time (`is_result_held`).
    """

    id: str
    tenant: str
    state: State
    request: JobRequest
    attempt: int
    failures: int
    redeliveries: int
    created_ms: int
    due_ms: int
    queue_deadline_ms: int
    started_ms: int
    finished_ms: int
    outcome: Outcome | None
    webhook_status: DeliveryStatus | None = None
    webhook_attempts: int = 0
    is_result_held: bool = False

    @property
    def result_expires_ms(self) -> int:
        """When the result of a terminal job is forgotten, unless it is held then; 0 before it is terminal."""
        return self.finished_ms + self.request.result_ttl_ms if self.finished_ms else 0

    def has_expired(self, now_ms: int) -> bool:
        """Whether the result's time is up."""
        return now_ms >= self.result_expires_ms and not self.is_result_held

    @classmethod
    def from_hash(cls, job_id: str, fields: Mapping[bytes, bytes]) -> "Job":
        """The record from its Redis hash; raises CodecError where it is damaged or of a newer version."""
        with codec.reading("record"):
            outcome, status = fields.get(b"outcome"), fields.get(b"webhook_status")
            return cls(
                id=job_id,
                tenant=fields[b"tenant"].decode(),
                state=State(fields[b"state"].decode()),
                request=JobRequest.decode(fields[b"request"]),
                outcome=Outcome.decode(outcome) if outcome else None,
                webhook_status=DeliveryStatus(status.decode()) if status else None,
                is_result_held=b"webhook_holds" in fields,
                **{name: int(fields.get(name.encode(), 0)) for name in _NUMBERS},
            )


_NUMBERS: Final = (
    "attempt",
    "failures",
    "redeliveries",
    "created_ms",
    "due_ms",
    "queue_deadline_ms",
    "started_ms",
    "finished_ms",
    "webhook_attempts",
)

JOB_FIELDS: Final = ("tenant", "state", "request", "outcome", "webhook_status", "webhook_holds", *_NUMBERS)
"""The fields of a record that `Job.from_hash` reads; the others serve the scripts."""
