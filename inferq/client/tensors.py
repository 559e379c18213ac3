"""numpy arrays to and from the Open Inference Protocol's binary form, and single arrays as `.npy`.

Owns which numpy type is which datatype; every conversion is exact or refused. Must not know HTTP.
"""

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_DATATYPES: Final = {
    "b1": "BOOL",
    **{f"u{size}": f"UINT{8 * size}" for size in (1, 2, 4, 8)},
    **{f"i{size}": f"INT{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"FP{8 * size}" for size in (2, 4, 8)},
    "V2": "BF16",
}
"""numpy's kind and item size → datatype; `V2` is what the bfloat16 of ml_dtypes is to numpy."""
_NUMPY: Final = {datatype: np.dtype(f"<{code}") for code, datatype in _DATATYPES.items() if datatype != "BF16"}
_LENGTH: Final = struct.Struct("<I")


def datatype_of(array: Array) -> str:
    """The Open Inference Protocol's datatype of an array; ValueError where it has none."""
    if array.dtype.kind in "SUO":
        return "BYTES"
    found = _DATATYPES.get(f"{array.dtype.kind}{array.dtype.itemsize}")
    if found is None:
        raise ValueError(f"arrays of numpy's {array.dtype} can't be sent: no datatype of the protocol has this type")
    return found


def to_binary(arrays: Mapping[str, Array], members: Mapping[str, Any]) -> tuple[int, bytes]:
    """`(length of the JSON header, body)`: `{**members, inputs: […]}`, then each array's raw little-endian bytes."""
    datas = {name: _raw(array) for name, array in arrays.items()}
    inputs = [
        {
            "name": name,
            "datatype": datatype_of(array),
            "shape": list(array.shape),
            "parameters": {"binary_data_size": len(datas[name])},
        }
        for name, array in arrays.items()
    ]
    header = json.dumps({**members, "inputs": inputs}).encode()
    return len(header), b"".join([header, *datas.values()])


def to_document(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    """The `inputs` of a msgpack document, in which `data` is each array's raw little-endian bytes."""
    return [
        {"name": name, "datatype": datatype_of(array), "shape": list(array.shape), "data": _raw(array)}
        for name, array in arrays.items()
    ]


def from_binary(body: bytes, header_length: int) -> list[tuple[Mapping[str, Any], Array]]:
    """Each output of a response with its entry in the JSON header; ValueError where sizes do not fit.

    Arrays are read-only views of the body, BYTES object arrays of `bytes`, BF16 float32 (which holds each exactly).
    """
    header = json.loads(body[:header_length])
    view, offset = memoryview(body), header_length
    outputs: list[tuple[Mapping[str, Any], Array]] = []
    for entry in header["outputs"]:
        end = offset + int(entry["parameters"]["binary_data_size"])
        if end > len(view):
            raise ValueError(f"output {entry['name']!r} is cut short")
        outputs.append((entry, _array(entry["datatype"], tuple(entry["shape"]), view[offset:end])))
        offset = end
    return outputs


def to_npy(array: Array) -> bytes:
    """The array as an `.npy` file, objects as numpy's fixed-width bytes.

    ValueError for elements that those would change: with NULs at their end, or other than bytes and texts.
    """
    datatype_of(array)
    if array.dtype == object:
        elements = [_bytes(element) for element in array.ravel().tolist()]
        if any(element.endswith(b"\0") for element in elements):
            raise ValueError("an .npy file loses the NULs at the end of an element")
        array = np.array(elements, dtype="S").reshape(array.shape)
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _raw(array: Array) -> bytes:
    if array.dtype.kind in "SUO":
        elements = [_bytes(element) for element in array.ravel().tolist()]
        return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))
    little = array.dtype.newbyteorder("<") if array.dtype.kind != "V" else array.dtype
    return array.astype(little, copy=False).tobytes(order="C")


def _bytes(element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)
    raise ValueError(f"an array of BYTES holds texts or bytes, not {type(element).__name__}")


def _array(datatype: str, shape: tuple[int, ...], data: memoryview) -> Array:
    if datatype == "BYTES":
        elements = _unframed(data)
        flat = np.empty(len(elements), dtype=object)
        flat[:] = elements
        return flat.reshape(shape)
    if datatype == "BF16":
        words = np.frombuffer(data, "<u2").astype(np.uint32)
        return (words << np.uint32(16)).view(np.float32).reshape(shape)
    return np.frombuffer(data, _NUMPY[datatype]).reshape(shape)


def _unframed(data: memoryview) -> list[bytes]:
    elements: list[bytes] = []
    offset = 0
    while offset < len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size + length
        if offset > len(data):
            raise ValueError("a BYTES element is cut short")
        elements.append(bytes(data[offset - length : offset]))
    return elements
