"""Writes small ONNX models by hand, so that no test needs the `onnx` package or an opaque binary in the repository.

Owns the few protobuf messages of ONNX that a graph of a node or two takes. Must not know what a model is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

ELEMENT_TYPES: Final = {
    "FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BYTES": 8, "BOOL": 9,
    "FP16": 10, "FP64": 11, "UINT32": 12, "UINT64": 13, "BF16": 16,
}  # fmt: skip
"""Datatype to the number that `TensorProto.DataType` gives it."""

IR_VERSION, OPSET = 8, 17


@dataclass(frozen=True)
class Value:
    """A graph input or output: a dim is a number, or a name where it is variable."""

    name: str
    datatype: str
    shape: Sequence[int | str]


@dataclass(frozen=True)
class Node:
    """One operator; `integers` are its integer attributes."""

    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    integers: Sequence[tuple[str, int]] = ()


def onnx_model(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Sequence[tuple[str, npt.NDArray[np.float32] | npt.NDArray[np.int64]]] = (),
) -> bytes:
    """The bytes of a `model.onnx`; a constant that is also an input is that input's default."""
    graph = b"".join(
        [
            *(_field(1, _node(node)) for node in nodes),
            _field(2, b"graph"),
            *(_field(5, _tensor(name, array)) for name, array in constants),
            *(_field(11, _value(value)) for value in inputs),
            *(_field(12, _value(value)) for value in outputs),
        ]
    )
    return _number(1, IR_VERSION) + _field(7, graph) + _field(8, _number(2, OPSET))


def _node(node: Node) -> bytes:
    attributes = (
        _field(5, _field(1, name.encode()) + _number(3, value) + _number(20, 2)) for name, value in node.integers
    )
    names = [_field(1, name.encode()) for name in node.inputs] + [_field(2, name.encode()) for name in node.outputs]
    return b"".join([*names, _field(4, node.operator.encode()), *attributes])


def _value(value: Value) -> bytes:
    dims = (_field(1, _number(1, dim) if isinstance(dim, int) else _field(2, dim.encode())) for dim in value.shape)
    tensor_type = _number(1, ELEMENT_TYPES[value.datatype]) + _field(2, b"".join(dims))
    return _field(1, value.name.encode()) + _field(2, _field(1, tensor_type))


def _tensor(name: str, array: npt.NDArray[np.float32] | npt.NDArray[np.int64]) -> bytes:
    datatype = {"float32": "FP32", "int64": "INT64"}[array.dtype.name]
    dims = b"".join(_number(1, size) for size in array.shape)
    return dims + _number(2, ELEMENT_TYPES[datatype]) + _field(8, name.encode()) + _field(9, array.tobytes())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
