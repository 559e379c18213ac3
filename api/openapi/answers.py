"""Answers by status: what they hold and which headers they have, problems and their codes included.

It describes what handlers and `api.problems` write.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from api.facade import errors
from api.intake.media import MSGPACK
from api.openapi.schemas import Schema, ref
from api.problems import MEDIA_TYPE, PROBLEMS
from jobs.errors import ERROR_KINDS

_TEXT: Final[Schema] = {"type": "string"}
_BINARY: Final[Schema] = {"type": "string", "format": "binary"}
_JOB: Final = {"application/json": {"schema": ref("Job")}}
_RESULT: Final = {
    "application/json": {"schema": ref("Output")},
    **{media: {"schema": _BINARY} for media in ("application/octet-stream", *MSGPACK, "application/x-npy")},
}

CONTENTS: Final[Mapping[str, dict[str, Any]]] = MappingProxyType(
    {
        "job": _JOB,
        "job or receipt": {"application/json": {"schema": {"anyOf": [ref("Job"), ref("JobReceipt")]}}},
        "result": _RESULT,
        "events": {"text/event-stream": {}},
        "yes": {"text/plain": {"schema": {"type": "string", "maxLength": 0}}},
        "asset": {media: {"schema": _BINARY} for media in ("text/javascript", "text/css", "image/png")},
        "html": {"text/html": {"schema": _TEXT}},
        "infer": {
            "application/json": {"schema": ref("InferAnswer")},
            "application/octet-stream": {"schema": _BINARY},
        },
        **{
            name: {"application/json": {"schema": ref(name)}}
            for name in (
                *("JobPage", "Batch", "Deliveries", "Redelivered", "Model", "Models", "Live", "Ready", "Product"),
                *("ServerMetadata", "ModelMetadata", "ModelConfig", "Statistics", "Index"),
            )
        },
    }
)
"""What an answer can hold, by the name that the tables of routes use."""

_DESCRIPTIONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        200: "As asked for",
        201: "The job is done",
        202: "The job is not done yet",
        204: "Nothing is left of it, or nothing is left to tell",
        207: "Some are not stored; each has its own status",
        304: "What the client has is current",
        307: "The documentation",
    }
)
_ALWAYS: Final = {"X-Request-Id": {"schema": _TEXT, "description": "The request's id, also in the log"}}
_HEADERS: Final[Mapping[str, dict[str, Any]]] = MappingProxyType(
    {
        "job": {
            "ETag": {"schema": _TEXT, "description": "Changes with the job's state"},
            "Location": {"schema": _TEXT, "description": "The job, where this request made it"},
            "Retry-After": {"schema": _TEXT, "description": "Seconds to wait before asking again, while not done"},
            "Idempotent-Replayed": {"schema": _TEXT, "description": "true: an earlier request of this key made it"},
            "Preference-Applied": {"schema": _TEXT, "description": "Which preference was honoured"},
        },
        "job or receipt": {
            "ETag": {"schema": _TEXT, "description": "Changes with the job's state"},
            "Retry-After": {"schema": _TEXT, "description": "Seconds to wait before asking again, while not done"},
        },
        "result": {
            "Content-Disposition": {"schema": _TEXT, "description": "attachment, with a file name for the form"},
            "ETag": {"schema": _TEXT, "description": "Strong: a result never changes"},
            "Inference-Header-Content-Length": {"schema": _TEXT, "description": "Length of the JSON before raw bytes"},
        },
        "infer": {
            "X-Job-Id": {"schema": _TEXT, "description": "The job behind the call"},
            "Inference-Header-Content-Length": {"schema": _TEXT, "description": "Length of the JSON before raw bytes"},
            "Content-Encoding": {"schema": _TEXT, "description": "gzip or deflate, where the client accepts it"},
        },
        "Batch": {"Retry-After": {"schema": _TEXT, "description": "Seconds after which those refused may have room"}},
        "JobPage": {"Link": {"schema": _TEXT, "description": "The next page"}},
    }
)
_RETRY_AFTER: Final = {"Retry-After": {"schema": _TEXT, "description": "Seconds to wait before trying again"}}
_OF_STATUS: Final[Mapping[int, dict[str, Any]]] = MappingProxyType(
    {
        304: {"ETag": {"schema": _TEXT, "description": "Of what the client has"}},
        307: {"Location": {"schema": _TEXT, "description": "Where the documentation is"}},
        401: {"WWW-Authenticate": {"schema": _TEXT, "description": "How to give a key: Bearer"}},
        415: {"Accept-Encoding": {"schema": _TEXT, "description": "How a body may be encoded, where that was wrong"}},
        429: _RETRY_AFTER,
        503: _RETRY_AFTER,
    }
)
_METERED: Final = {
    "RateLimit": {"schema": _TEXT, "description": "What is left of the tenant's quotas, or of the limit that was met"},
    "RateLimit-Policy": {"schema": _TEXT, "description": "These quotas in whole"},
}
_OF_CALLS: Final = {"X-Job-Id": {"schema": _TEXT, "description": "The job behind the call, where there is one"}}


def answer(status: int, shows: str | None, *, is_facade: bool, is_metered: bool, is_call: bool) -> dict[str, Any]:
    """The description of one status; `shows` names what it holds, None for nothing or a problem.

    `is_metered` is of what uses up quotas, `is_call` of what waits for its job.
    """
    headers = {**_ALWAYS, **_OF_STATUS.get(status, {}), **(_METERED if is_metered else {})}
    if shows is not None:
        headers |= _HEADERS.get(shows, {})
        return {"description": _text(status), "headers": headers, "content": CONTENTS[shows]}
    if status < 400:
        return {"description": _text(status), "headers": headers}
    described = _facade_problem(status) if is_facade else _problem(status)
    return {"headers": headers | (_OF_CALLS if is_call else {}), **described}


def _text(status: int) -> str:
    return _DESCRIPTIONS.get(status, "Not now")


def _problem(status: int) -> dict[str, Any]:
    codes = [code.value for code, kind in PROBLEMS.items() if kind.status == status]
    titles = {kind.title for kind in PROBLEMS.values() if kind.status == status}
    schema = {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail", "request_id"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"const": status},
            "code": {"enum": codes},
            "detail": _TEXT,
            "request_id": _TEXT,
        },
    }
    words = "; ".join(sorted(titles))
    return {"description": f"A problem (RFC 9457): {words}", "content": {MEDIA_TYPE: {"schema": schema}}}


def _facade_problem(status: int) -> dict[str, Any]:
    codes = {code.value for code, kind in PROBLEMS.items() if errors.status_of(kind.status) == status}
    codes |= {code.value for code, kind in ERROR_KINDS.items() if kind.status == status}
    schema = {
        "type": "object",
        "required": ["error", "code"],
        "properties": {"error": _TEXT, "code": {"enum": sorted(codes)}},
    }
    return {"description": "Refused or failed, in Triton's form", "content": {errors.MEDIA_TYPE: {"schema": schema}}}
