"""How generated bodies are written in the media types that schemathesis does not know."""

from typing import Any

import msgpack
import schemathesis
from schemathesis import SerializationContext

RAW = ("application/x-npy", "application/x-ndjson", "image/*", "audio/*")


@schemathesis.serializer("application/msgpack")
def as_msgpack(context: SerializationContext, value: Any) -> bytes:
    """What msgpack has no form for is sent as a text."""
    try:
        packed: bytes = msgpack.packb(value, default=str)
    except (OverflowError, UnicodeError, ValueError):
        packed = msgpack.packb(str(value).encode("utf-8", "replace"))
    return packed


@schemathesis.serializer(*RAW)
def as_bytes(context: SerializationContext, value: Any) -> bytes:
    """Bytes as they are."""
    raw = getattr(value, "data", value)
    return raw if isinstance(raw, bytes) else str(raw).encode("utf-8", "replace")
