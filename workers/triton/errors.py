"""The one place where a gRPC status becomes a failure of a job.

It owns the table and the wording for the job's owner; it must not decide what happens to the job.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import grpc

from jobs.errors import (
    EngineFailed,
    EngineLost,
    EngineTimeout,
    EngineUnavailable,
    JobFailure,
    ModelNotFound,
    ModelRejected,
    OutputTooLarge,
)

_Status = grpc.StatusCode
_FULL: Final = _Status.RESOURCE_EXHAUSTED

FAILURES: Final[Mapping[grpc.StatusCode, type[JobFailure]]] = MappingProxyType(
    {
        _Status.DEADLINE_EXCEEDED: EngineTimeout,
        _Status.UNAVAILABLE: EngineUnavailable,
        _Status.RESOURCE_EXHAUSTED: EngineUnavailable,
        _Status.INVALID_ARGUMENT: ModelRejected,
        _Status.FAILED_PRECONDITION: ModelRejected,
        _Status.OUT_OF_RANGE: ModelRejected,
        _Status.NOT_FOUND: ModelNotFound,
        _Status.UNIMPLEMENTED: ModelNotFound,
    }
)
"""What is not listed is the engine's own fault: INTERNAL and UNKNOWN, in which Python models raise, above all.

CANCELLED is not listed either. It is heard only where we did not cancel; a model that says so of its own accord has
failed, and counting that bounds the retries.
"""


@dataclass(frozen=True, slots=True)
class _Exception:
    """A status that means something else when its text matches."""

    status: grpc.StatusCode
    text: re.Pattern[str]
    failure: type[JobFailure]
    detail: str | None = None


_TOO_LARGE_REQUEST: Final = "The request is larger than the engine's link allows."
_TOO_LARGE_RESPONSE: Final = "The model's answer is larger than the engine's link allows."

# Texts of gRPC's own size checks (prefixed with the side that refused) and of Triton 2.51.
_EXCEPTIONS: Final = (
    _Exception(_FULL, re.compile("CLIENT: Received message larger"), OutputTooLarge, _TOO_LARGE_RESPONSE),
    _Exception(_FULL, re.compile("CLIENT: Sent message larger"), ModelRejected, _TOO_LARGE_REQUEST),
    _Exception(_FULL, re.compile("Received message larger"), ModelRejected, _TOO_LARGE_REQUEST),
    _Exception(_FULL, re.compile("Sent message larger"), OutputTooLarge, _TOO_LARGE_RESPONSE),
    # The `timeout` parameter ran out in the queue of the model's batcher.
    _Exception(_Status.UNAVAILABLE, re.compile("Request timeout expired"), EngineTimeout),
    # The connection ended under the call. A server that shuts down in order sends GOAWAY first.
    _Exception(
        _Status.UNAVAILABLE,
        re.compile(r"^(?!.*GOAWAY).*(Socket closed|reset by peer|Broken pipe|End of TCP stream)", re.IGNORECASE),
        EngineLost,
    ),
    # A server that shuts down cuts its calls without more words, and a proxy resets their streams.
    _Exception(_Status.CANCELLED, re.compile(r"^(CANCELLED)?$|RST_STREAM|^Cancelling all calls"), EngineUnavailable),
    # gRPC's own words for a call that its deadline ended while it was being begun.
    _Exception(_Status.INTERNAL, re.compile("^Internal error from Core"), EngineTimeout),
    # The repository has the model, but it is being reloaded, or the engine is shutting down.
    _Exception(_Status.NOT_FOUND, re.compile("has no available versions"), EngineUnavailable),
)

_REFUSALS: Final[Mapping[str, grpc.StatusCode]] = MappingProxyType(
    {
        "Request for unknown model": _Status.NOT_FOUND,
        "Exceeds maximum queue size": _Status.UNAVAILABLE,
        "not ready": _Status.UNAVAILABLE,
        "Server exiting": _Status.UNAVAILABLE,
    }
)
"""The statuses that Triton would have sent with these words, had it not put them into a stream."""

_FIXED: Final[Mapping[type[JobFailure], str]] = MappingProxyType(
    {
        EngineTimeout: "The engine did not answer in time.",
        EngineUnavailable: "The engine can't be reached, or has no room for the request.",
        EngineLost: "The engine went away in the middle of the call.",
    }
)
"""For these the status says all; their texts name addresses and sockets."""

MAX_DETAIL_LENGTH: Final = 300

_NOISE: Final = re.compile(
    r"""\[request\ id:\ [^\]]*\]\s*                                  # ours, and known
      | \s*NOTE:.*                                                   # advice for the model's author
      | ^Failed\ to\ process\ the\ request\(s\)\ for\ model\ '[^']*',\ message:\s*
    """,
    re.VERBOSE,
)
_PATH: Final = re.compile(r"(?:file://)?(?<![\w.])(?:/[\w.@+~-]+){2,}/?|ipv[46]:\S+")
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\xa0-\U0010ffff]+")


def failure_of(status: grpc.StatusCode, text: str | None) -> JobFailure:
    """The failure that a status and its text mean, with one sentence for the job's owner.

    The sentence holds no file paths, addresses or stack traces; chain the RPC's exception to keep the whole text.
    """
    text = text or ""
    for exception in _EXCEPTIONS:
        if exception.status is status and exception.text.search(text):
            failure = exception.failure
            return failure(exception.detail or _FIXED[failure])
    failure = FAILURES.get(status, EngineFailed)
    return failure(_FIXED.get(failure) or sentence(text) or f"The engine answered {status.name}.")


def sentence(text: str) -> str:
    """The first line of an engine's text without what concerns only its operator; empty if nothing is left."""
    first = text.strip().partition("\n")[0]
    line = " ".join(_UNPRINTABLE.sub(" ", _PATH.sub("…", _NOISE.sub("", first))).split())
    return line if len(line) <= MAX_DETAIL_LENGTH else line[: MAX_DETAIL_LENGTH - 1] + "…"


def stream_failure_of(text: str, *, has_run: bool) -> JobFailure:
    """The failure that an error message in a stream means; it carries no status.

    From a model that runs (`has_run`) it is the engine's own fault, whatever status the model gave it; otherwise the
    request was not let through to the model.
    """
    if has_run:
        return failure_of(_Status.UNKNOWN, text)
    status = _Status.INVALID_ARGUMENT
    for words, meant in _REFUSALS.items():
        if words in text:
            status = meant
    return failure_of(status, text)
