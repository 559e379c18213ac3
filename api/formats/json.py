"""Tensors as JSON, in the Open Inference Protocol's words.

It owns how elements look in JSON: numbers in full, non-finite ones as null, BYTES as text where they are UTF-8; and
what of JSON is accepted. Turning parsed values into elements is `api.formats.values`' business.
"""

import base64
import math
from typing import Any, Final

import numpy as np
import orjson

from api.formats import FormatError
from jobs.datatypes import Datatype, element_count, unpack_bytes
from jobs.tensors import Tensor

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY
_CONTAINERS: Final = frozenset({dict, list})
_MAX_BRACKETS: Final = 1_000_000  # an empty array takes two bytes there, and 64 here


def loads(text: bytes) -> Any:
    """The document; raises FormatError where it is not strict JSON, is ambiguous, or would take too much memory."""
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


def dumps(document: Any) -> bytes:
    """A document that may hold the dicts of this module, as UTF-8 JSON."""
    return orjson.dumps(document, option=_OPTIONS)


def tensor_to_json(tensor: Tensor) -> dict[str, Any]:
    """`{name, datatype, shape, data}` for `dumps`, data flat in row-major order.

    Non-finite numbers become null; BYTES elements that are not UTF-8 become `{"b64": …}`.
    """
    return {
        "name": tensor.name,
        "datatype": tensor.datatype.value,
        "shape": list(tensor.shape),
        "data": _elements(tensor),
    }


def _elements(tensor: Tensor) -> Any:
    if tensor.datatype is Datatype.BYTES:
        return list(map(_text_or_base64, unpack_bytes(memoryview(tensor.data), element_count(tensor.shape))))
    flat = tensor.array().reshape(-1)
    if tensor.datatype is Datatype.BF16:
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if tensor.datatype is Datatype.FP16:
        return flat.astype(np.float32)
    return flat


def _text_or_base64(element: bytes) -> str | dict[str, str]:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(element).decode("ascii")}


def classification_to_json(tensor: Tensor) -> dict[str, Any]:
    """`{name, datatype, shape, data}` with the best classes, best first, as `{label, index, score}` in place of texts.

    The engine writes each class as `score:index` or `score:index:label`. One item's classes are a list, and rows of
    them a list of lists. Raises ValueError where the engine wrote something else.
    """
    elements = unpack_bytes(memoryview(tensor.data), element_count(tensor.shape))
    classes = list(map(_class, elements))
    data: list[Any] = classes
    if len(tensor.shape) > 1:
        width = tensor.shape[-1]
        data = [classes[start : start + width] for start in range(0, len(classes), width)] if width else []
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": list(tensor.shape), "data": data}


def _class(element: bytes) -> dict[str, Any]:
    score_text, _, rest = element.decode("utf-8", "replace").partition(":")
    index_text, has_label, label = rest.partition(":")
    score = float(score_text)
    return {
        "label": label if has_label else None,
        "index": int(index_text),
        "score": score if math.isfinite(score) else None,
    }
