"""What the api answers when it does not do what was asked: RFC 9457 problems with stable codes.

It owns the table of codes and their wire form; it must not decide when something is a problem.
"""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobs.connection import StoreError, StoreFull, StoreUnavailable

MEDIA_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:inferq:problem:"
_QUOTA_EXCEEDED: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_REDUCED_CAPACITY: Final = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

_LINGER_SECONDS: Final = 5.0
_LINGER_BYTES: Final = 256 * 1024 * 1024


class ProblemCode(StrEnum):
    """What was wrong; part of the public contract, never renamed."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    FOREIGN_PAGE = "foreign_page"
    MALFORMED_BODY = "malformed_body"
    INCOMPLETE_BODY = "incomplete_body"
    NOT_FOUND = "not_found"
    UNKNOWN_JOB = "unknown_job"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_VERSION = "unknown_version"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    BODY_TOO_SLOW = "body_too_slow"
    NOT_READY = "not_ready"
    NOT_DONE = "not_done"
    NO_RESULT = "no_result"
    NO_DELIVERIES = "no_deliveries"
    RESULT_EXPIRED = "result_expired"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    INVALID_OPTION = "invalid_option"
    INVALID_PARAMETER = "invalid_parameter"
    MODEL_NOT_SERVED = "model_not_served"
    MISSING_INPUT = "missing_input"
    UNKNOWN_INPUT = "unknown_input"
    DUPLICATE_INPUT = "duplicate_input"
    UNKNOWN_OUTPUT = "unknown_output"
    INVALID_OUTPUT = "invalid_output"
    INVALID_TENSOR = "invalid_tensor"
    INVALID_IMAGE = "invalid_image"
    TOO_MANY_PIXELS = "too_many_pixels"
    INVALID_TEXT = "invalid_text"
    EMPTY_UPLOAD = "empty_upload"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    QUOTA_EXCEEDED = "quota_exceeded"
    TOO_MANY_UPLOADS = "too_many_uploads"
    TOO_MANY_RESULTS = "too_many_results"
    INTERNAL_ERROR = "internal_error"
    NOT_SUPPORTED = "not_supported"
    QUEUE_FULL = "queue_full"
    STORE_FULL = "store_full"
    STORE_UNAVAILABLE = "store_unavailable"
    NO_MODELS_YET = "no_models_yet"
    SHUTTING_DOWN = "shutting_down"


class Kind(NamedTuple):
    """What all problems of one code share; `retry_after_seconds` 0 means that waiting does not help.

    `type` is the registered one where the code is a case of it, else '' and the code's own.
    """

    status: int
    title: str
    retry_after_seconds: int = 0
    type: str = ""


PROBLEMS: Final[Mapping[ProblemCode, Kind]] = MappingProxyType(
    {
        ProblemCode.INVALID_REQUEST: Kind(400, "The request is not valid"),
        ProblemCode.MALFORMED_BODY: Kind(400, "The body can't be parsed"),
        ProblemCode.INCOMPLETE_BODY: Kind(400, "The body ended early"),
        ProblemCode.NOT_READY: Kind(400, "It is not ready"),
        ProblemCode.UNAUTHENTICATED: Kind(401, "A valid API key is needed"),
        ProblemCode.FORBIDDEN: Kind(403, "The API key does not permit this"),
        ProblemCode.FOREIGN_PAGE: Kind(403, "A foreign web page may have made this request"),
        ProblemCode.NOT_FOUND: Kind(404, "There is nothing at this path"),
        ProblemCode.UNKNOWN_JOB: Kind(404, "There is no such job"),
        ProblemCode.UNKNOWN_MODEL: Kind(404, "There is no such model"),
        ProblemCode.UNKNOWN_VERSION: Kind(404, "The model has no such version"),
        ProblemCode.METHOD_NOT_ALLOWED: Kind(405, "This path does not take this method"),
        ProblemCode.NOT_ACCEPTABLE: Kind(406, "The answer has no such form"),
        ProblemCode.BODY_TOO_SLOW: Kind(408, "The body arrived too slowly"),
        ProblemCode.NOT_DONE: Kind(409, "The job is not done"),
        ProblemCode.NO_RESULT: Kind(409, "The job ended without a result"),
        ProblemCode.NO_DELIVERIES: Kind(409, "The job has no messages"),
        ProblemCode.RESULT_EXPIRED: Kind(410, "The result's time is up"),
        ProblemCode.PAYLOAD_TOO_LARGE: Kind(413, "The body is too large"),
        ProblemCode.UNSUPPORTED_MEDIA_TYPE: Kind(415, "This type of body is not supported"),
        ProblemCode.INVALID_OPTION: Kind(422, "An option is not valid"),
        ProblemCode.INVALID_PARAMETER: Kind(422, "A parameter is not valid"),
        ProblemCode.MODEL_NOT_SERVED: Kind(422, "No jobs are accepted for this model"),
        ProblemCode.MISSING_INPUT: Kind(422, "An input is missing"),
        ProblemCode.UNKNOWN_INPUT: Kind(422, "The model has no such input"),
        ProblemCode.DUPLICATE_INPUT: Kind(422, "An input is given twice"),
        ProblemCode.UNKNOWN_OUTPUT: Kind(422, "The model has no such output"),
        ProblemCode.INVALID_OUTPUT: Kind(422, "An output can't be computed like this"),
        ProblemCode.INVALID_TENSOR: Kind(422, "A tensor does not fit the model"),
        ProblemCode.INVALID_IMAGE: Kind(422, "The upload is not an image that can be decoded"),
        ProblemCode.TOO_MANY_PIXELS: Kind(422, "The image has too many pixels"),
        ProblemCode.INVALID_TEXT: Kind(422, "The text is not UTF-8"),
        ProblemCode.EMPTY_UPLOAD: Kind(422, "The upload is empty"),
        ProblemCode.IDEMPOTENCY_CONFLICT: Kind(422, "The idempotency key stands for another request"),
        ProblemCode.TOO_MANY_ATTEMPTS: Kind(429, "Too many failed attempts", 60),
        ProblemCode.QUOTA_EXCEEDED: Kind(429, "Your quota is used up", 30, _QUOTA_EXCEEDED),
        ProblemCode.INTERNAL_ERROR: Kind(500, "The server failed"),
        ProblemCode.TOO_MANY_UPLOADS: Kind(503, "Too many uploads at once", 1, _REDUCED_CAPACITY),
        ProblemCode.TOO_MANY_RESULTS: Kind(503, "Too many results at once", 2, _REDUCED_CAPACITY),
        ProblemCode.NOT_SUPPORTED: Kind(501, "This is not supported here"),
        ProblemCode.QUEUE_FULL: Kind(503, "The queue is full", 5, _REDUCED_CAPACITY),
        ProblemCode.STORE_FULL: Kind(503, "The store is full", 10, _REDUCED_CAPACITY),
        ProblemCode.STORE_UNAVAILABLE: Kind(503, "The store is not reachable", 2),
        ProblemCode.NO_MODELS_YET: Kind(503, "No model is known yet", 2),
        ProblemCode.SHUTTING_DOWN: Kind(503, "The server is shutting down", 1),
    }
)


class Problem(Exception):
    """An answer that says why not. `detail` is one sentence for this request, `members` extend the JSON object.

    `close` ends the connection after the answer, for requests whose body has not been read to its end.
    """

    def __init__(
        self,
        code: ProblemCode,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
        **members: Any,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.close = close
        self.members = members

    @property
    def status(self) -> int:
        """The HTTP status."""
        return PROBLEMS[self.code].status

    @property
    def title(self) -> str:
        """What all problems of this code have in common."""
        return PROBLEMS[self.code].title

    @property
    def retry_after_seconds(self) -> int:
        """When to try again; 0 where waiting does not help."""
        return int(self.headers.get("Retry-After", PROBLEMS[self.code].retry_after_seconds))

    def to_plain(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "type": PROBLEMS[self.code].type or f"{_TYPE}{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code.value,
            "detail": self.detail,
            **self.members,
        }


def from_store(exc: StoreError) -> Problem:
    """What a failure of the store means to a client; what Redis said belongs in the log, not in the answer."""
    if isinstance(exc, StoreFull):
        return Problem(ProblemCode.STORE_FULL, "The store has no room for another job. Try again later.")
    if isinstance(exc, StoreUnavailable):
        return Problem(ProblemCode.STORE_UNAVAILABLE, "The store does not answer at the moment. Try again.")
    return Problem(ProblemCode.STORE_UNAVAILABLE, "The store refuses to work. The server's log says why.")


def response(problem: Problem, request_id: str) -> Response:
    """The problem as `application/problem+json`; `request_id` lets the client and the log speak of the same request."""
    return respond(problem, {**problem.to_plain(), "request_id": request_id}, MEDIA_TYPE)


def respond(problem: Problem, content: Mapping[str, Any], media_type: str) -> Response:
    """The answer to a problem with this JSON content: its status, headers and whether the connection ends."""
    headers = dict(problem.headers)
    if problem.retry_after_seconds:
        headers["Retry-After"] = str(problem.retry_after_seconds)
    body = orjson.dumps(content)
    if not problem.close:
        return Response(body, problem.status, headers, media_type)
    return _LastResponse(body, problem.status, {**headers, "Connection": "close"}, media_type)


class _LastResponse(Response):
    """An answer to a request that is still being sent.

    Closing a socket with unread bytes makes the kernel reset the connection, and the client then never sees the
    answer. So the answer goes out first, then what still arrives is thrown away, within bounds.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _discard(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    left = _LINGER_BYTES
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))
    except TimeoutError:
        return
