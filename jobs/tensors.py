"""A named tensor as raw bytes, the form in which values cross every boundary of the product.

It must not convert formats (see the edges for that) and never copies the data that it is given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.datatypes import Datatype, check_size, element_count, pack_bytes, unpack_bytes

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Tensor:
    """Row-major little-endian elements behind a name, a datatype and a shape; BYTES elements are length-framed."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: Buffer

    @property
    def nbytes(self) -> int:
        """Size of the raw data in bytes."""
        return memoryview(self.data).nbytes

    def check(self) -> None:
        """Raise DatatypeError unless the data has exactly the size that datatype and shape ask for."""
        check_size(self.datatype, self.shape, memoryview(self.data))

    def array(self) -> "np.ndarray[Any, Any]":
        """The elements as an array of this shape: a view, except BYTES, which gives an object array of `bytes`."""
        if self.datatype is Datatype.BYTES:
            elements = unpack_bytes(memoryview(self.data), element_count(self.shape))
            out = np.empty(len(elements), dtype=object)
            out[:] = elements
            return out.reshape(self.shape)
        return np.frombuffer(self.data, dtype=self.datatype.numpy).reshape(self.shape)


def tensor_of_bytes(name: str, shape: Sequence[int], elements: Sequence[bytes]) -> Tensor:
    """A BYTES tensor of these elements in row-major order."""
    return Tensor(name, Datatype.BYTES, tuple(shape), pack_bytes(elements))
