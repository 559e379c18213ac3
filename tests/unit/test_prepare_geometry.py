"""Sizes and windows: torchvision's arithmetic, for every shape of picture, without a pixel."""

import numpy as np
import pytest

from jobs.datatypes import Datatype
from jobs.errors import InvalidInput
from jobs.spec import ImageOptions, InputKind, InputSpec
from tests.support.photos import encode, photo
from workers.prepare import fixed_shape, prepare
from workers.prepare.geometry import Size, Window, window
from workers.prepare.orientation import Turn

CAP = 1_000_000


def spec(options: ImageOptions, dims: tuple[int, ...]) -> InputSpec:
    return InputSpec("image", Datatype.UINT8, dims, kind=InputKind.IMAGE, image=options)


@pytest.mark.parametrize(
    ("picture", "resized", "left", "top"),
    [
        ((600, 400), (384, 256), 80, 16),
        ((451, 300), (384, 256), 80, 16),  # 384.85 is rounded down
        ((640, 427), (383, 256), 80, 16),  # (383 - 224) / 2 = 79.5 is rounded to even
        ((300, 977), (256, 833), 16, 304),  # 304.5 as well
        ((256, 256), (256, 256), 16, 16),
        ((1, 1), (256, 256), 16, 16),
        ((1, 1000), (256, 256_000), 16, 127_888),
        ((1000, 1), (256_000, 256), 127_888, 16),
    ],
)
def test_resize_and_crop_are_torchvisions(
    picture: tuple[int, int], resized: tuple[int, int], left: int, top: int
) -> None:
    options = ImageOptions("HWC", resize=256, crop=(224, 224))
    assert window(Size(*picture), options, 224, 224) == Window(Size(*resized), left, top, 224, 224)


def test_without_resize_or_crop_only_fixed_sides_change() -> None:
    picture, options = Size(600, 400), ImageOptions("HWC")
    assert window(picture, options, 224, 160) == Window(Size(160, 224), 0, 0, 160, 224)
    assert window(picture, options, -1, -1) == Window(picture, 0, 0, 600, 400)
    assert window(picture, options, 224, -1) == Window(Size(600, 224), 0, 0, 600, 224)


def test_resize_alone_keeps_the_whole_picture_where_the_model_is_variable() -> None:
    options = ImageOptions("HWC", resize=200)
    assert window(Size(600, 400), options, -1, -1) == Window(Size(300, 200), 0, 0, 300, 200)


def test_resize_alone_is_cut_to_a_fixed_model() -> None:
    options = ImageOptions("HWC", resize=200)
    assert window(Size(600, 400), options, 200, 200) == Window(Size(300, 200), 50, 0, 200, 200)


def test_a_crop_larger_than_the_picture_is_black_around_it() -> None:
    """As torchvision's CenterCrop: the picture stays in the middle, an odd pixel is added at the far edges."""
    picture = photo("coffee", (31, 20))
    wanted = spec(ImageOptions("HWC", crop=(24, 40)), (24, 40, 3))
    pixels = prepare(encode(picture, "PNG"), wanted, CAP).array()
    assert np.array_equal(pixels[2:22, 4:35], np.asarray(picture))
    frame = pixels.copy()
    frame[2:22, 4:35] = 0
    assert not frame.any()


def test_a_crop_larger_than_one_side_only_is_cut_on_the_other() -> None:
    picture = photo("coffee", (60, 20))
    pixels = prepare(encode(picture, "PNG"), spec(ImageOptions("HWC", crop=(30, 40)), (30, 40, 3)), CAP).array()
    assert np.array_equal(pixels[5:25], np.asarray(picture)[:, 10:50])
    assert not pixels[:5].any()
    assert not pixels[25:].any()


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (3, 1), (1, 900_000), (900_000, 1), (997, 1003)])
def test_no_shape_of_picture_is_too_odd(size: tuple[int, int]) -> None:
    """A picture a million times as long as wide is cut without ever being resized as a whole."""
    wanted = spec(ImageOptions("HWC", resize=256, crop=(224, 224), interpolation="bicubic"), (224, 224, 3))
    pixels = prepare(encode(photo("coffee", size), "PNG"), wanted, CAP * 10).array()
    assert pixels.shape == (224, 224, 3)
    assert pixels.any()


def test_a_picture_that_would_be_prepared_above_the_cap_is_refused() -> None:
    data = encode(photo("coffee", (900, 1)), "PNG")
    wanted = spec(ImageOptions("HWC", resize=256), (-1, -1, 3))
    with pytest.raises(InvalidInput, match=r"at the size that the model wants, 230400x256, .* 1000000 pixels"):
        prepare(data, wanted, CAP)


@pytest.mark.parametrize(
    ("options", "dims", "shape"),
    [
        (ImageOptions("HWC", resize=256, crop=(224, 224)), (224, 224, 3), (224, 224, 3)),
        (ImageOptions("CHW", resize=256, crop=(224, 200)), (3, -1, -1), (3, 224, 200)),
        (ImageOptions("CHW", color="GRAY"), (1, 32, 100), (1, 32, 100)),
        (ImageOptions("HWC", resize=256), (256, 256, -1), (256, 256, 3)),
        (ImageOptions("HWC", resize=256), (-1, -1, 3), None),
        (ImageOptions("HWC"), (-1, 200, 3), None),
    ],
)
def test_a_fixed_shape_is_known_before_any_upload(
    options: ImageOptions, dims: tuple[int, ...], shape: tuple[int, ...] | None
) -> None:
    assert fixed_shape(spec(options, dims)) == shape
    if shape:
        assert prepare(encode(photo("coffee", (300, 200)), "PNG"), spec(options, dims), CAP).shape == shape


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("mirrors_x", [False, True])
@pytest.mark.parametrize("mirrors_y", [False, True])
def test_a_window_cut_before_the_turn_shows_what_it_shows_after(swaps: bool, mirrors_x: bool, mirrors_y: bool) -> None:
    turn = Turn(swaps, mirrors_x, mirrors_y)
    stored = np.arange(7 * 11).reshape(7, 11, 1)
    seen = turn.apply(stored)
    size = turn.size(Size(11, 7))
    assert seen.shape[:2] == (size.height, size.width)
    cut = Window(size, 2, 1, 3, 4)
    before = turn.undo(cut)
    early = turn.apply(stored[before.top : before.top + before.height, before.left : before.left + before.width])
    assert np.array_equal(early, seen[1:5, 2:5])


@pytest.mark.parametrize("dims", [(224, 224), (1, 224, 224, 3)])
def test_an_input_that_is_no_picture_is_the_callers_mistake(dims: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="takes no pictures"):
        prepare(b"", spec(ImageOptions("HWC"), dims), CAP)
