"""Tensors against a model: datatypes, shapes, rows, sizes and values."""

import base64
from typing import Any

import msgpack
import numpy as np
import pytest

from jobs.datatypes import pack_bytes
from tests.support.intake import Gateway, document

pytestmark = pytest.mark.anyio

MSGPACK = {"Content-Type": "application/msgpack"}


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.mark.parametrize(
    ("model", "shape", "count", "rows"),
    [
        ("fixed", [3], 3, None),
        ("fixed", [1, 3], 3, 1),
        ("fixed", [8, 3], 24, 8),
        ("any_fp32", [5], 5, None),
        ("any_fp32", [2, 5], 10, 2),
        ("plain", [5], 5, None),
        ("scalar", [], 1, None),
    ],
)
async def test_one_item_and_rows_are_told_apart_by_their_rank(
    gateway: Gateway, model: str, shape: list[int], count: int, rows: int | None
) -> None:
    """B033"""
    submission = await gateway.tensor(model, "FP32", shape, list(range(count)))
    assert submission.request.rows == rows
    assert submission.request.inputs[0].shape == tuple(shape)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("fixed", []),
        ("fixed", [2]),
        ("fixed", [3, 1]),
        ("fixed", [1, 1, 3]),
        ("fixed", [-1]),
        ("fixed", [-3]),
        ("any_fp32", [-1]),
        ("any_fp32", [2, 2, 2]),
        ("plain", [1, 5]),
        ("plain", []),
        ("scalar", [1]),
        ("fixed", [3] * 64),
        ("fixed", [2**63]),
    ],
)
async def test_a_shape_that_does_not_fit_is_refused_with_both_shapes(
    gateway: Gateway, model: str, shape: list[int]
) -> None:
    """B033"""
    problem = await gateway.bad_tensor(model, "FP32", shape, [1.0])
    assert (problem["status"], problem["code"], problem["input"]) == (422, "invalid_tensor", "x")
    assert problem["got"]["shape"] == shape[:40]
    assert problem["expected"] == {"datatype": "FP32", "shape": list(gateway.models[model].inputs[0].dims)}


@pytest.mark.parametrize("rows", [0, 9])
async def test_rows_are_at_least_one_and_at_most_the_batch_size(gateway: Gateway, rows: int) -> None:
    problem = await gateway.bad_tensor("fixed", "FP32", [rows, 3], [0.0] * rows * 3)
    assert problem["code"] == "invalid_tensor"
    assert "1 to 8" in problem["detail"]


async def test_all_inputs_have_the_same_number_of_rows(gateway: Gateway) -> None:
    a = {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}
    for b in ({"shape": [2], "data": [1, 2]}, {"shape": [1, 2], "data": [1, 2]}):
        problem = await gateway.refused(json={"model": "pair", "inputs": [a, {"name": "b", "datatype": "INT64", **b}]})
        assert problem["code"] == "invalid_tensor"
    both = {"name": "b", "datatype": "INT64", "shape": [2, 1], "data": [[1], [2]]}
    assert (await gateway.accepted(json={"model": "pair", "inputs": [a, both]})).request.rows == 2


@pytest.mark.parametrize("shape", [[0], [2, 0]])
async def test_a_variable_dimension_may_be_zero(gateway: Gateway, shape: list[int]) -> None:
    """B039"""
    submission = await gateway.tensor("any_fp32", "FP32", shape, [])
    assert bytes(submission.payload) == b""
    assert submission.request.inputs[0].shape == tuple(shape)
    nested: list[Any] = [[]] * shape[0] if len(shape) > 1 else []
    assert (await gateway.tensor("any_fp32", "FP32", shape, nested)).request == submission.request


async def test_a_fixed_dimension_may_not_be_zero(gateway: Gateway) -> None:
    """B039"""
    assert (await gateway.bad_tensor("fixed", "FP32", [0], []))["code"] == "invalid_tensor"


@pytest.mark.parametrize("datatype", ["FP64", "float32", "fp32", "", "INVALID", "x" * 10_000])
async def test_another_datatype_is_refused_with_both(gateway: Gateway, datatype: str) -> None:
    """B040"""
    problem = await gateway.bad_tensor("fixed", datatype, [3], [1, 2, 3])
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
    assert problem["expected"]["datatype"] == "FP32"
    assert len(problem["detail"]) < 300


