"""Pictures come out the right way up, whatever format says how, and damaged metadata harms nobody."""

import struct
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from jobs.datatypes import Datatype
from jobs.spec import ImageOptions, InputKind, InputSpec
from tests.support import pillow_reference as reference
from tests.support.photos import encode, exif_with_orientation, photo
from workers.prepare import prepare
from workers.prepare.orientation import UPRIGHT, turn_of, turn_of_heif, turn_of_number

CAP = 10_000_000
AS_IT_IS = InputSpec("image", Datatype.UINT8, (-1, -1, 3), kind=InputKind.IMAGE, image=ImageOptions("HWC"))
AS_STORED = replace(AS_IT_IS, image=ImageOptions("HWC", orientation=False))
USUAL = InputSpec(
    "image",
    Datatype.UINT8,
    (33, 41, 3),
    kind=InputKind.IMAGE,
    image=ImageOptions("HWC", resize=40, crop=(33, 41), interpolation="bicubic"),
)
TRANSPOSITIONS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""What a camera did to the picture; the orientation of the same number undoes it."""


def stored(picture: Image.Image, orientation: int) -> Image.Image:
    """The picture as a camera held in this orientation stores it."""
    transposition = TRANSPOSITIONS[orientation]
    return picture.transpose(transposition) if transposition is not None else picture


LOSSES: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 98, "subsampling": 0},
    "PNG": {"compress_level": 1},
    "WEBP": {"lossless": True, "method": 0},
    "TIFF": {},
    "AVIF": {"quality": 100, "speed": 10, "subsampling": "4:4:4"},
    "HEIC": {"quality": 100, "chroma": 444},
}
"""Formats and how to write them nearly without loss."""


SHAPES = [
    (kind, size) for kind in LOSSES for size in ((100, 70), (71, 101), (700, 501)) if max(size) < 500 or kind != "HEIC"
]
"""Large HEIC files are left out: writing them takes seconds, and reading them is like reading PNG."""


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("kind", "size"), SHAPES)
def test_eight_ways_to_hold_a_camera_give_one_picture(kind: str, size: tuple[int, int], orientation: int) -> None:
    """B081: orientation 1-8 of one golden, odd and even sides, decoded whole and scaled."""
    golden = photo("coffee", size)
    data = encode(stored(golden, orientation), kind, exif=exif_with_orientation(orientation), **LOSSES[kind])
    got = prepare(data, USUAL, CAP).array()
    assert reference.difference(got, reference.resized(golden, 40, (33, 41), "bicubic")) < 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_picture_that_is_kept_as_it_is_is_exact(orientation: int) -> None:
    """B081."""
    golden = photo("coffee", (41, 30))
    data = encode(stored(golden, orientation), "PNG", exif=exif_with_orientation(orientation))
    assert np.array_equal(prepare(data, AS_IT_IS, CAP).array(), np.asarray(golden))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", LOSSES)
def test_a_model_may_want_pictures_as_they_are_stored(kind: str, orientation: int) -> None:
    """B081."""
    picture = stored(photo("coffee", (41, 30)), orientation)
    data = encode(picture, kind, exif=exif_with_orientation(orientation), **LOSSES[kind])
    got = prepare(data, AS_STORED, CAP).array()
    assert got.shape == np.asarray(picture).shape
    assert reference.difference(got, np.asarray(picture)) < 2


def test_what_exif_says_in_a_heif_is_without_effect_unless_the_container_says_it_too() -> None:
    """B081: the container decides; there are cameras whose EXIF data still tells how a picture lay before its turn."""
    picture = photo("coffee", (80, 64))
    upright = encode(picture, "HEIC", exif=exif_with_orientation(1), **LOSSES["HEIC"])
    exif_alone = upright.replace(exif_with_orientation(1).removeprefix(b"Exif\0\0"), exif_with_orientation(6)[6:])
    assert exif_alone != upright
    for spec in (AS_IT_IS, AS_STORED):
        assert reference.difference(prepare(exif_alone, spec, CAP).array(), np.asarray(picture)) < 2


@pytest.mark.parametrize("first", range(1, 9))
@pytest.mark.parametrize("second", range(1, 9))
def test_one_turn_after_another_is_a_turn(first: int, second: int) -> None:
    pixels = np.arange(6).reshape(2, 3, 1)
    one, other = turn_of_number(first), turn_of_number(second)
    assert np.array_equal(one.then(other).apply(pixels), other.apply(one.apply(pixels)))


def test_a_heif_whose_boxes_are_damaged_is_turned_by_nothing() -> None:
    """T: Image."""
    data = encode(photo("coffee", (80, 64)), "HEIC", exif=exif_with_orientation(6))
    at = data.index(b"ipma")
    assert turn_of_heif(memoryview(data)) == turn_of_number(6)
    too_many = data[: at + 8] + b"\xff" * 4 + data[at + 12 :]
    for damaged in (
        data[:at],
        too_many,
        data.replace(b"irot", b"what"),
        data.replace(b"pitm", b"free"),
        b"",
        data[:50],
    ):
        assert turn_of_heif(memoryview(damaged)) == UPRIGHT


def exif(order: str, *entries: tuple[int, int, int, int]) -> bytes:
    """EXIF data with these (tag, type, count, value) entries."""
    body = b"".join(
        struct.pack(order + "HHI", *entry[:3]) + struct.pack(order + "HH", entry[3], 0) for entry in entries
    )
    head = b"II*\0" if order == "<" else b"MM\0*"
    return b"Exif\0\0" + head + struct.pack(order + "IH", 8, len(entries)) + body + bytes(4)


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_is_read_in_both_byte_orders(order: str) -> None:
    assert turn_of(exif(order, (0x010F, 3, 1, 9), (0x0112, 3, 1, 6))).swaps


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0garbage",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff",
        exif("<", (0x0112, 3, 1, 0)),
        exif("<", (0x0112, 3, 1, 9)),
        exif("<", (0x0112, 2, 1, 6)),
        exif("<", (0x0112, 3, 70_000, 6)),
        exif("<", (0x010F, 3, 1, 6)),
    ],
)
def test_exif_that_says_nothing_sensible_turns_nothing(data: bytes) -> None:
    assert turn_of(data) == UPRIGHT
    picture = photo("coffee", (48, 32))
    assert prepare(encode(picture, "JPEG", exif=data), AS_IT_IS, CAP).shape == (32, 48, 3)


def test_xmp_is_asked_where_exif_says_nothing() -> None:
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    for kind in ("JPEG", "WEBP"):
        data = encode(photo("coffee", (48, 32)), kind, xmp=xmp)
        assert prepare(data, AS_IT_IS, CAP).shape == (48, 32, 3), kind
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    assert prepare(encode(photo("coffee", (48, 32)), "PNG", pnginfo=text), AS_IT_IS, CAP).shape == (48, 32, 3)
    both = encode(photo("coffee", (48, 32)), "JPEG", xmp=xmp, exif=exif_with_orientation(1))
    assert prepare(both, AS_IT_IS, CAP).shape == (32, 48, 3)


def test_hostile_exif_costs_nothing() -> None:
    """T: Image. Thousands of tags that all point at the same large block are not followed."""
    entries = [(0x8000 + index, 7, 60_000, 8) for index in range(5_000)]
    data = encode(photo("coffee", (48, 32)), "JPEG", exif=exif("<", *entries))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prepare(data, AS_IT_IS, CAP).shape == (32, 48, 3)
