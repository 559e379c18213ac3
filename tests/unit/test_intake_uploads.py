"""Uploads: raw bodies and files in forms, for each kind of input."""

import io
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from jobs.datatypes import Datatype, pack_bytes
from jobs.record import InputPart, InputSource
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from tests.support.intake import MODELS, Gateway, field, multipart, tensor_model

pytestmark = pytest.mark.anyio


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 100, 50)).save(file, "JPEG")
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that says to be this large and holds next to nothing."""
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + ihdr + struct.pack(">I", zlib.crc32(ihdr))
    data = b"IDAT" + zlib.compress(b"\0")
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))


async def test_a_photo_is_the_same_job_as_raw_body_and_in_a_form(gateway: Gateway, jpeg: bytes) -> None:
    raw = await gateway.accepted(params={"model": "photo"}, content=jpeg, headers={"Content-Type": "image/jpeg"})
    file = await gateway.accepted(data={"model": "photo"}, files={"file": ("p.jpg", jpeg, "image/jpeg")})
    named = await gateway.accepted(data={"model": "photo"}, files={"image": ("p.jpg", jpeg, "image/jpeg")})
    assert raw.request == file.request == named.request
    assert raw.request.inputs == (InputPart("image", InputSource.UPLOAD, len(jpeg)),)
    assert raw.request.rows is None
    assert bytes(raw.payload) == bytes(file.payload) == bytes(named.payload) == jpeg


@pytest.mark.parametrize(
    "content_type", ["image/jpeg", "image/png", "application/octet-stream", "IMAGE/JPEG; q=1", None]
)
async def test_a_photo_is_told_by_its_bytes_and_not_by_its_type(
    gateway: Gateway, jpeg: bytes, content_type: str | None
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    await gateway.accepted(params={"model": "photo"}, content=jpeg, headers=headers)


async def test_a_text_that_says_to_be_a_photo_is_no_image(gateway: Gateway) -> None:
    """B086"""
    problem = await gateway.refused(
        params={"model": "photo"}, content=b"<html>not found</html>", headers={"Content-Type": "image/jpeg"}
    )
    assert (problem["status"], problem["code"], problem["input"]) == (422, "invalid_image", "image")


@pytest.mark.parametrize("size", [(20_000, 20_000), (13_000, 13_000), (19_000, 19_000)])
async def test_a_photo_with_too_many_pixels_is_refused_by_its_header(gateway: Gateway, size: tuple[int, int]) -> None:
    """B085"""
    problem = await gateway.refused(
        params={"model": "photo"}, content=png_header(*size), headers={"Content-Type": "image/png"}
    )
    assert (problem["status"], problem["code"]) == (422, "too_many_pixels")


async def test_an_empty_body_is_refused_in_one_clear_sentence(gateway: Gateway) -> None:
    problem = await gateway.refused(params={"model": "photo"}, content=b"", headers={"Content-Type": "image/jpeg"})
    assert (problem["status"], problem["code"]) == (422, "empty_upload")
    assert problem["detail"] == "The upload for input `image` has no bytes at all."


async def test_a_type_that_an_input_does_not_take_is_refused_with_those_that_it_takes(gateway: Gateway) -> None:
    problem = await gateway.refused(params={"model": "photo"}, content=b"RIFF", headers={"Content-Type": "audio/wav"})
    assert (problem["status"], problem["code"]) == (415, "unsupported_media_type")
    assert problem["accepted"] == ["image/*", "application/octet-stream", "application/x-npy"]


async def test_the_type_that_curl_sends_by_default_is_refused_with_advice(gateway: Gateway, jpeg: bytes) -> None:
    problem = await gateway.refused(
        params={"model": "photo"}, content=jpeg, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (problem["status"], problem["code"]) == (415, "unsupported_media_type")
    for hint in ("--data-binary @", "Content-Type", "-F file=@"):
        assert hint in problem["detail"]


@pytest.mark.parametrize(
    "content_type",
    [
        *("application/x-www-form-urlencoded", "text/plain", None, "text/json", "application/ld+json", "image/png"),
        *("multipart/mixed", "application/vnd.api+json; charset=utf-8", "nonsense"),
    ],
)
async def test_json_that_does_not_say_so_is_refused_with_the_header_that_it_needs(
    gateway: Gateway, content_type: str | None
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    problem = await gateway.refused(content=b' {"model": "fixed", "inputs": []}', headers=headers)
    assert (problem["status"], problem["code"]) == (415, "unsupported_media_type")
    assert "-H 'Content-Type: application/json'" in problem["detail"]


async def test_a_form_of_another_kind_is_refused_with_the_kind_that_is_taken(gateway: Gateway) -> None:
    request = multipart(field("model", b"text"), field("text", b"hello"))
    mixed = {"Content-Type": "multipart/mixed; boundary=frontier"}
    problem = await gateway.refused(content=request["content"], headers=mixed)
    assert (problem["status"], problem["code"]) == (415, "unsupported_media_type")
    assert "multipart/form-data" in problem["detail"]


async def test_a_text_that_looks_like_json_is_a_text_where_the_query_says_for_whom(gateway: Gateway) -> None:
    submission = await gateway.accepted(params={"model": "text"}, content=b'{"a": 1}')
    assert bytes(submission.payload) == b'{"a": 1}'


async def test_a_misspelt_model_in_a_form_is_told_with_the_right_spelling(gateway: Gateway, jpeg: bytes) -> None:
    problem = await gateway.refused(data={"modle": "photo"}, files={"file": ("p.jpg", jpeg, "image/jpeg")})
    assert (problem["status"], problem["code"], problem["option"]) == (422, "invalid_option", "modle")
    assert "`modle`. Did you mean `model`? There are model, model_version, priority" in problem["detail"]


async def test_a_form_without_a_model_whose_fields_are_like_no_option_lacks_a_model(gateway: Gateway) -> None:
    problem = await gateway.refused(**multipart(field("zzz", b"1")))
    assert problem["detail"].startswith("The request names no `model`: ")


@pytest.mark.parametrize(("name", "guess"), [("priorty", " Did you mean `priority`?"), ("zzz", "")])
async def test_a_field_that_is_neither_an_input_nor_an_option_is_told_with_both(
    gateway: Gateway, jpeg: bytes, name: str, guess: str
) -> None:
    files = {"file": ("p.jpg", jpeg, "image/jpeg")}
    problem = await gateway.refused(data={"model": "photo", name: "high"}, files=files)
    assert (problem["status"], problem["code"]) == (422, "unknown_input")
    assert f"no input `{name}`; it takes `image`" in problem["detail"]
    assert f"There is no option `{name}`.{guess} There are model, model_version" in problem["detail"]
    named = await gateway.refused(data={"model": "photo"}, files={name: ("p.jpg", jpeg, "image/jpeg")})
    assert "option" not in named["detail"]


@pytest.mark.parametrize(("model", "code"), [("photo", "invalid_image"), ("fixed", "invalid_tensor")])
async def test_a_files_name_in_place_of_the_file_is_refused_with_advice(
    gateway: Gateway, model: str, code: str
) -> None:
    problem = await gateway.refused(**multipart(field("model", model.encode()), field("file", b"x.jpg")))
    assert (problem["status"], problem["code"]) == (422, code)
    assert "-F file=@" in problem["detail"]


async def test_a_form_field_that_says_what_picture_it_is_needs_no_file_name(gateway: Gateway, jpeg: bytes) -> None:
    named = field("file", jpeg, None, "image/jpeg")
    await gateway.accepted(**multipart(field("model", b"photo"), named))


@pytest.mark.parametrize("content_type", ["audio/wav", "application/pdf", "video/mp4", "text/plain", "application/zip"])
async def test_a_bytes_input_takes_a_file_of_any_type(gateway: Gateway, content_type: str) -> None:
    submission = await gateway.accepted(
        params={"model": "blob"}, content=b"\x93NUMPY\0whatever", headers={"Content-Type": content_type}
    )
    assert submission.request.inputs == (InputPart("blob", InputSource.UPLOAD, 15),)
    assert bytes(submission.payload) == b"\x93NUMPY\0whatever"


@pytest.mark.parametrize("text", ["short", "Grüße, 世界", "a\0b\0\0", "line\r\n--frontier\r\nline"])
async def test_a_text_arrives_bit_for_bit_as_body_file_and_field(gateway: Gateway, text: str) -> None:
    """B036"""
    encoded = text.encode()
    raw = await gateway.accepted(params={"model": "text"}, content=encoded, headers={"Content-Type": "text/plain"})
    form = await gateway.accepted(**multipart(field("model", b"text"), field("text", encoded), boundary="elsewhere"))
    file = await gateway.accepted(
        **multipart(field("model", b"text"), field("file", encoded, "t.txt", "text/plain"), boundary="elsewhere")
    )
    assert [bytes(item.payload) for item in (raw, form, file)] == [encoded] * 3
    assert raw.request == form.request == file.request


async def test_a_text_that_is_not_utf8_is_refused(gateway: Gateway) -> None:
    problem = await gateway.refused(
        params={"model": "text"}, content="naïve".encode("latin-1"), headers={"Content-Type": "text/plain"}
    )
    assert (problem["status"], problem["code"]) == (422, "invalid_text")
    assert "byte 2" in problem["detail"]


async def test_a_text_in_another_charset_is_refused_as_a_type(gateway: Gateway) -> None:
    problem = await gateway.refused(
        params={"model": "text"}, content=b"hello", headers={"Content-Type": "text/plain; charset=utf-16"}
    )
    assert problem["code"] == "unsupported_media_type"
    assert "utf-16" in problem["detail"]


async def test_a_text_field_may_be_longer_than_a_mebibyte(gateway: Gateway) -> None:
    """B058"""
    long = b"x" * (1024 * 1024 + 1)
    submission = await gateway.accepted(**multipart(field("model", b"text"), field("text", long)))
    assert bytes(submission.payload) == long


async def test_a_photo_as_base64_text_in_a_field_is_refused_as_no_file(gateway: Gateway) -> None:
    """B058"""
    problem = await gateway.refused(**multipart(field("model", b"photo"), field("image", b"/9j/4AAQSkZJRg==")))
    assert (problem["status"], problem["code"]) == (422, "invalid_image")


async def test_raw_bytes_are_a_tensor_where_the_model_fixes_its_shape(gateway: Gateway) -> None:
    data = np.array([1.5, -0.0, np.nan], "<f4").tobytes()
    submission = await gateway.accepted(params={"model": "fixed"}, content=data)
    (part,) = submission.request.inputs
    assert (part.name, part.source, part.shape) == ("x", InputSource.TENSOR, (3,))
    assert bytes(submission.payload) == data


async def test_raw_bytes_of_twice_the_size_are_refused_with_both_sizes(gateway: Gateway) -> None:
    """B040"""
    problem = await gateway.refused(params={"model": "fixed"}, content=np.zeros(3, "<f8").tobytes())
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
    assert "expected 12 bytes" in problem["detail"]
    assert "got 24" in problem["detail"]


async def test_raw_bytes_do_not_say_a_variable_shape(gateway: Gateway) -> None:
    problem = await gateway.refused(params={"model": "any_fp32"}, content=b"\0" * 8)
    assert problem["code"] == "invalid_tensor"
    assert "[-1]" in problem["detail"]


async def test_an_upload_for_one_of_several_inputs_must_say_for_which(gateway: Gateway) -> None:
    problem = await gateway.refused(params={"model": "pair"}, content=b"\0" * 8)
    assert (problem["status"], problem["code"]) == (422, "missing_input")
    assert "`a`" in problem["detail"]
    problem = await gateway.refused(params={"model": "pair", "input": "a"}, content=b"\0" * 8)
    assert problem["missing"] == ["b"]


async def test_a_form_gives_each_input_its_own_part(gateway: Gateway, jpeg: bytes) -> None:
    threshold = io.BytesIO()
    np.save(threshold, np.array([0.5], "<f4"))
    submission = await gateway.accepted(
        data={"model": "mixed"},
        files={"threshold": ("t", threshold.getvalue()), "image": ("p.jpg", jpeg, "image/jpeg")},
    )
    assert [(part.name, part.source, part.nbytes) for part in submission.request.inputs] == [
        ("image", InputSource.UPLOAD, len(jpeg)),
        ("threshold", InputSource.TENSOR, 4),
    ]
    assert bytes(submission.payload) == jpeg + np.array([0.5], "<f4").tobytes()


async def test_a_form_field_for_a_tensor_is_json_whose_nesting_is_the_shape(gateway: Gateway, jpeg: bytes) -> None:
    submission = await gateway.accepted(**multipart(field("model", b"grid"), field("x", b"[[[1,2]],[[3,4]]]")))
    assert submission.request.inputs[0].shape == (2, 1, 2)
    assert np.frombuffer(submission.payload, "<i4").tolist() == [1, 2, 3, 4]
    scalar = await gateway.accepted(
        **multipart(field("model", b"scalar"), field("x", b"2.5", None, "application/json"))
    )
    assert scalar.request.inputs[0].shape == ()


@pytest.mark.parametrize(
    "value", [b"[1,2", b"hello", b"[[1,2],[3]]", b'{"a":1}', b"[1.5,2.5]", b"\xff", b"[[[[[1]]]]]"]
)
async def test_a_form_field_that_is_no_such_tensor_is_refused(gateway: Gateway, value: bytes) -> None:
    problem = await gateway.refused(**multipart(field("model", b"grid"), field("x", value)))
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")


async def test_uploads_and_rows_do_not_mix(gateway: Gateway, jpeg: bytes) -> None:
    problem = await gateway.refused(
        **multipart(
            field("model", b"mixed"),
            field("image", jpeg, "p.jpg", "image/jpeg"),
            field("threshold", b"[[0.5],[0.6]]"),
        )
    )
    assert problem["code"] == "invalid_tensor"
    assert "`image` is one item, `threshold` has 2 rows" in problem["detail"]


@pytest.mark.parametrize("stored", ["<f4", ">f4", "=f4"])
@pytest.mark.parametrize("order", ["C", "F"])
async def test_an_npy_file_is_converted_to_the_engines_byte_order(gateway: Gateway, stored: str, order: str) -> None:
    array = np.arange(6, dtype=stored).reshape(2, 3)
    file = io.BytesIO()
    np.save(file, np.asfortranarray(array) if order == "F" else array)
    for content_type in ("application/x-npy", "application/octet-stream"):
        submission = await gateway.accepted(
            params={"model": "fixed"}, content=file.getvalue(), headers={"Content-Type": content_type}
        )
        assert (submission.request.rows, submission.request.inputs[0].shape) == (2, (2, 3))
        assert bytes(submission.payload) == array.astype("<f4").tobytes()


async def test_an_npy_file_of_another_type_is_refused_with_both_types(gateway: Gateway) -> None:
    """B040"""
    file = io.BytesIO()
    np.save(file, np.zeros(3, "<f8"))
    problem = await gateway.refused(
        params={"model": "fixed"}, content=file.getvalue(), headers={"Content-Type": "application/x-npy"}
    )
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
    assert problem["expected"]["datatype"] == "FP32"
    assert problem["got"]["datatype"] == "FP64"


async def test_an_npy_file_of_objects_is_refused_and_never_unpickled(gateway: Gateway) -> None:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    problem = await gateway.refused(params={"model": "fixed"}, content=file.getvalue())
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
    assert "unpickled" in problem["detail"]


async def test_the_raw_words_of_bf16_are_taken_as_an_npy_file(gateway: Gateway) -> None:
    file = io.BytesIO()
    np.save(file, np.array([0x3F80, 0x7FC1], "<u2"))
    submission = await gateway.accepted(params={"model": "any_bf16"}, content=file.getvalue())
    assert bytes(submission.payload) == b"\x80\x3f\xc1\x7f"


PIXELS = ModelSpec(
    "pixels", ("1",), 8, (InputSpec("image", Datatype.UINT8, (8, 8, 3)),), (OutputSpec("y", Datatype.FP32, (1,)),)
)
ANY_PIXELS = replace(PIXELS, name="any_pixels", inputs=(InputSpec("image", Datatype.UINT8, (-1, -1, 3)),))
WORDS = replace(PIXELS, name="words", inputs=(InputSpec("words", Datatype.BYTES, (1,)),))


@pytest.mark.parametrize("model", [PIXELS, ANY_PIXELS])
@pytest.mark.parametrize("content_type", ["image/jpeg", "application/octet-stream"])
async def test_a_picture_for_an_input_of_tensors_is_told_how_the_input_becomes_one_of_pictures(
    jpeg: bytes, model: ModelSpec, content_type: str
) -> None:
    gateway = Gateway(models=[model])
    for request in (
        {"params": {"model": model.name}, "content": jpeg, "headers": {"Content-Type": content_type}},
        multipart(field("model", model.name.encode()), field("image", jpeg, "p.jpg", content_type)),
    ):
        problem = await gateway.refused(**request)
        assert '`"kind": "image"` in the `inferq` parameter of the model\'s config.pbtxt' in problem["detail"]


@pytest.mark.parametrize(
    "spec",
    [
        InputSpec("x", Datatype.INT64, (8, 8, 3)),
        InputSpec("x", Datatype.UINT8, (8, 8)),
        InputSpec("x", Datatype.BYTES, (2,)),
    ],
)
async def test_no_input_is_told_of_a_kind_that_it_can_not_have(jpeg: bytes, spec: InputSpec) -> None:
    gateway = Gateway(models=[replace(PIXELS, inputs=(spec,))])
    for content_type in ("image/jpeg", "application/octet-stream"):
        request = {"params": {"model": "pixels"}, "headers": {"Content-Type": content_type}}
        assert "kind" not in (await gateway.refused(content=jpeg, **request))["detail"]


async def test_raw_bytes_that_are_no_picture_are_told_nothing_of_pictures() -> None:
    problem = await Gateway(models=[PIXELS]).refused(params={"model": "pixels"}, content=b"\0" * 5)
    assert problem["detail"].endswith("got 5.")


async def test_raw_bytes_that_begin_like_a_picture_and_have_the_tensors_size_are_a_tensor(jpeg: bytes) -> None:
    data = jpeg[:192].ljust(192, b"\0")
    submission = await Gateway(models=[PIXELS]).accepted(params={"model": "pixels"}, content=data)
    assert bytes(submission.payload) == data


@pytest.mark.parametrize("data", [b"hello, world", b"abc", b"\xff\xd8\xff" * 10])
async def test_a_text_or_file_for_an_input_of_bytes_is_told_of_frames_and_of_kinds(data: bytes) -> None:
    gateway = Gateway(models=[WORDS])
    for request in (
        {"params": {"model": "words"}, "content": data},
        multipart(field("model", b"words"), field("words", data, "f")),
    ):
        problem = await gateway.refused(**request)
        assert (problem["status"], problem["code"]) == (422, "invalid_tensor")
        assert "each element stands behind its length in 4 little-endian bytes" in problem["detail"]
        assert '`"kind": "bytes"` or `"kind": "text"`' in problem["detail"]
    framed = await gateway.accepted(params={"model": "words"}, content=pack_bytes([data]))
    assert bytes(framed.payload) == pack_bytes([data])
    problem = await gateway.refused(
        params={"model": "words"}, content=data, headers={"Content-Type": "text/plain; charset=utf-8"}
    )
    assert '`"kind": "text"`' in problem["detail"]


@pytest.mark.parametrize(
    ("model", "value", "expected"),
    [("fixed", b"2", None), ("one", b"2", (1,)), ("any_fp32", b"2", (1,)), ("scalar", b"2", ())],
)
async def test_a_form_field_of_one_number_is_all_of_a_tensor_of_one(
    model: str, value: bytes, expected: tuple[int, ...] | None
) -> None:
    gateway = Gateway(models=[*MODELS, tensor_model("one", Datatype.FP32, (1,))])
    request = multipart(field("model", model.encode()), field("x", value))
    if expected is None:
        assert (await gateway.refused(**request))["code"] == "invalid_tensor"
        return
    submission = await gateway.accepted(**request)
    assert submission.request.inputs[0].shape == expected
    assert np.frombuffer(submission.payload, "<f4").tolist() == [2.0]
