"""Typed contents, for engines that answer in protobuf numbers: each datatype as the raw bytes that it stands for."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.datatypes import Datatype, pack_bytes
from jobs.errors import EngineFailed
from workers.triton import decode
from workers.triton.messages import InferCall
from workers.triton.pb import inference_pb2 as pb

CALL = InferCall("m", "", "", ())


def typed(datatype: Datatype, field: str, values: list[Any], shape: list[int]) -> pb.ModelInferResponse:
    """A response with one output in typed contents."""
    response = pb.ModelInferResponse()
    output = response.outputs.add(name="y", datatype=datatype.value, shape=shape)
    getattr(output.contents, field).extend(values)
    return response


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        (Datatype.BOOL, "bool_contents", [True, False]),
        (Datatype.INT8, "int_contents", [-128, 127]),
        (Datatype.INT16, "int_contents", [-(2**15), 2**15 - 1]),
        (Datatype.INT32, "int_contents", [-(2**31), 2**31 - 1]),
        (Datatype.INT64, "int64_contents", [-(2**63), 2**63 - 1]),
        (Datatype.UINT8, "uint_contents", [0, 255]),
        (Datatype.UINT16, "uint_contents", [0, 2**16 - 1]),
        (Datatype.UINT32, "uint_contents", [0, 2**32 - 1]),
        (Datatype.UINT64, "uint64_contents", [0, 2**64 - 1]),
        (Datatype.FP32, "fp32_contents", [0.5, -1.5]),
        (Datatype.FP64, "fp64_contents", [0.1, float("inf")]),
    ],
)
def test_typed_numbers_become_raw_bytes(datatype: Datatype, field: str, values: list[Any]) -> None:
    (output,) = decode.reply(CALL, typed(datatype, field, values, [2]).SerializeToString()).outputs
    assert output.data == np.array(values, datatype.numpy).tobytes()


def test_typed_strings_become_framed_bytes() -> None:
    (output,) = decode.reply(
        CALL, typed(Datatype.BYTES, "bytes_contents", [b"a\0b\0\0", b""], [2]).SerializeToString()
    ).outputs
    assert output.data == pack_bytes([b"a\0b\0\0", b""])


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (typed(Datatype.INT8, "int_contents", [300], [1]), "a number does not fit INT8"),
        (typed(Datatype.FP16, "fp32_contents", [1.0], [1]), "FP16 has no typed contents"),
        (typed(Datatype.FP32, "fp32_contents", [1.0], [2]), "expected 8 bytes for FP32"),
        (typed(Datatype.FP32, "fp32_contents", [], [2**40]), "has more than"),
    ],
)
def test_typed_contents_that_do_not_fit_are_the_engines_failure(response: pb.ModelInferResponse, problem: str) -> None:
    with pytest.raises(EngineFailed, match=problem):
        decode.reply(CALL, response.SerializeToString())


def test_an_output_without_elements_is_an_output() -> None:
    """B039: a detector that finds nothing answers with zero rows."""
    response = pb.ModelInferResponse(raw_output_contents=[b""])
    response.outputs.add(name="boxes", datatype="FP32", shape=[0, 4])
    (output,) = decode.reply(CALL, response.SerializeToString()).outputs
    assert (output.shape, output.data) == ((0, 4), b"")


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_a_reply_or_the_engines_failure(data: bytes) -> None:
    """T: Triton link, spoofed server."""
    with contextlib.suppress(EngineFailed):
        decode.reply(CALL, data)
