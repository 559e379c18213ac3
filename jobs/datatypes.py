"""The Open Inference Protocol's datatypes and the byte layout of their elements.

It owns sizes, numpy equivalents and the framing of BYTES; it must not know about models, HTTP or gRPC.
"""

import math
import struct
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np

MAX_ELEMENTS: Final = 2**31
"""More elements than this in one tensor are refused before any arithmetic on them."""

_LENGTH: Final = struct.Struct("<I")
FRAME_BYTES: Final = _LENGTH.size
"""What stands before each element of BYTES: its length, little-endian."""


class DatatypeError(ValueError):
    """Raw bytes, a shape or a value does not fit the datatype that it is said to have."""


class Datatype(StrEnum):
    """A tensor element type, spelled as on the wire."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    BYTES = "BYTES"

    @property
    def itemsize(self) -> int | None:
        """Bytes per element, or None for BYTES, whose elements carry their own length."""
        return None if self is Datatype.BYTES else _NUMPY[self].itemsize

    @property
    def numpy(self) -> np.dtype[Any]:
        """The little-endian numpy type; BF16 is its raw 16-bit word, BYTES is `object`."""
        return _NUMPY[self]


_NUMPY: Final[dict[Datatype, np.dtype[Any]]] = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.UINT8: np.dtype("u1"),
    Datatype.UINT16: np.dtype("<u2"),
    Datatype.UINT32: np.dtype("<u4"),
    Datatype.UINT64: np.dtype("<u8"),
    Datatype.INT8: np.dtype("i1"),
    Datatype.INT16: np.dtype("<i2"),
    Datatype.INT32: np.dtype("<i4"),
    Datatype.INT64: np.dtype("<i8"),
    Datatype.FP16: np.dtype("<f2"),
    Datatype.FP32: np.dtype("<f4"),
    Datatype.FP64: np.dtype("<f8"),
    Datatype.BF16: np.dtype("<u2"),
    Datatype.BYTES: np.dtype(object),
}


def element_count(shape: Sequence[int]) -> int:
    """The number of elements of a tensor of this shape (1 for a scalar).

    Raises DatatypeError on a negative dimension and on more than MAX_ELEMENTS elements.
    """
    if any(dim < 0 for dim in shape):
        raise DatatypeError(f"shape {list(shape)} has a negative dimension")
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise DatatypeError(f"shape {list(shape)} has more than {MAX_ELEMENTS} elements")
    return count


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """BYTES elements as one buffer: each behind its length in 4 little-endian bytes."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


def unpack_bytes(data: bytes | memoryview, count: int) -> list[bytes]:
    """The elements of a BYTES buffer.

    Raises DatatypeError unless the buffer holds exactly `count` length-framed elements.
    """
    view = memoryview(data)
    _check_bytes(view, count)
    elements: list[bytes] = []
    offset = 0
    for _ in range(count):
        start = offset + _LENGTH.size
        offset = start + _LENGTH.unpack_from(view, offset)[0]
        elements.append(bytes(view[start:offset]))
    return elements


def _check_bytes(view: memoryview, count: int) -> None:
    """Follow the lengths to the end without making an object of any element."""
    length_at, size, end = _LENGTH.unpack_from, _LENGTH.size, len(view)
    offset = found = 0
    while offset < end:
        start = offset + size
        if start > end:
            raise DatatypeError(f"BYTES element {found} is cut inside its 4-byte length")
        (length,) = length_at(view, offset)
        offset = start + length
        if offset > end:
            raise DatatypeError(f"BYTES element {found} claims {length} bytes where {end - start} are left")
        if found == count:
            raise DatatypeError(f"expected {count} BYTES elements, got more")
        found += 1
    if found != count:
        raise DatatypeError(f"expected {count} BYTES elements, got {found}")


def check_size(datatype: Datatype, shape: Sequence[int], data: bytes | bytearray | memoryview) -> None:
    """Raise DatatypeError unless `data` is exactly the raw bytes of a tensor of this datatype and shape."""
    count = element_count(shape)
    if datatype is Datatype.BYTES:
        _check_bytes(memoryview(data), count)
        return
    expected = count * (datatype.itemsize or 0)
    got = memoryview(data).nbytes
    if got != expected:
        raise DatatypeError(f"expected {expected} bytes for {datatype} {list(shape)}, got {got}")
    if datatype is Datatype.BOOL and got and np.frombuffer(data, np.uint8).max() > 1:
        raise DatatypeError("BOOL elements must be the byte 0 or 1")
