"""Datatypes, their byte layout, and tensors as raw bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.datatypes import (
    MAX_ELEMENTS,
    Datatype,
    DatatypeError,
    check_size,
    element_count,
    pack_bytes,
    unpack_bytes,
)
from jobs.tensors import Tensor, tensor_of_bytes

relaxed = settings(max_examples=50, deadline=None)

SIZES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BF16": 2,
    "BYTES": None,
}


def test_there_are_the_fourteen_datatypes_of_the_protocol_with_their_sizes() -> None:
    assert {datatype.value: datatype.itemsize for datatype in Datatype} == SIZES


@pytest.mark.parametrize("datatype", [datatype for datatype in Datatype if datatype is not Datatype.BYTES])
def test_elements_are_little_endian(datatype: Datatype) -> None:
    assert datatype.numpy.newbyteorder("<") == datatype.numpy
    one = np.ones(1, datatype.numpy).tobytes()
    assert len(one) == datatype.itemsize


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((0,), 0), ((2, 0), 0), ((3, 4), 12), ((1,) * 20, 1)])
def test_the_number_of_elements_is_the_product_of_the_shape(shape: tuple[int, ...], count: int) -> None:
    assert element_count(shape) == count


@pytest.mark.parametrize(
    "shape", [(-1,), (2, -3), (0, -1), (MAX_ELEMENTS + 1,), (2**40, 2**40), (2**63, 2), (65536,) * 4]
)
def test_shapes_that_no_tensor_has_are_refused(shape: tuple[int, ...]) -> None:
    """T: JSON/msgpack/tensor: a product that overflows 64 bits is no way in."""
    with pytest.raises(DatatypeError):
        element_count(shape)


def test_a_huge_dimension_beside_an_empty_one_is_empty() -> None:
    assert element_count((2**62, 0)) == 0


@relaxed
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_bytes_elements_come_back_as_they_were(elements: list[bytes]) -> None:
    """B036: NUL and trailing zeros included."""
    packed = pack_bytes(elements)
    assert unpack_bytes(packed, len(elements)) == elements
    assert unpack_bytes(memoryview(packed), len(elements)) == elements
    check_size(Datatype.BYTES, (len(elements),), packed)


@pytest.mark.parametrize(
    ("data", "count", "complaint"),
    [
        (b"\x03\x03\x03\x03abc", 1, "claims 50529027 bytes where 3 are left"),
        (b"\x05\x00\x00\x00abc", 1, "claims 5 bytes where 3 are left"),
        (b"\x03\x00\x00\x00abc\x00", 1, "cut inside its 4-byte length"),
        (b"\x03\x00\x00\x00abc\x00\x00\x00\x00", 1, "expected 1 BYTES elements, got more"),
        (b"\x03\x00\x00\x00abc", 2, "expected 2 BYTES elements, got 1"),
        (b"", 1, "expected 1 BYTES elements, got 0"),
        (b"\xff\xff\xff\xff", 1, "claims 4294967295 bytes"),
    ],
)
def test_bytes_that_are_framed_wrongly_are_refused(data: bytes, count: int, complaint: str) -> None:
    """B034."""
    with pytest.raises(DatatypeError, match=complaint):
        unpack_bytes(data, count)


@relaxed
@given(st.binary(max_size=60), st.integers(0, 5))
def test_no_bytes_at_all_can_do_more_than_be_refused(data: bytes, count: int) -> None:
    try:
        elements = unpack_bytes(data, count)
    except DatatypeError:
        return
    assert pack_bytes(elements) == data


@relaxed
@given(st.sampled_from(Datatype), st.lists(st.integers(0, 5), max_size=4), st.integers(-1, 1))
def test_the_size_must_be_exact(datatype: Datatype, shape: list[int], surplus: int) -> None:
    """B040: double-sized data under a smaller datatype is not taken."""
    count = element_count(shape)
    if datatype is Datatype.BYTES or (not count and surplus < 0):
        return
    data = bytes(count * (datatype.itemsize or 0) + surplus)
    if surplus:
        with pytest.raises(DatatypeError, match=rf"expected {len(data) - surplus} bytes .* got {len(data)}"):
            check_size(datatype, shape, data)
    else:
        check_size(datatype, shape, data)


def test_a_boolean_is_the_byte_0_or_1() -> None:
    check_size(Datatype.BOOL, [3], b"\x00\x01\x01")
    check_size(Datatype.BOOL, [0], b"")
    with pytest.raises(DatatypeError, match="0 or 1"):
        check_size(Datatype.BOOL, [3], b"\x00\x02\x01")


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("datatype", [datatype for datatype in Datatype if datatype is not Datatype.BYTES])
def test_a_tensor_is_seen_as_an_array_without_a_copy(datatype: Datatype, buffer: type) -> None:
    expected = np.arange(6).astype(datatype.numpy).reshape(2, 3)
    tensor = Tensor("x", datatype, (2, 3), buffer(expected.tobytes()))
    assert tensor.nbytes == expected.nbytes
    array = tensor.array()
    assert array.dtype == datatype.numpy
    assert np.array_equal(array, expected)
    assert not array.flags.owndata


def test_a_tensor_measures_its_data_in_bytes_whatever_the_buffer_holds() -> None:
    tensor = Tensor("x", Datatype.FP32, (4,), np.ones(4, np.float32).data)
    assert tensor.nbytes == 16
    tensor.check()


def test_a_tensor_of_bytes_keeps_its_elements_and_shape() -> None:
    tensor = tensor_of_bytes("x", [2, 2], [b"a\0b\0\0", b"", "ü".encode(), b"\xff"])
    tensor.check()
    assert tensor.array().tolist() == [[b"a\0b\0\0", b""], ["ü".encode(), b"\xff"]]


@pytest.mark.parametrize("datatype", Datatype)
def test_empty_tensors_are_tensors(datatype: Datatype) -> None:
    """B039."""
    tensor = Tensor("x", datatype, (2, 0), b"")
    tensor.check()
    assert tensor.array().shape == (2, 0)


def test_a_tensor_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(DatatypeError):
        Tensor("x", Datatype.FP32, (2,), bytes(7)).check()
