"""One job's payload as tensors that fit the model: slicing, preparing, adding the batch dimension.

It runs in threads and is pure: it must not await, log or touch a store.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.errors import InvalidInput
from jobs.record import InputPart, InputSource
from jobs.spec import InputKind, ModelSpec
from jobs.store import Claimed
from jobs.tensors import Tensor
from workers.prepare import picture_bytes, prepare


@dataclass(frozen=True, slots=True)
class Item:
    """One job's tensors. Where the model batches, each shape starts with `rows`, else `rows` is 1.

    Making it took `prepare_ms`; it has been ready for a batch since `ready_at` (monotonic seconds).
    """

    job: Claimed
    tensors: tuple[Tensor, ...]
    rows: int
    prepare_ms: float
    ready_at: float


def needs_preparation(job: Claimed) -> bool:
    """Whether making the item takes more than slicing, and so belongs in a thread."""
    return any(part.source is InputSource.UPLOAD for part in job.request.inputs)


def decoder_bytes(job: Claimed, payload: bytes, spec: ModelSpec, max_pixels: int) -> int:
    """What decoding takes of memory at its peak, as the pictures' headers have it; 0 where nothing is decoded."""
    parts = _parts(job.request.inputs, payload)
    wanted = {one.name for one in spec.inputs if one.kind is InputKind.IMAGE}
    return sum(
        picture_bytes(data, max_pixels)
        for part, data in parts
        if part.source is InputSource.UPLOAD and part.name in wanted
    )


def make_item(job: Claimed, payload: bytes, spec: ModelSpec, max_pixels: int) -> Item:
    """The job's item. Raises InvalidInput for an upload that can't be decoded into what the model wants."""
    started = time.monotonic()
    rows = job.request.rows
    tensors = tuple(
        _with_batch_dimension(_tensor(part, data, spec, max_pixels), spec, rows)
        for part, data in _parts(job.request.inputs, payload)
    )
    ready_at = time.monotonic()
    return Item(job, tensors, rows or 1, (ready_at - started) * 1000, ready_at)


def _parts(parts: tuple[InputPart, ...], payload: bytes) -> Iterator[tuple[InputPart, memoryview]]:
    view, offset = memoryview(payload), 0
    for part in parts:
        yield part, view[offset : offset + part.nbytes]
        offset += part.nbytes
    if offset != len(view):
        raise InvalidInput(f"The stored payload has {len(view)} bytes where its inputs add up to {offset}.")


def _tensor(part: InputPart, data: memoryview, spec: ModelSpec, max_pixels: int) -> Tensor:
    if part.source is InputSource.TENSOR and part.datatype is not None:
        return Tensor(part.name, part.datatype, part.shape, data)
    wanted = spec.input(part.name)
    if wanted is None:
        raise InvalidInput(f"The model has no input {part.name!r} any more.")
    return prepare(data, wanted, max_pixels)


def _with_batch_dimension(tensor: Tensor, spec: ModelSpec, rows: int | None) -> Tensor:
    if spec.max_batch_size == 0 or rows is not None:
        return tensor
    return Tensor(tensor.name, tensor.datatype, (1, *tensor.shape), tensor.data)
