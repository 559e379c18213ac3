"""Request bodies by media type.

It describes what `api.intake` and `api.facade` read.
"""

from typing import Any, Final

from api.openapi.schemas import OPTIONS, Schema, array, ref

_BINARY: Final[Schema] = {"type": "string", "format": "binary"}
_FORM: Final[Schema] = {
    "type": "object",
    "required": ["model", "file"],
    "properties": {"model": {"type": "string"}, "file": _BINARY, **{n: s for n, s in OPTIONS.items() if n != "model"}},
    "description": "`file`, or one part for each input, named after it; options as fields",
}

BODIES: Final[dict[str, dict[str, Any]]] = {
    "job": {
        "application/json": {"schema": ref("JobRequest")},
        "application/msgpack": {"schema": ref("JobRequest")},
        "multipart/form-data": {"schema": _FORM},
        **{
            media: {"schema": _BINARY}
            for media in ("application/octet-stream", "application/x-npy", "image/*", "audio/*", "text/plain")
        },
    },
    "batch": {
        "application/json": {"schema": {**array(ref("JobRequest")), "minItems": 1, "maxItems": 1000}},
        "application/x-ndjson": {"schema": _BINARY},
        "application/msgpack": {"schema": {**array(ref("JobRequest")), "minItems": 1, "maxItems": 1000}},
    },
    "infer": {
        "application/json": {"schema": ref("InferRequest")},
        "application/octet-stream": {"schema": _BINARY},
    },
    "index": {"application/json": {"schema": ref("IndexRequest")}},
}
_OPTIONAL: Final = frozenset({"index"})


def request_body(name: str) -> dict[str, Any]:
    """The description of a body."""
    return {"required": name not in _OPTIONAL, "content": BODIES[name]}
