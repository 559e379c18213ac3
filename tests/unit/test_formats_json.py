"""Tensors as JSON, and what of JSON is read."""

import json

import numpy as np
import pytest

from api.formats import FormatError
from api.formats.json import loads
from jobs.datatypes import Datatype
from jobs.outputs import classification_to_json, dumps, tensor_to_json
from jobs.tensors import Tensor, tensor_of_bytes


def tensor(datatype: Datatype, values: object, dtype: str) -> Tensor:
    """A tensor of these values."""
    array = np.array(values, dtype=dtype)
    return Tensor("y", datatype, array.shape, array.tobytes())


def test_a_tensor_is_its_name_datatype_shape_and_flat_data() -> None:
    assert json.loads(dumps(tensor_to_json(tensor(Datatype.INT32, [[1, -2], [3, 4]], "<i4")))) == {
        "name": "y",
        "datatype": "INT32",
        "shape": [2, 2],
        "data": [1, -2, 3, 4],
    }


@pytest.mark.parametrize(
    ("datatype", "dtype", "values", "text"),
    [
        (Datatype.FP32, "<f4", [np.nan, np.inf, -np.inf, -0.0, 0.1], b"[null,null,null,-0.0,0.1]"),
        (Datatype.FP64, "<f8", [np.nan, 5e-324, 0.1], b"[null,5e-324,0.1]"),
        (Datatype.FP16, "<f2", [np.inf, 65504, 6e-8], b"[null,65504.0,5.9604645e-8]"),
        (Datatype.BF16, "<u2", [0x3F80, 0x7FC0, 0xFF80, 0x3DCD], b"[1.0,null,null,0.100097656]"),
        (Datatype.INT64, "<i8", [2**63 - 1, -(2**63)], b"[9223372036854775807,-9223372036854775808]"),
        (Datatype.UINT64, "<u8", [2**64 - 1], b"[18446744073709551615]"),
        (Datatype.BOOL, "?", [True, False], b"[true,false]"),
        (Datatype.INT8, "i1", [], b"[]"),
    ],
)
def test_numbers_are_exact_and_non_finite_ones_null(
    datatype: Datatype, dtype: str, values: list[float], text: bytes
) -> None:
    assert dumps(tensor_to_json(tensor(datatype, values, dtype))["data"]) == text


def test_a_scalar_is_one_element() -> None:
    plain = json.loads(dumps(tensor_to_json(tensor(Datatype.FP32, 2.5, "<f4"))))
    assert (plain["shape"], plain["data"]) == ([], [2.5])


def test_bytes_are_text_where_they_are_utf8_and_base64_where_not() -> None:
    """B036"""
    elements = [b"a\0b\0\0", "世界".encode(), b"\xff\0", b""]
    plain = json.loads(dumps(tensor_to_json(tensor_of_bytes("y", [2, 2], elements))))
    assert plain["data"] == ["a\0b\0\0", "世界", {"b64": "/wA="}, ""]


def test_classes_are_label_index_and_score_per_row() -> None:
    one = classification_to_json(tensor_of_bytes("p", [2], [b"0.953125:967:espresso", b"0.01:504:coffee: mug"]))
    assert one["data"] == [
        {"label": "espresso", "index": 967, "score": 0.953125},
        {"label": "coffee: mug", "index": 504, "score": 0.01},
    ]
    rows = classification_to_json(tensor_of_bytes("p", [2, 1], [b"1:0", b"nan:1:b"]))
    assert rows["data"] == [
        [{"label": None, "index": 0, "score": 1.0}],
        [{"label": "b", "index": 1, "score": None}],
    ]
    assert classification_to_json(tensor_of_bytes("p", [0], []))["data"] == []


@pytest.mark.parametrize("text", [b"", b"x:y", b"0.5", b"0.5:x:label"])
def test_a_class_that_the_engine_never_writes_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"could not convert|invalid literal"):
        classification_to_json(tensor_of_bytes("p", [1], [text]))


@pytest.mark.parametrize(
    "text",
    [b'{"a":":","a":1}', b'[{"a":1},{"a":1,"a":1}]', b'{"a":{"b":1,"b":"\\\\"}}', b'{"data":[{"a":1,"a":2}]}'],
)
def test_a_key_given_twice_is_found_wherever_it_stands(text: bytes) -> None:
    """V09"""
    with pytest.raises(FormatError, match="same key twice"):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [b'{"a":":"}', b'{":":":"}', b'{"\\"":"\\":\\\\"}', b'{"data":[{"b64":":"},{"b64":""}]}', b'":"', b"[]", b"1"],
)
def test_colons_in_texts_are_no_keys(text: bytes) -> None:
    """V09"""
    assert loads(text) == json.loads(text)