@pytest.mark.parametrize("size", [0, 11, 13, 24])
async def test_raw_data_of_another_size_is_refused_with_both_sizes(gateway: Gateway, size: int) -> None:
    """B040"""
    body = msgpack.packb(document("fixed", "FP32", [3], b"\0" * size))
    problem = await gateway.refused(content=body, headers=MSGPACK)
    assert problem["code"] == "invalid_tensor"
    assert f"expected 12 bytes for FP32 [3], got {size}" in problem["detail"]


@pytest.mark.parametrize("count", [0, 2, 4])
async def test_another_number_of_elements_is_refused_with_both_numbers(gateway: Gateway, count: int) -> None:
    problem = await gateway.bad_tensor("fixed", "FP32", [3], [0.0] * count)
    assert f"expected 3 elements for shape [3], got {count}" in problem["detail"]


async def test_a_shape_of_more_elements_than_memory_costs_nothing(gateway: Gateway) -> None:
    for shape, data in (([2**62], [1.0]), ([2**31 + 1], []), ([8, 2**60], [])):
        problem = await gateway.bad_tensor("any_fp32", "FP32", shape, data)
        assert problem["code"] == "invalid_tensor"
        assert "more than 2147483648 elements" in problem["detail"]


@pytest.mark.parametrize(
    "raw",
    [b"\x03\x03\x03\x03ab\x63", pack_bytes([b"ab"])[:-1], pack_bytes([b"ab"]), pack_bytes([b"ab"] * 3), b"\1\0\0"],
)
async def test_bytes_with_wrong_lengths_are_refused(gateway: Gateway, raw: bytes) -> None:
    """B034"""
    problem = await gateway.refused(content=msgpack.packb(document("strings", "BYTES", [2], raw)), headers=MSGPACK)
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")


async def test_bytes_of_more_than_a_million_elements_are_refused_before_they_are_counted(gateway: Gateway) -> None:
    shape = [1_000_001]
    for data in (b"\0\0\0\0" * shape[0], [""] * shape[0]):
        body = msgpack.packb(document("any_bytes", "BYTES", shape, data))
        problem = await gateway.refused(content=body, headers=MSGPACK)
        assert problem["code"] == "invalid_tensor"
        assert "may have 1000000 elements" in problem["detail"]


async def test_bytes_arrive_bit_for_bit_in_every_form(gateway: Gateway) -> None:
    """B036"""
    elements = [b"a\0b\0\0", "Grüße 世界\0".encode()]
    expected = pack_bytes(elements)
    encoded = [{"b64": base64.b64encode(element).decode()} for element in elements]
    texts = [element.decode() for element in elements]
    for data in (encoded, texts, [texts[0], encoded[1]]):
        assert bytes((await gateway.tensor("strings", "BYTES", [2], data)).payload) == expected
    for raw in (expected, elements, texts):
        body = msgpack.packb(document("strings", "BYTES", [2], raw))
        assert bytes((await gateway.accepted(content=body, headers=MSGPACK)).payload) == expected


@pytest.mark.parametrize(
    "element", [1, 1.5, None, True, [], {}, {"b64": 1}, {"b64": "a"}, {"b64": "é"}, {"b64": "", "c": 1}]
)
async def test_bytes_of_other_kinds_are_refused(gateway: Gateway, element: Any) -> None:
    problem = await gateway.bad_tensor("strings", "BYTES", [2], ["ok", element])
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
    assert "element 1 is" in problem["detail"]


async def test_half_floats_are_converted_and_their_overflow_is_stated(gateway: Gateway) -> None:
    """B037"""
    submission = await gateway.tensor("any_fp16", "FP16", [3], [0.1, 65504, 1e-8])
    assert bytes(submission.payload) == np.array([0.1, 65504, 1e-8], "<f2").tobytes()
    problem = await gateway.bad_tensor("any_fp16", "FP16", [4], [0.1, 65504, 65520, 1e-8])
    assert problem["code"] == "invalid_tensor"
    assert "element 2 is 65520.0, beyond FP16's largest 65504" in problem["detail"]


