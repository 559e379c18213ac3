"""What the scripted engine can answer: models, faults, and responses right and wrong. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import numpy as np

from jobs.datatypes import Datatype, pack_bytes
from workers.triton.pb import inference_pb2 as pb

Answer = Callable[[pb.ModelInferRequest], pb.ModelInferResponse]
Word = str | Answer

FAULTS: Final[Mapping[str, tuple[grpc.StatusCode, str]]] = {
    "unavailable": (grpc.StatusCode.UNAVAILABLE, "the engine is not available"),
    "busy": (grpc.StatusCode.UNAVAILABLE, "[request id: 1] Exceeds maximum queue size"),
    "exhausted": (grpc.StatusCode.RESOURCE_EXHAUSTED, "out of something"),
    "queue_timeout": (grpc.StatusCode.UNAVAILABLE, "Request timeout expired"),
    "deadline": (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
    "reject": (grpc.StatusCode.INVALID_ARGUMENT, "[request id: 1] the input is not to the model's liking"),
    "precondition": (grpc.StatusCode.FAILED_PRECONDITION, "not in this state"),
    "out_of_range": (grpc.StatusCode.OUT_OF_RANGE, "an index is out of range"),
    "not_found": (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found"),
    "reloading": (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' has no available versions"),
    "unimplemented": (grpc.StatusCode.UNIMPLEMENTED, "ModelInfer RPC doesn't support models with decoupled policy"),
    "internal": (grpc.StatusCode.INTERNAL, "the engine broke"),
    "raising": (
        grpc.StatusCode.INTERNAL,
        "Failed to process the request(s) for model 'm_0_0', message: ValueError: no such class\n\n"
        "At:\n  /models/m/1/model.py(7): execute\n",
    ),
    "unknown": (grpc.StatusCode.UNKNOWN, "something happened"),
    "data_loss": (grpc.StatusCode.DATA_LOSS, "bits fell out"),
    "cut": (grpc.StatusCode.CANCELLED, "CANCELLED"),
    "cancelled": (grpc.StatusCode.CANCELLED, "the model gave up"),
    "unauthenticated": (grpc.StatusCode.UNAUTHENTICATED, "who are you"),
}


def _missing_output(response: pb.ModelInferResponse) -> None:
    del response.outputs[-1]
    del response.raw_output_contents[-1]


def _wrong_size(response: pb.ModelInferResponse) -> None:
    response.raw_output_contents[0] += b"\0"


def _missing_data(response: pb.ModelInferResponse) -> None:
    response.raw_output_contents.append(b"")


def _wrong_datatype(response: pb.ModelInferResponse) -> None:
    response.outputs[0].datatype = "FP7"


def _negative_shape(response: pb.ModelInferResponse) -> None:
    response.outputs[0].shape[0] = -1


def _output_twice(response: pb.ModelInferResponse) -> None:
    response.outputs.append(response.outputs[0])
    response.raw_output_contents.append(response.raw_output_contents[0])


TWISTS: Final[Mapping[str, Callable[[pb.ModelInferResponse], None]]] = {
    "missing_output": _missing_output,
    "wrong_size": _wrong_size,
    "missing_data": _missing_data,
    "wrong_datatype": _wrong_datatype,
    "negative_shape": _negative_shape,
    "output_twice": _output_twice,
}
"""Responses that make no sense, made from one that does."""


@dataclass(frozen=True)
class ScriptedModel:
    """A model as the server shows it; `older` has the configurations of versions that have one of their own."""

    config: pb.ModelConfig
    versions: tuple[str, ...] = ("1",)
    older: Mapping[str, pb.ModelConfig] = field(default_factory=dict)

    def config_of(self, version: str) -> pb.ModelConfig:
        """The configuration of a version; '' is the newest."""
        return self.older.get(version, self.config)


def scripted_model(
    name: str,
    *,
    inputs: Sequence[tuple[str, str, Sequence[int]]] = (("x", "FP32", (-1,)),),
    outputs: Sequence[tuple[str, str, Sequence[int]]] = (("y", "FP32", (-1,)),),
    max_batch_size: int = 8,
    instances: int = 1,
    parameter: str | None = None,
    decoupled: bool = False,
    versions: tuple[str, ...] = ("1",),
) -> ScriptedModel:
    """A model with `(name, datatype, dims)` tensors; `parameter` is the text of its `inferq` parameter."""
    config = pb.ModelConfig(name=name, platform="scripted", max_batch_size=max_batch_size)
    for tensor, datatype, dims in inputs:
        config.input.add(name=tensor, data_type=_config_name(datatype), dims=dims)
    for tensor, datatype, dims in outputs:
        config.output.add(name=tensor, data_type=_config_name(datatype), dims=dims)
    config.instance_group.add(count=instances, kind=pb.ModelInstanceGroup.KIND_CPU)
    if parameter is not None:
        config.parameters["inferq"].string_value = parameter
    config.model_transaction_policy.decoupled = decoupled
    return ScriptedModel(config, versions)


def _config_name(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


@dataclass
class SeenCall:
    """One inference request as it arrived; `batch_size` is 1 for a model without a batch dimension."""

    request: pb.ModelInferRequest
    peer: str
    seconds_left: float
    metadata: Mapping[str, str]
    batch_size: int

    @property
    def model(self) -> str:
        """The model that was asked."""
        return self.request.model_name

    @property
    def parameters(self) -> dict[str, Any]:
        """The request's parameters as plain values."""
        return {
            name: getattr(value, value.WhichOneof("parameter_choice") or "") if value.ListFields() else None
            for name, value in self.request.parameters.items()
        }


