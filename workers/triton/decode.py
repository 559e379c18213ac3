"""Pure conversion of what the engine answers into our messages.

It trusts nothing: a response that makes no sense becomes EngineFailed here, before anybody cuts it into items.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from jobs.datatypes import Datatype, DatatypeError, pack_bytes
from jobs.errors import EngineFailed
from jobs.tensors import Tensor
from workers.triton.errors import stream_failure_of
from workers.triton.messages import IndexEntry, InferCall, InferReply, ModelStatistics, Spent
from workers.triton.pb import inference_pb2 as pb
from workers.triton.plain import plain, summed

_NUMBERS: Final = {
    Datatype.BOOL: ("bool_contents", "?"),
    Datatype.INT8: ("int_contents", "b"),
    Datatype.INT16: ("int_contents", "h"),
    Datatype.INT32: ("int_contents", "i"),
    Datatype.INT64: ("int64_contents", "q"),
    Datatype.UINT8: ("uint_contents", "B"),
    Datatype.UINT16: ("uint_contents", "H"),
    Datatype.UINT32: ("uint_contents", "I"),
    Datatype.UINT64: ("uint64_contents", "Q"),
    Datatype.FP32: ("fp32_contents", "f"),
    Datatype.FP64: ("fp64_contents", "d"),
}
"""Where typed contents hold a datatype's elements, and `struct`'s letter for them; 16-bit floats come only raw."""


def reply(call: InferCall, data: bytes) -> InferReply:
    """The response to a unary call: of the outputs that were asked for, in that order, or of all, those that came.

    A model may leave outputs out, and the engine lets it. Raises EngineFailed for bytes that are no response and for
    data that doesn't fit datatype and shape.
    """
    try:
        response = pb.ModelInferResponse.FromString(data)
    except DecodeError as exc:
        raise EngineFailed("The engine answered with bytes that are no inference response.") from exc
    outputs = _tensors(response)
    if not call.outputs:
        return InferReply(response.model_version, tuple(outputs.values()))
    asked = tuple(outputs[asked.name] for asked in call.outputs if asked.name in outputs)
    return InferReply(response.model_version, asked)


def stream_reply(message: pb.ModelStreamInferResponse) -> tuple[InferReply | None, bool]:
    """One response of a stream, or None where it only says that it is the last, and whether it is.

    A decoupled model may answer with any of its outputs, so none is missed. Raises the JobFailure that an error message
    means, and EngineFailed as `reply` does.
    """
    response = message.infer_response
    if message.error_message:
        raise stream_failure_of(message.error_message, has_run=bool(response.model_name))
    is_final = response.parameters["triton_final_response"].bool_param
    outputs = _tensors(response)
    return (InferReply(response.model_version, tuple(outputs.values())) if outputs else None), is_final


def index(response: pb.RepositoryIndexResponse) -> tuple[IndexEntry, ...]:
    """The repository's entries, as listed."""
    return tuple(IndexEntry(entry.name, entry.version, entry.state, entry.reason) for entry in response.models)


def statistics(entries: Iterable[pb.ModelStatistics]) -> ModelStatistics:
    """The sum over several versions' counters."""
    return sum((_statistics(entry) for entry in entries), ModelStatistics())


def statistics_by_model(entries: Iterable[pb.ModelStatistics]) -> dict[str, list[dict[str, Any]]]:
    """Counters as the engine spells them, by model, one entry a version; the same version of several engines added."""
    versions: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        key = entry.name, entry.version
        versions[key] = summed(versions[key], plain(entry)) if key in versions else plain(entry)
    models: dict[str, list[dict[str, Any]]] = {}
    for (name, _), version in versions.items():
        models.setdefault(name, []).append(version)
    return models


def _statistics(entry: pb.ModelStatistics) -> ModelStatistics:
    stats = entry.inference_stats
    return ModelStatistics(
        inferences=entry.inference_count,
        executions=entry.execution_count,
        success=_spent(stats.success),
        fail=_spent(stats.fail),
        queue=_spent(stats.queue),
        compute_input=_spent(stats.compute_input),
        compute_infer=_spent(stats.compute_infer),
        compute_output=_spent(stats.compute_output),
        executions_by_size={batch.batch_size: batch.compute_infer.count for batch in entry.batch_stats},
    )


def _spent(duration: pb.StatisticDuration) -> Spent:
    return Spent(duration.count, duration.ns / 1e9)


def _tensors(response: pb.ModelInferResponse) -> dict[str, Tensor]:
    raw = response.raw_output_contents
    if raw and len(raw) != len(response.outputs):
        raise EngineFailed(f"The engine's response has {len(response.outputs)} outputs, but data for {len(raw)}.")
    tensors: dict[str, Tensor] = {}
    for at, output in enumerate(response.outputs):
        if output.name in tensors:
            raise EngineFailed(f"The engine's response has output '{output.name}' twice.")
        try:
            datatype = Datatype(output.datatype)
            data = raw[at] if raw else _typed(datatype, output.contents)
            tensor = Tensor(output.name, datatype, tuple(output.shape), data)
            tensor.check()
        except ValueError as exc:  # DatatypeError, and a datatype that doesn't exist
            raise EngineFailed(f"The engine's output '{output.name}' makes no sense: {exc}.") from exc
        tensors[output.name] = tensor
    return tensors


def _typed(datatype: Datatype, contents: pb.InferTensorContents) -> bytes:
    if datatype is Datatype.BYTES:
        return pack_bytes(contents.bytes_contents)
    if datatype not in _NUMBERS:
        raise DatatypeError(f"{datatype} has no typed contents")
    field, letter = _NUMBERS[datatype]
    numbers = getattr(contents, field)
    try:
        return struct.pack(f"<{len(numbers)}{letter}", *numbers)
    except struct.error as exc:
        raise DatatypeError(f"a number does not fit {datatype}") from exc
