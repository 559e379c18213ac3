"""Laws of reading uploads: a part of a file is refused or is the whole, and nothing but InvalidInput ever comes out."""

import contextlib
import warnings
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from jobs.datatypes import Datatype
from jobs.errors import InvalidInput
from jobs.images import InvalidImage, probe
from jobs.spec import ImageOptions, InputKind, InputSpec, Interpolation
from tests.support import pillow_reference as reference
from tests.support.photos import encode, exif_with_orientation, photo
from workers.prepare import prepare
from workers.prepare.geometry import Size, window

CAP = 250_000
AS_IT_IS = InputSpec("image", Datatype.UINT8, (-1, -1, 3), kind=InputKind.IMAGE, image=ImageOptions("HWC"))
SMALL = InputSpec(
    "image",
    Datatype.UINT8,
    (24, 24, 3),
    kind=InputKind.IMAGE,
    image=ImageOptions("HWC", resize=28, crop=(24, 24), interpolation="bicubic"),
)


@cache
def files() -> dict[str, bytes]:
    """A small file of each format, with what makes its decoder take different turns."""
    picture = photo("coffee", (61, 43))
    alpha = picture.convert("RGBA")
    alpha.putalpha(picture.convert("L"))
    deep = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    many = {"save_all": True, "append_images": [photo("rocket", (61, 43))]}
    return {
        "JPEG": encode(picture, "JPEG", exif=exif_with_orientation(6)),
        "JPEG progressive": encode(picture, "JPEG", progressive=True),
        "JPEG CMYK": encode(picture.convert("CMYK"), "JPEG"),
        "PNG": encode(picture, "PNG", exif=exif_with_orientation(3)),
        "PNG palette": encode(picture.quantize(16), "PNG", transparency=3),
        "PNG deep": encode(deep, "PNG"),
        "APNG": encode(alpha, "PNG", **many),
        "WebP": encode(picture, "WEBP"),
        "WebP lossless": encode(alpha, "WEBP", lossless=True),
        "WebP animated": encode(picture, "WEBP", **many),
        "GIF": encode(picture, "GIF", **many),
        "BMP": encode(picture, "BMP"),
        "BMP palette": encode(picture.quantize(16), "BMP"),
        "TIFF": encode(picture, "TIFF"),
        "TIFF LZW": encode(deep, "TIFF", compression="tiff_lzw"),
        "TIFF JPEG": encode(picture, "TIFF", compression="jpeg"),
        "TIFF fax": encode(picture.convert("1"), "TIFF", compression="group4"),
        "AVIF": encode(alpha, "AVIF"),
        "HEIC": encode(picture, "HEIC"),
    }


NAMES = tuple(files())


@cache
def whole(name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    return prepare(files()[name], AS_IT_IS, CAP).array()


@given(st.sampled_from(NAMES), st.floats(0, 1, exclude_max=True))
@settings(max_examples=400, deadline=None)
def test_a_prefix_of_a_file_is_refused_or_gives_the_whole_picture(name: str, part: float) -> None:
    """B086."""
    data = files()[name]
    try:
        pixels = prepare(data[: int(len(data) * part)], AS_IT_IS, CAP).array()
    except InvalidInput:
        return
    assert np.array_equal(pixels, whole(name))


@given(st.sampled_from(NAMES), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_a_file_without_its_last_bytes_is_refused_or_gives_the_whole_picture(name: str, missing: int) -> None:
    """B086."""
    try:
        pixels = prepare(files()[name][:-missing], AS_IT_IS, CAP).array()
    except InvalidInput:
        return
    assert np.array_equal(pixels, whole(name))


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A file with bytes changed, removed, added or repeated, mostly near its beginning."""
    data = bytearray(files()[draw(st.sampled_from(NAMES))])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, min(len(data), draw(st.sampled_from((60, 700, 100_000))))))
        piece = draw(st.one_of(st.binary(max_size=8), st.sampled_from((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff"))))
        removed = draw(st.integers(0, 12))
        data[at : at + removed] = piece
    return bytes(data)


@given(mutations())
@settings(max_examples=600, deadline=None)
def test_a_mutated_file_is_prepared_or_refused(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            tensor = prepare(data, SMALL, CAP)
        except InvalidInput:
            return
    assert tensor.shape == (24, 24, 3)
    tensor.check()


MAGIC = tuple(data[:16] for data in files().values())


@given(st.one_of(st.binary(max_size=200), st.builds(bytes.__add__, st.sampled_from(MAGIC), st.binary(max_size=400))))
@settings(max_examples=600, deadline=None)
def test_any_bytes_are_told_by_their_header_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidImage):
        header = probe(data, CAP)
        assert 0 < header.width * header.height <= CAP


@given(mutations())
@settings(max_examples=600, deadline=None)
def test_what_the_header_says_is_what_is_decoded(data: bytes) -> None:
    """The cap is checked on the header: a decoder that saw another size would get around it."""
    try:
        header = probe(data, CAP)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            height, width, _ = prepare(data, AS_IT_IS, CAP).shape
    except (InvalidImage, InvalidInput):
        return
    if header.format not in ("HEIC", "AVIF"):  # which may say that a part is cut off
        assert sorted((width, height)) == sorted((header.width, header.height))
    assert width * height <= CAP


@given(
    st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)),
    st.integers(1, 2_000),
    st.tuples(st.integers(1, 2_000), st.integers(1, 2_000)),
)
@settings(deadline=None)
def test_a_crop_is_in_the_middle_of_what_is_there(picture: tuple[int, int], resize: int, crop: tuple[int, int]) -> None:
    cut = window(Size(*picture), ImageOptions("HWC", resize=resize, crop=crop), -1, -1)
    assert (cut.height, cut.width) == crop
    assert min(cut.resized) == resize or 1 in cut.resized
    for start, length, side in ((cut.left, cut.width, cut.resized.width), (cut.top, cut.height, cut.resized.height)):
        assert abs(start - (side - start - length)) <= 1
    shown = cut.visible()
    assert 0 < shown.width <= cut.width
    assert 0 < shown.height <= cut.height


@given(
    st.tuples(st.integers(1, 700), st.integers(1, 700)),
    st.integers(1, 300),
    st.sampled_from(("nearest", "bilinear", "bicubic", "area", "lanczos")),
    st.sampled_from(("JPEG", "BMP")),
    st.integers(0, 2**32 - 1),
    st.sampled_from((0, 8, 60)),
)
@settings(max_examples=150, deadline=None)
def test_any_picture_at_any_size_is_within_two_levels_of_pillows(
    size: tuple[int, int], resize: int, interpolation: Interpolation, kind: str, seed: int, noise: int
) -> None:
    picture = np.asarray(photo("chelsea", size)).astype(int)
    picture = picture + np.random.default_rng(seed).integers(-noise, noise + 1, picture.shape)
    data = encode(Image.fromarray(picture.clip(0, 255).astype(np.uint8)), kind)
    crop = (max(resize * 7 // 8, 1), max(resize * 3 // 4, 1))
    wanted = InputSpec(
        "image",
        Datatype.UINT8,
        (*crop, 3),
        kind=InputKind.IMAGE,
        image=ImageOptions("HWC", resize=resize, crop=crop, interpolation=interpolation),
    )
    expected = reference.decoded(data)
    if max(expected.size) * resize > 200 * min(expected.size) * 300:
        return  # the reference would resize it as a whole
    got = prepare(data, wanted, 10_000_000).array()
    assert reference.difference(got, reference.resized(expected, resize, crop, interpolation)) < 2