@pytest.mark.parametrize(
    ("datatype", "value", "words"),
    [
        ("FP32", 3.5e38, "beyond FP32's largest"),
        ("BF16", 3.4e38, "beyond BF16's largest"),
        ("UINT8", 256, "outside of UINT8's 0 to 255"),
        ("UINT8", -1, "outside of UINT8's 0 to 255"),
        ("INT8", 128, "outside of INT8's -128 to 127"),
        ("UINT32", 2**32, "outside of UINT32's"),
        ("INT64", 2**63, "outside of INT64's"),
        ("UINT64", -1, "outside of UINT64's"),
        ("UINT64", 2**64, "outside of UINT64's 0 to 18446744073709551615"),
        ("INT64", -(2**63) - 1, "outside of INT64's -9223372036854775808"),
        ("INT64", 10**30, "outside of INT64's"),
        ("INT8", 1e30, "outside of INT8's -128 to 127"),
        ("INT32", 1.0, "not an integer"),
        ("INT32", True, "a boolean, not an integer"),
        ("FP32", True, "a boolean, not a number"),
        ("FP32", "1.0", "a text, not a number"),
        ("FP32", None, "null, not a number"),
        ("BOOL", 1, "an integer, not true or false"),
        ("FP64", {"b64": ""}, "an object, not a number"),
    ],
)
async def test_a_value_that_its_datatype_can_not_hold_is_refused(
    gateway: Gateway, datatype: str, value: Any, words: str
) -> None:
    problem = await gateway.bad_tensor(f"any_{datatype.lower()}", datatype, [1], [value])
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
    assert words in problem["detail"]


async def test_nested_data_must_be_nested_as_the_shape(gateway: Gateway) -> None:
    await gateway.tensor("grid", "INT32", [2, 1, 2], [[[1, 2]], [[3, 4]]])
    await gateway.tensor("grid", "INT32", [2, 1, 2], [1, 2, 3, 4])
    for data in ([[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]], [[[1, 2]], [[3]]], [[[1, 2]], 3], [[1, 2, 3, 4]]):
        problem = await gateway.bad_tensor("grid", "INT32", [2, 1, 2], data)
        assert problem["code"] == "invalid_tensor"


@pytest.mark.parametrize("data", [[], [[]], [[[]], [[]]], [[], []], [[[], []], [[], []]]])
async def test_no_elements_may_be_nested_in_any_way(gateway: Gateway, data: Any) -> None:
    submission = await gateway.tensor("grid", "INT32", [2, 0, 2], data)
    assert (submission.request.inputs[0].shape, bytes(submission.payload)) == ((2, 0, 2), b"")
    assert (await gateway.bad_tensor("grid", "INT32", [2, 0, 2], [[[1]]]))["code"] == "invalid_tensor"
    assert (await gateway.bad_tensor("grid", "INT32", [2, 1, 2], data))["code"] == "invalid_tensor"


async def test_bool_bytes_other_than_zero_and_one_are_refused(gateway: Gateway) -> None:
    body = msgpack.packb(document("any_bool", "BOOL", [2], b"\x00\x02"))
    assert (await gateway.refused(content=body, headers=MSGPACK))["code"] == "invalid_tensor"


async def test_floats_of_msgpack_keep_infinities_and_nan(gateway: Gateway) -> None:
    values = [float("inf"), float("-inf"), float("nan"), -0.0]
    for datatype, dtype in (("FP16", "<f2"), ("FP32", "<f4"), ("FP64", "<f8")):
        body = msgpack.packb(document(f"any_{datatype.lower()}", datatype, [4], values))
        submission = await gateway.accepted(content=body, headers=MSGPACK)
        assert bytes(submission.payload) == np.array(values, dtype).tobytes()
    body = msgpack.packb(document("any_bf16", "BF16", [4], values))
    words = np.frombuffer((await gateway.accepted(content=body, headers=MSGPACK)).payload, "<u2")
    assert [hex(word) for word in words] == ["0x7f80", "0xff80", "0x7fc0", "0x8000"]
