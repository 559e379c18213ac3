"""The Open Inference Protocol's binary form: a JSON header, then the raw bytes of each tensor.

It owns the order of those bytes and the sizes in the header; what the header's other words mean is not its business.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from api.formats import FormatError
from jobs.outputs import dumps
from jobs.tensors import Buffer, Tensor


class BinarySection:
    """The raw bytes behind a header, taken piece by piece in the header's order, without copying."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._offset = 0

    def take(self, size: int) -> memoryview:
        """The next `size` bytes; raises FormatError where fewer are left."""
        left = len(self._data) - self._offset
        if size > left:
            raise FormatError(f"its binary_data_size is {size}, but {left} bytes of the body are left")
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def finish(self) -> None:
        """Raise FormatError unless everything was taken."""
        left = len(self._data) - self._offset
        if left:
            raise FormatError(f"{left} bytes of the body belong to no input")


def split(body: bytes, header_length: int) -> tuple[memoryview, BinarySection]:
    """The JSON header and what follows it; raises FormatError where the body is shorter than its header."""
    view = memoryview(body)
    if header_length > len(view):
        raise FormatError(f"its header is said to have {header_length} bytes, but the body has {len(view)}")
    return view[:header_length], BinarySection(view[header_length:])


def tensors_to_binary(
    tensors: Sequence[Tensor], envelope: Mapping[str, Any], classes: Mapping[str, int] = MappingProxyType({})
) -> tuple[int, list[Buffer]]:
    """`(length of the JSON header, parts of the body)`: `{**envelope, outputs: […]}`, then each output's raw bytes.

    `classes` says which outputs are best classes in the engine's texts, and how many: a parameter `classification`.
    """
    outputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.value,
            "shape": list(tensor.shape),
            "parameters": {"binary_data_size": tensor.nbytes}
            | ({"classification": classes[tensor.name]} if tensor.name in classes else {}),
        }
        for tensor in tensors
    ]
    header = dumps({**envelope, "outputs": outputs})
    return len(header), [header, *(tensor.data for tensor in tensors)]
