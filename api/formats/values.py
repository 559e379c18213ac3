"""Numbers and texts, as JSON and msgpack parse them, into raw tensor elements.

It owns range checks and rounding (to nearest, ties to even); what would not survive the conversion is refused.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from api.formats import MAX_BYTES_ELEMENTS, FormatError
from jobs.datatypes import Datatype, element_count, pack_bytes

FLOATS: Final = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64, Datatype.BF16})
_HUGE: Final = 2.0**63
"""From here on the parser makes numbers of integers that no 64 bits hold."""

_KINDS: Final[dict[type, str]] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction or exponent",
    str: "a text",
    bytes: "raw bytes",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def data_from_values(datatype: Datatype, shape: Sequence[int], values: list[Any]) -> bytes:
    """The raw elements of a tensor whose values come flat in row-major order, or nested exactly as the shape.

    Where there are none, any nesting of nothing will do.
    Raises FormatError where the number of elements, the nesting, a type or a value does not fit, and DatatypeError
    for an impossible shape.
    """
    count = element_count(shape)
    flat = [] if count == 0 and _is_hollow(values) else _flat(values, shape)
    if len(flat) != count:
        raise FormatError(f"expected {count} elements for shape {list(shape)}, got {len(flat)}")
    if datatype is Datatype.BYTES:
        check_bytes_count(count)
        return pack_bytes(_bytes_elements(flat))
    if datatype in FLOATS:
        return _float_data(datatype, flat)
    if datatype is Datatype.BOOL:
        _check_types(flat, {bool}, "true or false")
        return np.array(flat, dtype=np.bool_).tobytes()
    return _integer_data(datatype, flat)


def check_bytes_count(count: int) -> None:
    """Raise FormatError for a BYTES tensor of more elements than are worth looking at one by one."""
    if count > MAX_BYTES_ELEMENTS:
        raise FormatError(f"BYTES tensors may have {MAX_BYTES_ELEMENTS} elements, got {count}")


def shape_of_nested(values: list[Any]) -> tuple[int, ...]:
    """The shape that nested arrays spell, by the first element of each level."""
    shape: list[int] = []
    level: Any = values
    while isinstance(level, list):
        shape.append(len(level))
        level = level[0] if level else None
    return tuple(shape)


def bf16_words(numbers: "np.ndarray[Any, np.dtype[np.float64]]") -> "np.ndarray[Any, np.dtype[np.uint16]]":
    """The nearest BF16 of each number as its raw 16-bit word; what is too large becomes an infinity.

    Going through FP32 would round twice. So its last bit is made sticky first: cut towards zero, and set where
    anything was cut; the second rounding then sees on which side of a tie the number was.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = numbers.astype(np.float32)
    with np.errstate(invalid="ignore"):
        is_inexact = single.astype(np.float64) != numbers
        is_rounded_up = np.abs(single.astype(np.float64)) > np.abs(numbers)
    bits = single.view(np.uint32)
    bits = (bits - is_rounded_up.astype(np.uint32)) | is_inexact.astype(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    is_nan = np.isnan(numbers)
    if is_nan.any():
        rounded[is_nan] = (bits[is_nan] >> np.uint32(16)) | np.uint32(0x0040)
    words: np.ndarray[Any, np.dtype[np.uint16]] = rounded.astype(np.uint16)
    return words


def _flat(values: list[Any], shape: Sequence[int]) -> list[Any]:
    if not values or type(values[0]) is not list:
        return values
    level: list[Any] = [values]
    for dim in shape:
        if set(map(type, level)) - {list} or set(map(len, level)) - {dim}:
            raise FormatError(f"the data is nested, but not as shape {list(shape)}; nest it exactly or send it flat")
        level = list(chain.from_iterable(level))
    return level


def _is_hollow(values: list[Any]) -> bool:
    """Whether there is no element in these arrays, however they are nested."""
    level = values
    while level:
        if set(map(type, level)) != {list}:
            return False
        level = list(chain.from_iterable(level))
    return True


def _check_types(flat: list[Any], allowed: set[type], wanted: str) -> None:
    if set(map(type, flat)) <= allowed:
        return
    index = next(i for i, value in enumerate(flat) if type(value) not in allowed)
    raise FormatError(f"element {index} is {_KINDS.get(type(flat[index]), 'of an unknown type')}, not {wanted}")


def _first_huge(flat: list[Any]) -> int | None:
    """Where the first element that is no integer is a number of which the parser may have made a float itself."""
    if set(map(type, flat)) <= {int}:
        return None
    index = next(i for i, value in enumerate(flat) if type(value) is not int)
    return index if type(flat[index]) is float and abs(flat[index]) >= _HUGE else None


def _integer_data(datatype: Datatype, flat: list[Any]) -> bytes:
    limits = np.iinfo(datatype.numpy)
    low, high = int(limits.min), int(limits.max)
    huge = _first_huge(flat)
    if huge is not None:
        raise FormatError(
            f"element {huge} is {flat[huge]!r}, outside of {datatype}'s {low} to {high}, or has a fraction or exponent"
        )
    _check_types(flat, {int}, "an integer")
    if flat and (min(flat) < low or max(flat) > high):
        index = next(i for i, value in enumerate(flat) if not low <= value <= high)
        raise FormatError(f"element {index} is {flat[index]}, outside of {datatype}'s {low} to {high}")
    return np.array(flat, dtype=datatype.numpy).tobytes()


def _float_data(datatype: Datatype, flat: list[Any]) -> bytes:
    _check_types(flat, {int, float}, "a number")
    wide = np.array(flat, dtype=np.float64)
    if datatype is Datatype.FP64:
        return wide.astype(datatype.numpy, copy=False).tobytes()
    if datatype is Datatype.BF16:
        words = bf16_words(wide)
        _check_overflow(datatype, wide, (words & 0x7FFF) == 0x7F80)
        return words.astype(datatype.numpy, copy=False).tobytes()
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(datatype.numpy)
    _check_overflow(datatype, wide, np.isinf(narrow))
    return narrow.tobytes()


_LARGEST: Final = {Datatype.FP16: "65504", Datatype.FP32: "3.4028235e+38", Datatype.BF16: "3.3895314e+38"}


def _check_overflow(datatype: Datatype, wide: "np.ndarray[Any, Any]", is_infinite: "np.ndarray[Any, Any]") -> None:
    if not is_infinite.any():
        return
    lost = np.flatnonzero(is_infinite & np.isfinite(wide))
    if lost.size:
        index = int(lost[0])
        raise FormatError(
            f"element {index} is {float(wide[index])!r}, beyond {datatype}'s largest {_LARGEST[datatype]}"
        )


def _bytes_elements(flat: list[Any]) -> list[bytes]:
    _check_types(flat, {str, bytes, dict}, 'a text or {"b64": …}')
    return [_BYTES_FORMS[type(value)](value, index) for index, value in enumerate(flat)]


def _from_base64(value: dict[str, Any], index: int) -> bytes:
    encoded = value.get("b64")
    if len(value) != 1 or not isinstance(encoded, str):
        raise FormatError(f'element {index} is an object, but not {{"b64": "…"}}')
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"element {index} is not valid base64") from None


_BYTES_FORMS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    str: lambda value, _: value.encode(),
    bytes: lambda value, _: value,
    dict: _from_base64,
}
