"""A request put together by hand is what protobuf itself would have written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.datatypes import Datatype
from jobs.errors import ModelRejected
from jobs.tensors import Tensor
from workers.triton.encode import request_bytes
from workers.triton.messages import BatchTensor, InferCall, RequestedOutput
from workers.triton.pb import inference_pb2 as pb

names = st.text(max_size=10)
parameters = st.dictionaries(
    names.filter(lambda name: name not in ("timeout", "priority")),
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=10),
    max_size=4,
)
parts = st.lists(st.binary(max_size=300), max_size=4).map(tuple)


def value_of(parameter: pb.InferParameter) -> Any:
    """The plain value of a parameter."""
    return getattr(parameter, parameter.WhichOneof("parameter_choice") or "missing")


@given(buffers=st.lists(parts, max_size=4), wanted=parameters, outputs=st.lists(names, max_size=3))
def test_protobuf_reads_back_all_that_was_written(
    buffers: list[tuple[bytes, ...]], wanted: dict[str, bool | int | float | str], outputs: list[str]
) -> None:
    tensors = tuple(BatchTensor(f"x{at}", Datatype.UINT8, (at, 7), each) for at, each in enumerate(buffers))
    call = InferCall("m", "2", "id", tensors, tuple(RequestedOutput(name, 3) for name in outputs), wanted, priority=4)
    request = pb.ModelInferRequest.FromString(request_bytes(call, 1234))
    assert (request.model_name, request.model_version, request.id) == ("m", "2", "id")
    assert {name: value_of(value) for name, value in request.parameters.items()} == wanted | {
        "timeout": 1234,
        "priority": 4,
    }
    assert [(each.name, each.datatype, list(each.shape)) for each in request.inputs] == [
        (tensor.name, "UINT8", list(tensor.shape)) for tensor in tensors
    ]
    assert list(request.raw_input_contents) == [b"".join(each) for each in buffers]
    assert [each.name for each in request.outputs] == outputs
    assert all(each.parameters["classification"].int64_param == 3 for each in request.outputs)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2**21, 2**21 + 1])
def test_every_length_of_data_is_framed_right(size: int) -> None:
    tensor = Tensor("x", Datatype.UINT8, (size,), bytes(size))
    request = pb.ModelInferRequest.FromString(request_bytes(InferCall("m", "", "", (tensor, tensor)), 1))
    assert [len(raw) for raw in request.raw_input_contents] == [size, size]


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_a_number_beyond_the_protocol_is_rejected(value: int) -> None:
    with pytest.raises(ModelRejected, match="'n' does not fit into 64 bits"):
        request_bytes(InferCall("m", "", "", (), parameters={"n": value}), 1)


def test_only_streams_ask_for_a_final_response() -> None:
    call = InferCall("m", "", "", ())
    unary = pb.ModelInferRequest.FromString(request_bytes(call, 1))
    streamed = pb.ModelInferRequest.FromString(request_bytes(call, 1, is_stream=True))
    assert set(streamed.parameters) - set(unary.parameters) == {"triton_enable_empty_final_response"}
