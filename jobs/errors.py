"""How a job can fail: stable codes, who is to blame, whether trying again can help.

It owns the table and the exception classes that carry a code; it must not know how HTTP or gRPC spell them,
except for the status that the synchronous façade answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Final


class ErrorCode(StrEnum):
    """Why a job ended without a result; part of the public contract, never renamed."""

    INVALID_INPUT = "invalid_input"
    MODEL_REJECTED = "model_rejected"
    MODEL_NOT_FOUND = "model_not_found"
    ENGINE_TIMEOUT = "engine_timeout"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_ERROR = "engine_error"
    WORKER_LOST = "worker_lost"
    OUTPUT_TOO_LARGE = "output_too_large"
    LOST = "lost"
    CANCELED = "canceled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What one code means: a short title, the synchronous HTTP status, and whether submitting again can help."""

    title: str
    status: int
    retryable: bool


ERROR_KINDS: Final[Mapping[ErrorCode, ErrorKind]] = MappingProxyType(
    {
        ErrorCode.INVALID_INPUT: ErrorKind("The input could not be decoded", 400, False),
        ErrorCode.MODEL_REJECTED: ErrorKind("The model rejected the input", 400, False),
        ErrorCode.MODEL_NOT_FOUND: ErrorKind("The engine does not serve this model", 404, False),
        ErrorCode.ENGINE_TIMEOUT: ErrorKind("The engine did not answer in time", 504, True),
        ErrorCode.ENGINE_UNAVAILABLE: ErrorKind("The engine is not reachable", 503, True),
        ErrorCode.ENGINE_ERROR: ErrorKind("The engine failed", 500, True),
        ErrorCode.WORKER_LOST: ErrorKind("The workers that ran this job died", 500, True),
        ErrorCode.OUTPUT_TOO_LARGE: ErrorKind("The output is larger than may be stored", 500, False),
        ErrorCode.LOST: ErrorKind("The job's stored data is incomplete", 500, True),
        ErrorCode.CANCELED: ErrorKind("The job was canceled", 499, False),
        ErrorCode.EXPIRED: ErrorKind("The job waited longer than its queue time", 504, True),
    }
)


@dataclass(frozen=True, slots=True)
class JobError:
    """A failure as plain data: it can be stored, sent and read by any process."""

    code: ErrorCode
    detail: str

    @property
    def kind(self) -> ErrorKind:
        """The row of the table that this error belongs to."""
        return ERROR_KINDS[self.code]

    def to_plain(self) -> dict[str, Any]:
        """As a dict of strings."""
        return {"code": self.code.value, "detail": self.detail}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "JobError":
        """The inverse of `to_plain`."""
        return cls(ErrorCode(plain["code"]), plain["detail"])


class JobFailure(Exception):
    """One job can't be answered; subclasses say who is to blame. `detail` is one sentence for the job's owner."""

    code: ClassVar[ErrorCode]

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    @property
    def error(self) -> JobError:
        """This failure as plain data."""
        return JobError(self.code, self.detail)


class InvalidInput(JobFailure):
    """The request is to blame: an upload that can't be decoded into what the model wants."""

    code = ErrorCode.INVALID_INPUT


class ModelRejected(JobFailure):
    """The request is to blame: the model or the engine refused these values (gRPC INVALID_ARGUMENT and kin)."""

    code = ErrorCode.MODEL_REJECTED


class ModelNotFound(JobFailure):
    """The engine answers, but does not serve this model or version (gRPC NOT_FOUND, UNIMPLEMENTED)."""

    code = ErrorCode.MODEL_NOT_FOUND


class EngineTimeout(JobFailure):
    """The engine did not answer before the attempt's deadline (gRPC DEADLINE_EXCEEDED)."""

    code = ErrorCode.ENGINE_TIMEOUT


class EngineUnavailable(JobFailure):
    """The engine can't be reached or has no room (gRPC UNAVAILABLE, RESOURCE_EXHAUSTED): try later, count nothing."""

    code = ErrorCode.ENGINE_UNAVAILABLE


class EngineLost(EngineUnavailable):
    """The engine went away in the middle of the call, without a farewell: perhaps the call is what ended it."""


class EngineFailed(JobFailure):
    """The engine is to blame: it answered with a fault of its own, or with outputs that make no sense."""

    code = ErrorCode.ENGINE_ERROR


class OutputTooLarge(JobFailure):
    """The model answered with more bytes than a result may have."""

    code = ErrorCode.OUTPUT_TOO_LARGE
