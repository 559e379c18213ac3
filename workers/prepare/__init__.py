"""Uploads become tensors: one function per kind of input, all pure and safe to call from many threads.

It owns what a model's author may ask for with `kind`; it must not know about jobs, batches or the engine.
"""

from typing import Any, assert_never

import numpy as np

from jobs.spec import InputKind, InputSpec
from jobs.tensors import Tensor
from workers.prepare.decode import picture_bytes
from workers.prepare.image import fixed_shape, prepare_image
from workers.prepare.single import prepare_bytes, prepare_text

__all__ = ["fixed_shape", "picture_bytes", "prepare", "prepare_into"]


def prepare(upload: bytes | memoryview, spec: InputSpec, max_pixels: int) -> Tensor:
    """The upload as the tensor of one item, without a batch dimension.

    `max_pixels` caps width x height of pictures, as uploaded and as prepared. Raises InvalidInput where the upload
    can't be decoded into what the input wants.
    """
    match spec.kind:
        case InputKind.IMAGE:
            array = prepare_image(upload, spec, max_pixels)
            return Tensor(spec.name, spec.datatype, array.shape, array.reshape(-1).view(np.uint8).data)
        case InputKind.TEXT:
            return prepare_text(upload, spec)
        case InputKind.BYTES:
            return prepare_bytes(upload, spec)
        case InputKind.TENSOR:
            raise ValueError(f"input {spec.name} takes tensors, which need no preparation")
        case _:
            assert_never(spec.kind)


def prepare_into(upload: bytes | memoryview, spec: InputSpec, max_pixels: int, out: "np.ndarray[Any, Any]") -> None:
    """Like `prepare` for an image input, but writes into `out`, a row of a batch, of `fixed_shape(spec)`.

    `out` needs the numpy type of the spec's datatype and may have any strides. What it holds is undefined if
    InvalidInput is raised.
    """
    prepare_image(upload, spec, max_pixels, out)
