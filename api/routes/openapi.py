"""How endpoints are described in OpenAPI: parameters and answers, each in one place.

It describes and never checks; the handlers are the truth.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from api.problems import MEDIA_TYPE, PROBLEMS
from jobs.apikeys import KeyScope
from jobs.state import State

_TEXT: Final = {"type": "string"}
_ID: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}

PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "job_id": {"in": "path", "required": True, "schema": _ID, "description": "The id that POST /jobs gave"},
        "name": {"in": "path", "required": True, "schema": _TEXT, "description": "The model's name"},
        "wait": {
            "in": "query",
            "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 60},
            "description": "Seconds to wait for the end, or with If-None-Match for any change",
        },
        "force": {"in": "query", "schema": {"type": "boolean"}, "description": "Cancel it first if it is not done"},
        "status": {"in": "query", "schema": {"enum": [state.value for state in State]}, "description": "Only these"},
        "model": {"in": "query", "schema": _TEXT, "description": "Only this model's"},
        "limit": {
            "in": "query",
            "schema": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
            "description": "Most jobs of one page",
        },
        "cursor": {"in": "query", "schema": _TEXT, "description": "The next_cursor of the page before"},
        "output": {"in": "query", "schema": _TEXT, "description": "Only this output"},
        "last-event-id": {"in": "header", "schema": _TEXT, "description": "The id of the last event that was seen"},
        "if-none-match": {"in": "header", "schema": _TEXT, "description": "ETags that the client has"},
        "prefer": {"in": "header", "schema": _TEXT, "description": "wait=N: answer when the job is done, or after N s"},
        "version": {"in": "path", "required": True, "schema": _TEXT, "description": "The model's version"},
        "prefer-async": {
            "in": "header",
            "schema": _TEXT,
            "description": "respond-async: answer at once with the job, and ask for its result later",
        },
        "header-length": {
            "in": "header",
            "schema": {"type": "integer", "minimum": 0},
            "description": "Length of the JSON that raw tensors follow; 0 where all of the body is the one input",
        },
        "content-encoding": {
            "in": "header",
            "schema": {"enum": ["gzip", "deflate", "identity"]},
            "description": "How the body is compressed",
        },
        "accept-encoding": {"in": "header", "schema": _TEXT, "description": "How the answer may be compressed"},
        "idempotency-key": {
            "in": "header",
            "schema": _TEXT,
            "description": "The same key and request give the first job again",
        },
    }
)

_NAMES: Final = {"prefer-async": "prefer", "header-length": "inference-header-content-length"}

_DESCRIPTIONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        200: "As asked for",
        201: "The job is done",
        202: "The job is not done yet",
        204: "Nothing is left of it",
        207: "Some are not stored; each has its own status",
        304: "What the client has is current",
        307: "The documentation",
    }
)


_SCHEME: Final = "api_key"
SECURITY_SCHEMES: Final[Mapping[str, Any]] = MappingProxyType(
    {_SCHEME: {"type": "http", "scheme": "bearer", "description": "Needed as soon as there is any API key"}}
)
_GUARDED: Final = (401, 403, 429)
"""What every path may answer that looks at keys."""


class Description(NamedTuple):
    """What FastAPI adds to an operation."""

    responses: dict[int | str, dict[str, Any]]
    extra: dict[str, Any]


def document(answers: Sequence[int], parameters: Sequence[str], scope: KeyScope | None) -> Description:
    """The description of an endpoint with these statuses and parameters, which asks of a key to permit `scope`."""
    extra: dict[str, Any] = {}
    if parameters:
        extra["parameters"] = [{"name": _NAMES.get(name, name), **PARAMETERS[name]} for name in parameters]
    if scope is not None:
        extra["security"] = [{_SCHEME: [scope.value]}, {}]
    guarded = () if scope is None else _GUARDED
    return Description({status: _answer(status) for status in sorted({*answers, *guarded})}, extra)


def _answer(status: int) -> dict[str, Any]:
    if status < 400:
        return {"description": _DESCRIPTIONS[status]}
    codes = [code.value for code, kind in PROBLEMS.items() if kind.status == status]
    schema = {"type": "object", "properties": {"code": {"enum": codes}, "detail": {"type": "string"}}}
    return {"description": "A problem (RFC 9457)", "content": {MEDIA_TYPE: {"schema": schema}}}