def datatype_name(number: pb.DataType) -> str:
    """A configuration's datatype as requests spell it."""
    return "BYTES" if number == pb.TYPE_STRING else pb.DataType.Name(number).removeprefix("TYPE_")


def answered(config: pb.ModelConfig, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    """The right response: each output is the input of its position where datatypes agree, else zeros."""
    response = pb.ModelInferResponse(model_name=config.name, model_version=request.model_version or "1", id=request.id)
    asked = {output.name: output.parameters["classification"].int64_param for output in request.outputs}
    for at, output in enumerate(config.output):
        if asked and output.name not in asked:
            continue
        shape, data = _values(config, output, request, at)
        name = datatype_name(output.data_type)
        top = asked.get(output.name, 0)
        if top:
            name, shape, data = "BYTES", *_ranked(Datatype(name), shape, data, top)
        response.outputs.add(name=output.name, datatype=name, shape=shape)
        response.raw_output_contents.append(data)
    return response


def _values(
    config: pb.ModelConfig, output: pb.ModelOutput, request: pb.ModelInferRequest, at: int
) -> tuple[list[int], bytes]:
    name = datatype_name(output.data_type)
    if at < len(request.inputs) and request.inputs[at].datatype == name:
        return list(request.inputs[at].shape), request.raw_input_contents[at]
    batch = [request.inputs[0].shape[0]] if config.max_batch_size and request.inputs else []
    shape = [*batch, *(max(dim, 1) for dim in output.dims)]
    count = int(np.prod(shape))
    datatype = Datatype(name)
    return shape, pack_bytes([b""] * count) if datatype is Datatype.BYTES else bytes(count * (datatype.itemsize or 0))


def _ranked(datatype: Datatype, shape: Sequence[int], data: bytes, top: int) -> tuple[list[int], bytes]:
    rows = np.frombuffer(data, datatype.numpy).reshape(shape)
    rows = rows.reshape(-1, rows.shape[-1])
    best = np.argsort(-rows, axis=1, kind="stable")[:, :top]
    words = [f"{row[at]:f}:{at}".encode() for row, order in zip(rows, best, strict=True) for at in order]
    return [*shape[:-1], best.shape[1]], pack_bytes(words)


def type_contents(response: pb.ModelInferResponse) -> None:
    """Say the same FP32 outputs in protobuf numbers instead of raw bytes."""
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        output.contents.fp32_contents.extend(np.frombuffer(raw, "<f4").tolist())
    del response.raw_output_contents[:]
