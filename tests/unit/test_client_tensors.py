"""numpy arrays to the Open Inference Protocol's bytes and back, without a bit changed."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from inferq.client.tensors import Array, datatype_of, from_binary, to_binary, to_npy

NUMBERS = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(sizes=(16, 32, 64)),
)


def echoed(arrays: dict[str, Array]) -> dict[str, Array]:
    """What an engine that gives its inputs back would answer."""
    length, body = to_binary(arrays, {})
    header = json.loads(body[:length])
    answer = json.dumps({"outputs": header["inputs"]}).encode()
    return {entry["name"]: array for entry, array in from_binary(answer + body[length:], len(answer))}


@given(hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)))
def test_numbers_of_any_type_shape_and_byte_order_come_back_bit_equal(array: Array) -> None:
    back = echoed({"x": array})["x"]
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("<")
    assert back.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_bytes_come_back_with_their_nuls(elements: list[bytes]) -> None:
    """B036."""
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    assert echoed({"x": array})["x"].tolist() == elements


def test_texts_are_sent_as_utf_8() -> None:
    assert echoed({"x": np.array([["ü", ""]])})["x"].tolist() == [["ü".encode(), b""]]


def test_several_tensors_keep_their_order_and_their_bytes() -> None:
    arrays: dict[str, Array] = {
        "b": np.arange(3, dtype=np.int64),
        "a": np.array([[0.1]], dtype=np.float16),
        "c": np.array([b"x"]),
    }
    back = echoed(arrays)
    assert list(back) == ["b", "a", "c"]
    assert back["b"].tolist() == [0, 1, 2]
    assert back["a"].tobytes() == np.array([[0.1]], dtype=np.float16).tobytes()


def test_a_transposed_array_is_sent_row_by_row() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert echoed({"x": array})["x"].tolist() == array.tolist()


def test_bf16_is_sent_as_its_words_and_comes_back_as_float32() -> None:
    words = np.array([0x3F80, 0xC000, 0x7FC0], dtype=np.uint16)
    array: Array = words.view("V2")
    assert datatype_of(array) == "BF16"
    back = echoed({"x": array})["x"]
    assert back.dtype == np.float32
    assert back[:2].tolist() == [1.0, -2.0]
    assert np.isnan(back[2])


@pytest.mark.parametrize("array", [np.zeros(1, "complex64"), np.zeros(1, "datetime64[s]"), np.zeros(1, "V3")])
def test_types_that_no_datatype_has_are_refused(array: Array) -> None:
    with pytest.raises(ValueError, match="can't be sent"):
        datatype_of(array)
    with pytest.raises(ValueError, match="can't be sent"):
        to_npy(array)


def test_an_object_that_is_neither_text_nor_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="not int"):
        to_binary({"x": np.array([1], dtype=object)}, {})


@pytest.mark.parametrize(
    ("entry", "raw", "complaint"),
    [
        ({"datatype": "FP32", "shape": [2], "size": 8}, b"1234", "cut short"),
        ({"datatype": "FP32", "shape": [3], "size": 8}, b"12345678", "reshape"),
        ({"datatype": "BYTES", "shape": [1], "size": 5}, b"\x09\0\0\0a", "cut short"),
    ],
)
def test_an_answer_whose_sizes_do_not_fit_is_an_error(entry: dict[str, Any], raw: bytes, complaint: str) -> None:
    output = {"name": "y", "parameters": {"binary_data_size": entry.pop("size")}, **entry}
    header = json.dumps({"outputs": [output]}).encode()
    with pytest.raises(ValueError, match=complaint):
        from_binary(header + raw, len(header))
