"""The outputs of a succeeded job: from stored bytes to what a client asked for.

It owns what is read and how much is encoded at a time; how elements look in each format is `api.formats`' business.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from api.formats.binary import tensors_to_binary
from api.formats.msgpack import tensors_to_msgpack
from jobs.datatypes import Datatype
from jobs.outputs import Output, dumps, shown, tensor_to_json
from jobs.record import Job
from jobs.spec import OutputKind
from jobs.tensors import Buffer, Tensor, tensor_of_bytes

PIECE_ELEMENTS: Final = 32_768
"""Elements that are made JSON at once: about a millisecond in which the process does nothing else."""


def json_pieces(outputs: Sequence[Output], piece_elements: int = PIECE_ELEMENTS) -> Iterator[bytes]:
    """The same document as bytes, in pieces that are each made quickly."""
    separator = b"{"
    for output in outputs:
        yield separator + dumps(output.tensor.name) + b":"
        separator = b","
        if output.kind is OutputKind.CLASSIFICATION:
            yield dumps(shown(output))
        else:
            yield from _tensor_pieces(output.tensor, piece_elements)
    yield b"{}" if not outputs else b"}"


def _tensor_pieces(tensor: Tensor, piece_elements: int) -> Iterator[bytes]:
    head = dumps({"datatype": tensor.datatype.value, "shape": tensor.shape})
    yield head[:-1] + b',"data":['
    separator = b""
    for piece in _slices(tensor, piece_elements):
        yield separator + dumps(tensor_to_json(piece)["data"])[1:-1]
        separator = b","
    yield b"]}"


def _slices(tensor: Tensor, elements: int) -> Iterator[Tensor]:
    """The tensor's elements in row-major order, so many at a time, without its shape."""
    if tensor.datatype is Datatype.BYTES:
        texts = tensor.array().reshape(-1)
        for start in range(0, len(texts), elements):
            piece = texts[start : start + elements].tolist()
            yield tensor_of_bytes(tensor.name, (len(piece),), piece)
        return
    itemsize = tensor.datatype.itemsize or 1
    view = memoryview(tensor.data)
    for start in range(0, len(view), elements * itemsize):
        data = view[start : start + elements * itemsize]
        yield Tensor(tensor.name, tensor.datatype, (len(data) // itemsize,), data)


def protocol_binary(job: Job, outputs: Sequence[Output]) -> tuple[int, list[Buffer]]:
    """The Open Inference Protocol's binary answer in parts, behind the length of its JSON header."""
    classes = {
        output.tensor.name: output.tensor.shape[-1] if output.tensor.shape else 1
        for output in outputs
        if output.kind is OutputKind.CLASSIFICATION
    }
    return tensors_to_binary([output.tensor for output in outputs], _envelope(job), classes)


def protocol_msgpack(job: Job, outputs: Sequence[Output]) -> bytes:
    """The same answer as msgpack, with raw bytes for data."""
    return tensors_to_msgpack([output.tensor for output in outputs], _envelope(job))


def _envelope(job: Job) -> dict[str, Any]:
    version = job.outcome.model_version if job.outcome else job.request.model_version
    return {"model_name": job.request.model, "model_version": version, "id": job.request.request_id or job.id}
