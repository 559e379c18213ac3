"""The outputs of a succeeded job: from stored bytes to what a client asked for.

It owns what is read and how much is encoded at a time; how elements look in each format is `api.formats`' business.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from api import render
from api.formats.binary import tensors_to_binary
from api.formats.json import classification_to_json, dumps, tensor_to_json
from api.formats.msgpack import tensors_to_msgpack
from api.services import Services
from jobs.datatypes import Datatype
from jobs.record import Job, OutputPart
from jobs.spec import OutputKind
from jobs.store import Inspection
from jobs.tensors import Tensor, tensor_of_bytes

PIECE_ELEMENTS: Final = 32_768
"""Elements that are made JSON at once: about a millisecond in which the process does nothing else."""


class Output(NamedTuple):
    """One output's values and how they are meant to be shown."""

    tensor: Tensor
    kind: OutputKind


def split(parts: Sequence[OutputPart], payload: bytes) -> list[Output]:
    """The outputs in a result payload, without copying; raises ValueError where it has another size than they say."""
    view = memoryview(payload)
    outputs: list[Output] = []
    start = 0
    for part in parts:
        end = start + part.nbytes
        outputs.append(Output(Tensor(part.name, part.datatype, part.shape, view[start:end]), part.kind))
        start = end
    if start != len(view):
        raise ValueError(f"a result of {len(view)} bytes is said to have {start}")
    return outputs


async def inline_output(services: Services, found: Inspection) -> tuple[bytes | None, bool]:
    """The `output` member of a job object as JSON, and whether it is left out for its size.

    What can't fit is not even read, so that a poll costs the same whatever the size of the result.
    """
    job, limit = found.job, services.settings.inline_output_bytes
    if not render.has_result(job, found.now_ms) or job.outcome is None:
        return None, False
    if sum(map(least_json_bytes, job.outcome.outputs)) > limit:
        return None, True
    payload = await services.store.output(job)
    if payload is None:
        return None, False
    document = dumps(json_document(split(job.outcome.outputs, payload)))
    return (document, False) if len(document) <= limit else (None, True)


def least_json_bytes(part: OutputPart) -> int:
    """A size that its JSON has at least: two characters an element, or a text's own bytes, quotes and comma."""
    count = math.prod(part.shape)
    return part.nbytes - count if part.datatype is Datatype.BYTES else 2 * count


def json_document(outputs: Sequence[Output]) -> dict[str, Any]:
    """Outputs by name, for `dumps`: best classes as a list of them, anything else as datatype, shape and flat data."""
    return {output.tensor.name: _shown(output) for output in outputs}


def _shown(output: Output) -> Any:
    if output.kind is OutputKind.CLASSIFICATION:
        return classification_to_json(output.tensor)["data"]
    shown = tensor_to_json(output.tensor)
    del shown["name"]
    return shown


def json_pieces(outputs: Sequence[Output], piece_elements: int = PIECE_ELEMENTS) -> Iterator[bytes]:
    """The same document as bytes, in pieces that are each made quickly."""
    separator = b"{"
    for output in outputs:
        yield separator + dumps(output.tensor.name) + b":"
        separator = b","
        if output.kind is OutputKind.CLASSIFICATION:
            yield dumps(_shown(output))
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


def protocol_binary(job: Job, outputs: Sequence[Output]) -> tuple[int, bytes]:
    """The Open Inference Protocol's binary answer, behind the length of its JSON header."""
    return tensors_to_binary([output.tensor for output in outputs], _envelope(job))


def protocol_msgpack(job: Job, outputs: Sequence[Output]) -> bytes:
    """The same answer as msgpack, with raw bytes for data."""
    return tensors_to_msgpack([output.tensor for output in outputs], _envelope(job))


def _envelope(job: Job) -> dict[str, Any]:
    version = job.outcome.model_version if job.outcome else job.request.model_version
    return {"model_name": job.request.model, "model_version": version, "id": job.request.request_id or job.id}
