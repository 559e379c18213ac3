"""`.npy` files: what numpy and others write, and what is refused."""

import io
from typing import Any

import numpy as np
import pytest

from api.formats import FormatError
from api.formats.npy import is_npy, read_npy, tensor_to_npy
from jobs.datatypes import Datatype, pack_bytes
from jobs.tensors import Tensor, tensor_of_bytes


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """The file that numpy writes."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version=version, allow_pickle=True)
    return file.getvalue()


def written(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A file with a header of one's own."""
    encoded = header.encode("latin-1")
    size = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + version + len(encoded).to_bytes(size, "little") + encoded + data


@pytest.mark.parametrize("datatype", [item for item in Datatype if item not in (Datatype.BYTES, Datatype.BF16)])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3), (2, 3, 4)])
def test_every_datatype_is_read_in_every_byte_order_and_layout(
    datatype: Datatype, order: str, layout: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(datatype.numpy)
    stored = array.astype(np.dtype(order + datatype.numpy.str[1:]))
    assert read_npy(saved(np.array(stored, order="F" if layout == "F" else "C"))) == (datatype, shape, array.tobytes())


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format_is_read(version: tuple[int, int]) -> None:
    assert read_npy(saved(np.array([1.5], "<f4"), version))[2] == np.array([1.5], "<f4").tobytes()


def test_what_needs_no_conversion_is_not_copied() -> None:
    file = saved(np.arange(10, dtype="<f4"))
    data = read_npy(file).data
    assert isinstance(data, memoryview)
    assert data.obj is file


@pytest.mark.parametrize(
    ("array", "elements", "shape"),
    [
        (np.array([b"ab", b"", b"abc"]), [b"ab", b"", b"abc"], (3,)),
        (np.array([["ä", "世界"], ["", "x"]]), ["ä".encode(), "世界".encode(), b"", b"x"], (2, 2)),
        (np.asfortranarray([["a", "b"], ["c", "d"]]), [b"a", b"b", b"c", b"d"], (2, 2)),
        (np.array(["é"]).astype(">U3"), ["é".encode()], (1,)),
        (np.array("scalar"), [b"scalar"], ()),
        (np.empty((0,), "S5"), [], (0,)),
    ],
)
def test_fixed_width_texts_are_bytes_elements(array: Any, elements: list[bytes], shape: tuple[int, ...]) -> None:
    assert read_npy(saved(array)) == (Datatype.BYTES, shape, pack_bytes(elements))


def test_two_byte_void_is_bf16() -> None:
    file = saved(np.array([0x3F80, 0xFFC1], "<u2").view("V2"))
    assert read_npy(file) == (Datatype.BF16, (2,), b"\x80\x3f\xc1\xff")


@pytest.mark.parametrize(
    "array",
    [
        np.array([{"a": 1}], dtype=object),
        np.array([1j]),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, [("a", "<f4")]),
        np.zeros(2, "V3"),
        np.zeros(2, "<f4").astype(np.longdouble),
    ],
    ids=["objects", "complex", "dates", "records", "void", "long double"],
)
def test_a_type_that_no_datatype_has_is_refused(array: Any) -> None:
    with pytest.raises(FormatError):
        read_npy(saved(array))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
        "{'shape':(2,),'fortran_order':False,'descr':'<f4'}\n",
        "{ 'fortran_order' : False , 'descr' : '<f4', 'shape' : ( 2 , ) }   \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '=f4', 'fortran_order': True, 'shape': (2,)}",
        "{'descr': '|f4', 'fortran_order': True, 'shape': (2,)}",
    ],
)
def test_headers_of_other_writers_are_read(header: str) -> None:
    assert read_npy(written(header, b"\0" * 8)) == (Datatype.FP32, (2,), b"\0" * 8)


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x01\x00\xff\xff",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
        written("{}", version=b"\x04\x00"),
        written("{}"),
        written("{'descr': '<f4', 'fortran_order': False}"),
        written("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", b"\0" * 4),
        written("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", b"\0" * 4),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': ()}", b"\0" * 4),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (1,,)}", b"\0" * 4),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}", b"\0" * 8),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (1e1,)}", b"\0" * 40),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904)}"),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 40 + ")}", b"\0" * 4),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}"),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"\0" * 7),
        written("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"\0" * 9),
        written("{'descr': '<S0', 'fortran_order': False, 'shape': (2147483648,)}"),
        written("{'descr': '|S1', 'fortran_order': False, 'shape': (1000001,)}", b"x" * 1_000_001),
        written("{'descr': '<S999999999', 'fortran_order': False, 'shape': (2147483648,)}", b"x"),
        written("{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", b"\xff\xff\xff\xff"),
        written("{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", b"\x00\xd8\x00\x00"),
        written("(" * 10_000),
        written("{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': ()}"),
        written("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n(S'true'\ntR."),
    ],
    ids=range(28),
)
def test_damaged_and_hostile_files_are_refused(file: bytes) -> None:
    with pytest.raises(FormatError):
        read_npy(file)


def test_numpy_reads_what_is_written() -> None:
    array = np.arange(12, dtype="<i8").reshape(3, 4)
    file = b"".join(tensor_to_npy(Tensor("y", Datatype.INT64, (3, 4), array.tobytes())))
    assert is_npy(file)
    assert np.array_equal(np.load(io.BytesIO(file)), array)
    assert file.index(b"\n") % 64 == 63  # the data is aligned
    scalar = np.load(io.BytesIO(b"".join(tensor_to_npy(Tensor("y", Datatype.FP32, (), b"\0\0\x80\x3f")))))
    assert (scalar.shape, float(scalar)) == ((), 1.0)
    texts = np.load(io.BytesIO(b"".join(tensor_to_npy(tensor_of_bytes("y", [2], [b"ab", b""])))))
    assert texts.tolist() == [b"ab", b""]
    words = np.load(io.BytesIO(b"".join(tensor_to_npy(Tensor("y", Datatype.BF16, (1,), b"\x80\x3f")))))
    assert (words.dtype, words.tolist()) == (np.dtype("<u2"), [0x3F80])


@pytest.mark.parametrize("elements", [[b"a\0"], [b"\0"], [b"x" * 1_000_000] + [b""] * 1_000])
def test_bytes_that_numpy_would_change_or_blow_up_are_refused(elements: list[bytes]) -> None:
    """B036"""
    with pytest.raises(FormatError):
        tensor_to_npy(tensor_of_bytes("y", [len(elements)], elements))
