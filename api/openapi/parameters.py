"""Parameters of path, query and header, each described in one place.

It describes and never checks; the handlers are the truth.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from api.openapi.schemas import OPTIONS
from jobs.listing import MOST_LOOKED_AT
from jobs.state import State

_TEXT: Final = {"type": "string"}
_FILTER: Final = (
    f"Only these. A page looks at {MOST_LOOKED_AT} jobs for them, so it may be empty and have a next one: follow "
    "`next_cursor` until it is null"
)
_ID: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$", "example": "09f10e2f24c2efc1f50474539ebff3ed"}


def _option(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An option that stands in the query; a form or a document has it as a field. Lists and objects are JSON there."""
    described = {"in": "query", "description": schema.get("description", "An option of the job")}
    if schema.get("type") in ("array", "object"):
        return {**described, "content": {"application/json": {"schema": dict(schema)}}}
    return {**described, "schema": dict(schema)}


PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "job_id": {"in": "path", "required": True, "schema": _ID, "description": "The id that POST /jobs gave"},
        "name": {
            "in": "path",
            "required": True,
            "schema": {**_TEXT, "examples": ["identity"]},
            "description": "The model's name",
        },
        "asset": {"in": "path", "required": True, "schema": _TEXT, "description": "A file of the documentation"},
        "wait": {
            "in": "query",
            "schema": {"type": "number", "minimum": 0, "maximum": 60},
            "description": "Seconds to wait for the end, or with If-None-Match for any change; 0: don't wait",
        },
        "force": {"in": "query", "schema": {"type": "boolean"}, "description": "Cancel it first if it is not done"},
        "status": {"in": "query", "schema": {"enum": [state.value for state in State]}, "description": _FILTER},
        "model": {"in": "query", "schema": _TEXT, "description": _FILTER},
        "limit": {
            "in": "query",
            "schema": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
            "description": "Most jobs of one page",
        },
        "since": {
            "in": "query",
            "schema": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "minimum": 0}]},
            "description": "Only messages about what happened at this instant or later; RFC 3339, or Unix seconds",
        },
        "undelivered": {
            "in": "query",
            "schema": {"enum": ["failed", "pending"], "default": "failed"},
            "description": "Those that were given up, or those that wait for their next attempt",
        },
        "cursor": {"in": "query", "schema": _TEXT, "description": "The next_cursor of the page before"},
        "output": {"in": "query", "schema": _TEXT, "description": "Only this output"},
        "last-event-id": {"in": "header", "schema": _TEXT, "description": "The id of the last event that was seen"},
        "if-none-match": {"in": "header", "schema": _TEXT, "description": "ETags that the client has"},
        "prefer": {
            "in": "header",
            "schema": _TEXT,
            "description": "wait=N: answer when the job is done, or after N s; 0: at once",
        },
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
        **{f"option {name}": _option(schema) for name, schema in OPTIONS.items()},
        "option input": _option({**_TEXT, "description": "Which of the model's inputs a raw body is"}),
        "option outputs": _option({**_TEXT, "description": "The outputs to compute, by commas; all if not given"}),
        "option parameters": _option({"type": "object", "description": "The model's request parameters, as JSON"}),
    }
)

_NAMES: Final[Mapping[str, str]] = {
    **{f"option {name}": name for name in (*OPTIONS, "input", "outputs", "parameters")},
    "prefer-async": "prefer",
    "header-length": "inference-header-content-length",
    "undelivered": "status",
}


def parameters(names: Sequence[str]) -> list[dict[str, Any]]:
    """The descriptions of these parameters, in order."""
    return [{"name": _NAMES.get(name, name), **PARAMETERS[name]} for name in names]


def query_names(names: Sequence[str]) -> tuple[str, ...]:
    """Those of these parameters that stand in a query, as they are spelled there."""
    return tuple(_NAMES.get(name, name) for name in names if PARAMETERS[name]["in"] == "query")


OPTION_PARAMETERS: Final = tuple(name for name in PARAMETERS if name.startswith("option "))
"""All that a submission may say in its query."""
