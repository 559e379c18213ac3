"""Items to engine calls and answers back to items: which jobs share a call, and whose rows are whose.

Pure: it joins and slices bytes and must not know about stores, clocks or connections.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from jobs.datatypes import Datatype, pack_bytes
from jobs.errors import EngineFailed
from jobs.record import OutputPart
from jobs.spec import ModelSpec, OutputKind
from jobs.tensors import Buffer, Tensor
from workers.items import Item
from workers.triton.messages import BatchTensor, InferCall, RequestedOutput


@dataclass(frozen=True, slots=True)
class Batch:
    """Items that share one engine call, of one version of the model; `rows` is their sum."""

    items: tuple[Item, ...]

    @property
    def model_version(self) -> str:
        """The version that is asked for; '' is the engine's choice."""
        return self.items[0].job.request.model_version

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return sum(item.rows for item in self.items)

    def halves(self) -> "tuple[Batch, Batch]":
        """The batch cut in two, each at least one item."""
        middle = len(self.items) // 2
        return Batch(self.items[:middle]), Batch(self.items[middle:])


def collate(items: Sequence[Item], spec: ModelSpec, max_rows: int) -> list[Batch]:
    """Batches of at most `max_rows` rows, or what their version takes if that is less, in the items' order.

    Only items that agree in version, names, datatypes, item shapes, outputs, parameters and timeout share a call. One
    item's rows stay together. A model without batch dimension or with streamed answers gets one item a call, and so
    does a job that has failed before, so that it can't fail others.
    """
    open_batches: dict[Hashable, list[Item]] = {}
    batches: list[list[Item]] = []
    for item in items:
        own = spec.of_version(item.job.request.model_version)
        key = _key(item, own)
        group = open_batches.get(key)
        most = min(max_rows, own.max_batch_size)
        if group is None or sum(other.rows for other in group) + item.rows > most:
            group = open_batches[key] = []
            batches.append(group)
        group.append(item)
    return [Batch(tuple(group)) for group in batches]


def _key(item: Item, spec: ModelSpec) -> Hashable:
    request = item.job.request
    alone = spec.max_batch_size == 0 or spec.decoupled or item.job.failures > 0
    return (
        item.job.lease if alone else None,
        request.model_version,
        tuple((tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in item.tensors),
        request.outputs,
        tuple(sorted(request.parameters.items())),
        request.timeout_ms,
    )


def to_call(batch: Batch, spec: ModelSpec, request_id: str) -> InferCall:
    """The engine call of a batch, whose version has this spec. The items' buffers are handed on in order, not joined.

    A model that takes only full batches gets rows of zeros (empty BYTES) behind those of the items.
    """
    first = batch.items[0]
    fill = spec.max_batch_size - batch.rows if spec.has_fixed_batch else 0
    inputs: tuple[Tensor | BatchTensor, ...] = first.tensors
    if len(batch.items) > 1 or fill > 0:
        inputs = tuple(_joined(batch, i, fill) for i in range(len(first.tensors)))
    request = first.job.request
    return InferCall(
        model=spec.name,
        version=batch.model_version,
        request_id=request_id,
        inputs=inputs,
        outputs=tuple(RequestedOutput(output.name, output.classes) for output in request.outputs),
        parameters=dict(request.parameters),
    )


def _joined(batch: Batch, at: int, fill: int) -> BatchTensor:
    """One input's rows of all items, and `fill` rows of zeros behind them."""
    first = batch.items[0].tensors[at]
    parts: tuple[Buffer, ...] = tuple(item.tensors[at].data for item in batch.items)
    if fill > 0:
        itemsize = first.datatype.itemsize or len(pack_bytes([b""]))
        parts += (bytes(fill * math.prod(first.shape[1:]) * itemsize),)
    return BatchTensor(first.name, first.datatype, (batch.rows + fill, *first.shape[1:]), parts)


@dataclass(frozen=True, slots=True)
class Share:
    """One item's part of an answer: its outputs and the bytes of each, in the same order."""

    parts: tuple[OutputPart, ...]
    buffers: tuple[Buffer, ...]

    @property
    def nbytes(self) -> int:
        """Size of the result payload in bytes."""
        return sum(part.nbytes for part in self.parts)

    def payload(self) -> Buffer:
        """The result payload: the outputs' bytes back to back."""
        return self.buffers[0] if len(self.buffers) == 1 else b"".join(self.buffers)


def split(outputs: Sequence[Tensor], batch: Batch, spec: ModelSpec) -> list[Share]:
    """Each item's share of the answer, in the batch's order; `spec` is that of its version.

    An item that was sent without a batch dimension gets its outputs back without one. Streamed answers have been
    merged along their first dimension and belong to the one item as they are.
    What answers rows that only filled a batch up is dropped. Raises EngineFailed when an output's first dimension is
    not the number of rows that were sent.
    """
    classified = {output.name for output in batch.items[0].job.request.outputs if output.classes > 0}
    columns = [list(_slices(tensor, batch, spec)) for tensor in outputs]
    shares: list[Share] = []
    for i in range(len(batch.items)):
        tensors = [column[i] for column in columns]
        parts = tuple(
            OutputPart(
                name=tensor.name,
                datatype=tensor.datatype,
                shape=tensor.shape,
                nbytes=tensor.nbytes,
                kind=OutputKind.CLASSIFICATION if tensor.name in classified else OutputKind.TENSOR,
            )
            for tensor in tensors
        )
        shares.append(Share(parts, tuple(tensor.data for tensor in tensors)))
    return shares


def _slices(tensor: Tensor, batch: Batch, spec: ModelSpec) -> Iterator[Tensor]:
    """One tensor of the answer, cut into the items' rows."""
    if spec.max_batch_size == 0 or spec.decoupled:
        yield tensor
        return
    sent = spec.max_batch_size if spec.has_fixed_batch else batch.rows
    if not tensor.shape or tensor.shape[0] != sent:
        raise EngineFailed(
            f"The model answered output {tensor.name!r} with shape {list(tensor.shape)} for {sent} rows."
        )
    view = memoryview(tensor.data)
    ends = _row_ends(tensor, view)
    start_row = 0
    for item in batch.items:
        end_row = start_row + item.rows
        shape = (item.rows, *tensor.shape[1:]) if item.job.request.rows is not None else tensor.shape[1:]
        yield Tensor(tensor.name, tensor.datatype, shape, view[ends[start_row] : ends[end_row]])
        start_row = end_row


def _row_ends(tensor: Tensor, view: memoryview) -> list[int] | range:
    """Byte offsets of the row borders, the first and the last included."""
    rows = tensor.shape[0]
    if tensor.datatype is not Datatype.BYTES:
        row_bytes = len(view) // rows if rows else 0
        return [row_bytes * row for row in range(rows + 1)]
    per_row = 1
    for dim in tensor.shape[1:]:
        per_row *= dim
    ends, offset = [0], 0
    for _ in range(rows):
        for _ in range(per_row):
            offset += 4 + int.from_bytes(view[offset : offset + 4], "little")
        ends.append(offset)
    return ends
