"""Laws: what a format says of a tensor is that tensor again, bit for bit, or it is refused."""

import json
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.formats import FormatError, msgpack
from api.formats.binary import split, tensors_to_binary
from api.formats.json import loads
from api.formats.npy import read_npy, tensor_to_npy
from api.formats.values import data_from_values
from jobs.datatypes import Datatype, element_count, pack_bytes
from jobs.outputs import dumps, tensor_to_json
from jobs.tensors import Tensor

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
elements = st.binary(max_size=12) | st.text(max_size=6).map(str.encode)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any tensor: its elements are random bytes, so NaN payloads and subnormals are among them."""
    datatype = draw(st.sampled_from(Datatype))
    shape = draw(shapes)
    count = element_count(shape)
    if datatype is Datatype.BYTES:
        data = pack_bytes(draw(st.lists(elements, min_size=count, max_size=count)))
    elif datatype is Datatype.BOOL:
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        size = count * (datatype.itemsize or 0)
        data = draw(st.binary(min_size=size, max_size=size))
    return Tensor(
        draw(st.text(max_size=8)), datatype, shape, draw(st.sampled_from([bytes, bytearray, memoryview]))(data)
    )


def raw(tensor: Tensor) -> tuple[str, Datatype, tuple[int, ...], bytes]:
    """All of a tensor, comparable."""
    return tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)


def is_finite(tensor: Tensor) -> bool:
    """Whether every element is a number that JSON can say."""
    if tensor.datatype is Datatype.BF16:
        return bool(np.all((tensor.array() & 0x7F80) != 0x7F80))
    return tensor.datatype.numpy.kind != "f" or bool(np.isfinite(tensor.array()).all())


@given(st.lists(tensors(), max_size=3))
@settings(PATIENT)
def test_binary_gives_back_every_bit(items: list[Tensor]) -> None:
    length, parts = tensors_to_binary(items, {"model_name": "m"})
    text, section = split(b"".join(parts), length)
    outputs = json.loads(bytes(text))["outputs"]
    again = [
        Tensor(
            item["name"],
            Datatype(item["datatype"]),
            tuple(item["shape"]),
            section.take(item["parameters"]["binary_data_size"]),
        )
        for item in outputs
    ]
    section.finish()
    assert list(map(raw, again)) == list(map(raw, items))


@given(st.lists(tensors(), max_size=3))
@settings(PATIENT)
def test_msgpack_gives_back_every_bit(items: list[Tensor]) -> None:
    document = msgpack.loads(msgpack.tensors_to_msgpack(items, {"model_name": "m"}))
    again = [Tensor(o["name"], Datatype(o["datatype"]), tuple(o["shape"]), o["data"]) for o in document["outputs"]]
    assert list(map(raw, again)) == list(map(raw, items))


@given(tensors())
@settings(PATIENT)
def test_npy_gives_back_every_bit_or_refuses(item: Tensor) -> None:
    try:
        file = b"".join(tensor_to_npy(item))
    except FormatError:
        assert item.datatype is Datatype.BYTES
        return
    datatype, shape, data = read_npy(file)
    expected = Datatype.UINT16 if item.datatype is Datatype.BF16 else item.datatype
    assert (datatype, shape, bytes(data)) == (expected, item.shape, bytes(item.data))


@given(tensors())
@settings(PATIENT)
def test_json_gives_back_every_bit_of_finite_numbers_and_bytes(item: Tensor) -> None:
    plain = loads(dumps(tensor_to_json(item)))
    assert (plain["name"], plain["datatype"], tuple(plain["shape"])) == (item.name, item.datatype, item.shape)
    if is_finite(item):
        assert data_from_values(item.datatype, item.shape, plain["data"]) == bytes(item.data)
    else:
        assert None in plain["data"]


def nested(values: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Flat values nested as a shape."""
    array = np.empty(len(values), object)
    array[:] = values
    listed: list[Any] = array.reshape(shape).tolist()
    return listed


@given(tensors().filter(lambda item: len(item.shape) > 0 and is_finite(item)))
@settings(PATIENT)
def test_flat_and_nested_data_are_the_same_tensor(item: Tensor) -> None:
    flat = loads(dumps(tensor_to_json(item)["data"]))
    assert data_from_values(item.datatype, item.shape, nested(flat, item.shape)) == bytes(item.data)


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(alphabet=':"\\{},a\u1234', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet=':"\\{}data', max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_documents, st.sampled_from([None, 1]))
@settings(PATIENT)
def test_documents_without_twins_are_never_called_ambiguous(document: Any, indent: int | None) -> None:
    """V09"""
    assert loads(json.dumps(document, indent=indent).encode()) == document
    assert loads(json.dumps(document, ensure_ascii=False).encode()) == document


@st.composite
def json_with_a_twin(draw: st.DrawFn) -> str:
    """JSON in which one object, somewhere, has one key twice; the second time perhaps escaped."""
    key = draw(st.text(alphabet=':"\\{}data', min_size=1, max_size=4))
    escaped = "".join(f"\\u{ord(c):04x}" for c in key)
    values = [json.dumps(draw(json_documents)) for _ in range(3)]
    again = draw(st.sampled_from([json.dumps(key), f'"{escaped}"']))
    text = f"{{{json.dumps(key)}: {values[0]}, {again}: {values[1]}}}"
    for _ in range(draw(st.integers(0, 3))):
        text = draw(st.sampled_from([f"[{text}]", f'{{"data": {text}}}', f'{{"z:": {values[2]}, "y": {text}}}']))
    return text


@given(json_with_a_twin())
@settings(PATIENT, max_examples=300)
def test_a_twin_key_is_always_found(text: str) -> None:
    """V09"""
    try:
        loads(text.encode())
    except FormatError as exc:
        assert "same key twice" in str(exc)  # noqa: PT017
    else:
        raise AssertionError(text)
