"""Single arrays in numpy's `.npy` format.

It reads the header by pattern and never evaluates it, so object arrays (pickles) have no way in. It must not guess:
a type that is not exactly a datatype's is refused.
"""

import math
import re
from typing import Any, Final, NamedTuple

import numpy as np

from api.formats import MAX_BYTES_ELEMENTS, FormatError
from jobs.datatypes import MAX_ELEMENTS, Datatype, pack_bytes
from jobs.tensors import Buffer, Tensor

MAGIC: Final = b"\x93NUMPY"
MEDIA_TYPE: Final = "application/x-npy"

_MAX_HEADER_BYTES: Final = 64 * 1024
_MAX_RANK: Final = 32
_MAX_PADDING: Final = 16
_MAX_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = 0xD800 >> 11
_LENGTH_SIZES: Final = {1: 2, 2: 4, 3: 4}
_ENTRY: Final = re.compile(
    r"\s*'(descr|fortran_order|shape)'\s*:\s*('[^'\\]*'|True|False|\([0-9,\s]*\))\s*,?", re.ASCII
)
_DESCR: Final = re.compile(r"'([<>=|])([biufSUV])([0-9]{1,9})'", re.ASCII)
_DATATYPES: Final = {
    "b1": Datatype.BOOL,
    "u1": Datatype.UINT8,
    "u2": Datatype.UINT16,
    "u4": Datatype.UINT32,
    "u8": Datatype.UINT64,
    "i1": Datatype.INT8,
    "i2": Datatype.INT16,
    "i4": Datatype.INT32,
    "i8": Datatype.INT64,
    "f2": Datatype.FP16,
    "f4": Datatype.FP32,
    "f8": Datatype.FP64,
    "V2": Datatype.BF16,  # what ml_dtypes' bfloat16 is saved as
}


class Array(NamedTuple):
    """An array as tensors are kept: little-endian, row-major, BYTES framed."""

    datatype: Datatype
    shape: tuple[int, ...]
    data: Buffer


class _Header(NamedTuple):
    order: str
    kind: str
    itemsize: int
    is_fortran: bool
    shape: tuple[int, ...]


def is_npy(data: Buffer) -> bool:
    """Whether the first bytes are those of an `.npy` file."""
    return bytes(memoryview(data)[: len(MAGIC)]) == MAGIC


def read_npy(data: bytes | memoryview) -> Array:
    """The array in an `.npy` file; its data is a view of the file where nothing had to be converted.

    `S` and `U` arrays are BYTES (text as UTF-8), 2-byte void is BF16. Raises FormatError for any other type, for a
    damaged header, and unless the file holds exactly the array's bytes.
    """
    view = memoryview(data)
    header, start = _read_header(view)
    count = math.prod(header.shape)
    if math.prod(filter(None, header.shape)) > MAX_ELEMENTS:  # an empty array of absurd dimensions is none either
        raise FormatError(f"an array of shape {list(header.shape)} has more than {MAX_ELEMENTS} elements")
    body = view[start:]
    if len(body) != count * header.itemsize:
        raise FormatError(f"an array of this type and shape has {count * header.itemsize} bytes, got {len(body)}")
    if header.kind in "SU":
        return Array(Datatype.BYTES, header.shape, _text_data(header, body))
    datatype = _DATATYPES[f"{header.kind}{header.itemsize}"]
    is_swapped = header.order == ">" and header.itemsize > 1 and header.kind != "V"
    if not is_swapped and not (header.is_fortran and len(header.shape) > 1):
        return Array(datatype, header.shape, body)
    source = datatype.numpy.newbyteorder(">") if is_swapped else datatype.numpy
    array = np.ascontiguousarray(_shaped(np.frombuffer(body, source), header), datatype.numpy)
    return Array(datatype, header.shape, array.reshape(-1).view(np.uint8).data)


def _read_header(view: memoryview) -> tuple[_Header, int]:
    """The header, and where the array's bytes begin."""
    if not is_npy(view) or len(view) < len(MAGIC) + 2:
        raise FormatError("it is not an .npy file")
    length_size = _LENGTH_SIZES.get(view[len(MAGIC)])
    if length_size is None:
        raise FormatError(f"version {view[len(MAGIC)]} of the .npy format is unknown")
    text_start = len(MAGIC) + 2 + length_size
    length = int.from_bytes(view[len(MAGIC) + 2 : text_start], "little")
    if len(view) < text_start + length or length > _MAX_HEADER_BYTES:
        raise FormatError("its .npy header is cut short or too long")
    return _parse_header(bytes(view[text_start : text_start + length]).decode("latin-1")), text_start + length


