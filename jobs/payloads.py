"""How the bytes of requests and results are written: first for a moment, until a script makes them count.

It owns these writes; it must not know whose bytes they are.
"""

from typing import Final

from jobs.connection import Call
from jobs.tensors import Buffer

UNSETTLED_TTL_MS: Final = 60_000
"""How long bytes live that no script has made count."""


def payload_call(key: str, payload: Buffer, *, is_full: bool = False) -> Call:
    """Write a payload for now; `is_full`: although Redis is at its memory limit.

    Repeated after a lost reply it changes nothing: neither the bytes nor the time that a script gave them.
    """
    plain = _flat(payload)
    if is_full:
        return Call(key, plain, UNSETTLED_TTL_MS, script="output")
    return Call("SET", key, plain, "PX", UNSETTLED_TTL_MS, "NX")


def _flat(payload: Buffer) -> bytes | memoryview:
    """The payload as the client library takes it: no bytearray, and a view only if its length is its size in bytes."""
    if isinstance(payload, bytes):
        return payload
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else b""
