"""What of JSON is accepted.

Turning parsed values into elements is `api.formats.values`' business, and how elements look in JSON is `jobs.outputs`'.
"""

import codecs
from typing import Any, Final

import numpy as np
import orjson

from api.formats import FormatError

_CONTAINERS: Final = frozenset({dict, list})
_MAX_BRACKETS: Final = 1_000_000  # an empty array takes two bytes there, and 64 here


def loads(text: bytes) -> Any:
    """The document; raises FormatError where it is not strict JSON, is ambiguous, or would take too much memory.

    A byte order mark in front of it is passed over, as RFC 8259 permits.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    if text.count(b"[") + text.count(b"{") > _MAX_BRACKETS:
        raise FormatError(f"it has more than {_MAX_BRACKETS} brackets; send tensors flat or as raw bytes")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise FormatError(str(exc)) from None
    if _has_duplicate_keys(text, document):
        raise FormatError("it is ambiguous, as an object has the same key twice")
    return document


def _has_duplicate_keys(text: bytes, document: Any) -> bool:
    """Whether a parsed JSON text had an object with the same key twice, of which the parser kept the last.

    Valid JSON has one colon outside of its strings for each key that was written, so counting them is enough. Counting
    all colons and passing over tensor data is tried first: it settles large numeric documents at once.
    """
    if text.count(b":") == _count_keys(document, skip="data"):
        return False
    return _count_structural_colons(text) != _count_keys(document, skip=None)


def _count_keys(document: Any, *, skip: str | None) -> int:
    count = 0
    pending = [document]
    while pending:
        node = pending.pop()
        if type(node) is dict:
            count += len(node)
            pending.extend(value for key, value in node.items() if type(value) in _CONTAINERS and key != skip)
        elif type(node) is list and not _CONTAINERS.isdisjoint(map(type, node)):
            pending.extend(value for value in node if type(value) in _CONTAINERS)
    return count


def _count_structural_colons(text: bytes) -> int:
    """The colons outside of the strings of valid JSON: those that an even number of quotes stands before."""
    if b"\\" in text:  # escaped quotes end nothing
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    characters = np.frombuffer(text, np.uint8)
    is_inside = np.bitwise_xor.accumulate((characters == ord('"')).view(np.uint8))
    return int(np.count_nonzero((characters == ord(":")) & (is_inside == 0)))
