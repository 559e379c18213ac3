"""Makes the engine's Python stub right under numpy 2, for Python 3.13, which has no numpy 1.

Owns five bytes of one known binary. Must refuse any other: an unadapted stub under numpy 2 answers zeros, silently.

The stub in the wheel nvidia-pytriton 0.7.0 is compiled against numpy 1. It reads an array's element size straight from
numpy's `PyArray_Descr`, at offset 32; numpy 2 moved that field to offset 40 and keeps flags at 32, mostly zero. So
every buffer that the stub makes or takes gets the size or the strides 0. Nothing else that it uses has moved, and the
instructions that read the field are few: two per constructor of a tensor from an array (fresh and contiguous copy) and
one where an array is made over a buffer. Each is `mov 0x20(%rax), …`; the last byte is the offset.
"""

from __future__ import annotations

import hashlib

from inferq.stack.errors import StackError

STUB_SHA256 = "7b701b4b4bc01ca7af0350eaffa4f2aed92f02b465b3494a265059e4d3ca6cf8"
"""`python_backend_stubs/3.13/triton_python_backend_stub` of the wheel nvidia-pytriton 0.7.0."""

OFFSET_BYTES = (0xA6C74, 0xA6E90, 0xA7664, 0xA78A9, 0xACA2B)
"""Where in the file the displacement byte of each such instruction stands."""

NUMPY_1_OFFSET, NUMPY_2_OFFSET = 32, 40


def adapted_to_numpy2(stub: bytes) -> bytes:
    """The stub with numpy 2's offset of the element size; StackError when it is not the stub that we know."""
    if hashlib.sha256(stub).hexdigest() != STUB_SHA256:
        raise StackError(
            "the stack environment has numpy 2, under which only the Python 3.13 stub of nvidia-pytriton 0.7.0 is "
            "known to be right: run `make setup` again, or install numpy < 2 into it"
        )
    adapted = bytearray(stub)
    for position in OFFSET_BYTES:
        if adapted[position] != NUMPY_1_OFFSET:
            raise AssertionError(f"the known stub has {adapted[position]} at {position:#x}")
        adapted[position] = NUMPY_2_OFFSET
    return bytes(adapted)
