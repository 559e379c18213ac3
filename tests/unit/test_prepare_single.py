"""Texts and whole files become one BYTES element."""

import pytest

from jobs.datatypes import Datatype
from jobs.errors import InvalidInput
from jobs.spec import InputKind, InputSpec
from workers.prepare import prepare

CAP = 1


def spec(kind: InputKind, dims: tuple[int, ...] = (1,)) -> InputSpec:
    return InputSpec("document", Datatype.BYTES, dims, kind=kind)


@pytest.mark.parametrize("text", ["", "plain", "Grüße, 世界 🎉", "nul \x00 inside", "lines\r\nand\ttabs"])
def test_a_text_is_one_element_of_its_utf8_bytes(text: str) -> None:
    for upload in (text.encode(), memoryview(text.encode())):
        tensor = prepare(upload, spec(InputKind.TEXT), CAP)
        assert (tensor.datatype, tensor.shape) == (Datatype.BYTES, (1,))
        assert tensor.array().tolist() == [text.encode()]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert prepare("\ufeffhello".encode(), spec(InputKind.TEXT), CAP).array()[0] == b"hello"
    assert prepare("\ufeff\ufeffhello".encode(), spec(InputKind.TEXT), CAP).array()[0] == "\ufeffhello".encode()


@pytest.mark.parametrize(
    ("upload", "message"),
    [
        (b"caf\xe9", "^Input `document`: expected UTF-8 text, got byte 0xe9 at offset 3.$"),
        ("text".encode("utf-16"), "got byte 0xff at offset 0"),
        (b"\xed\xa0\x80", "got byte 0xed at offset 0"),  # a surrogate
        (b"\xc0\xaf", "got byte 0xc0 at offset 0"),  # an overlong slash
        ("世".encode()[:2], "got byte 0xe4 at offset 0"),
    ],
)
def test_what_is_not_utf8_is_refused(upload: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepare(upload, spec(InputKind.TEXT), CAP)


@pytest.mark.parametrize("upload", [b"", b"\xef\xbb\xbf\x00\xff", bytes(range(256)) * 40])
def test_a_file_is_one_element_as_it_is(upload: bytes) -> None:
    for data in (upload, memoryview(upload)):
        assert prepare(data, spec(InputKind.BYTES), CAP).array().tolist() == [upload]


@pytest.mark.parametrize(("dims", "shape"), [((1,), (1,)), ((-1,), (1,)), ((1, -1), (1, 1)), ((), ())])
def test_variable_dims_become_one(dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    tensor = prepare(b"x", spec(InputKind.TEXT, dims), CAP)
    tensor.check()
    assert tensor.shape == shape


def test_a_model_that_wants_several_elements_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="must hold one element"):
        prepare(b"x", spec(InputKind.BYTES, (2,)), CAP)


def test_a_tensor_needs_no_preparation() -> None:
    with pytest.raises(ValueError, match="takes tensors"):
        prepare(b"x", spec(InputKind.TENSOR), CAP)