def _parse_header(text: str) -> _Header:
    fields: dict[str, str] = {}
    inner = text.strip()
    position, end = 1, len(inner) - 1
    if not (inner.startswith("{") and inner.endswith("}")):
        raise FormatError("its .npy header is damaged")
    while inner[position:end].strip():
        entry = _ENTRY.match(inner, position, end)
        if entry is None or entry[1] in fields:
            raise FormatError("its .npy header is damaged, or its type is one that no datatype has")
        fields[entry[1]] = entry[2]
        position = entry.end()
    descr = _DESCR.fullmatch(fields.get("descr", ""))
    if "'|O'" in fields.get("descr", ""):
        raise FormatError("it is an array of Python objects, which is never unpickled")
    if descr is None or not (descr[2] in "SU" or f"{descr[2]}{int(descr[3])}" in _DATATYPES):
        raise FormatError(f"its type {fields.get('descr', 'none')} is none that a datatype has")
    is_fortran, shape = fields.get("fortran_order"), fields.get("shape", "")
    if is_fortran not in ("True", "False") or not shape.startswith("("):
        raise FormatError("its .npy header is damaged")
    itemsize = int(descr[3]) * (4 if descr[2] == "U" else 1)
    return _Header(descr[1], descr[2], itemsize, is_fortran == "True", _shape(shape))


def _shape(text: str) -> tuple[int, ...]:
    dims = [dim.strip() for dim in text[1:-1].split(",")]
    if dims[-1] == "":
        dims.pop()
    if len(dims) > _MAX_RANK or not all(dim.isdigit() and len(dim) <= 18 for dim in dims):
        raise FormatError(f"its shape {text[:80]} is not one")
    return tuple(map(int, dims))


def _shaped(flat: "np.ndarray[Any, Any]", header: _Header) -> "np.ndarray[Any, Any]":
    return flat.reshape(header.shape, order="F" if header.is_fortran else "C")


def _text_data(header: _Header, body: memoryview) -> bytes:
    """Framed elements. Each becomes an object of its own on the way, so their number has a cap."""
    if math.prod(header.shape) > MAX_BYTES_ELEMENTS or header.itemsize == 0:
        raise FormatError(f"an array of texts must have at most {MAX_BYTES_ELEMENTS} elements, and some width")
    order = ">" if header.order == ">" else "<"
    if header.kind == "S":
        return pack_bytes(_row_major(np.frombuffer(body, f"S{header.itemsize}"), header))
    points = np.frombuffer(body, f"{order}u4")
    if points.size and (points.max() > _MAX_CODE_POINT or np.any((points >> 11) == _SURROGATES)):
        raise FormatError("it has a text that is not valid Unicode")
    texts = np.frombuffer(body, f"{order}U{header.itemsize // 4}")
    return pack_bytes(text.encode() for text in _row_major(texts, header))


def _row_major(flat: "np.ndarray[Any, Any]", header: _Header) -> list[Any]:
    elements: list[Any] = _shaped(flat, header).ravel(order="C").tolist()
    return elements


def tensor_to_npy(tensor: Tensor) -> list[Buffer]:
    """The tensor as an `.npy` file, in parts; BF16 as its raw 16-bit words.

    Raises FormatError for BYTES that numpy's fixed-width `S` type would change or blow up.
    """
    if tensor.datatype is Datatype.BYTES:
        return _text_file(tensor)
    return [_header_bytes(tensor.datatype.numpy.str, tensor.shape), tensor.data]


def _text_file(tensor: Tensor) -> list[Buffer]:
    elements = tensor.array().reshape(-1).tolist()
    width = max((len(element) for element in elements), default=0) or 1
    if any(element.endswith(b"\0") for element in elements):
        raise FormatError("numpy's fixed-width bytes lose the NULs at the end of an element")
    if width * len(elements) > _MAX_PADDING * (tensor.nbytes + 1024):
        raise FormatError("the lengths of its elements differ too much for numpy's fixed-width bytes")
    return [_header_bytes(f"|S{width}", tensor.shape), np.array(elements, dtype=f"S{width}").tobytes()]


def _header_bytes(descr: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    padding = -(len(MAGIC) + 4 + len(text) + 1) % 64
    encoded = f"{text}{' ' * padding}\n".encode("ascii")
    return MAGIC + b"\x01\x00" + len(encoded).to_bytes(2, "little") + encoded
