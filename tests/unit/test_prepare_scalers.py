"""The fastest way to scale gives what Pillow gives, but for rounding, whichever of the two is installed."""

import numpy as np
import pytest
from PIL import Image

from jobs.spec import Interpolation
from tests.support import pillow_reference as reference
from tests.support.photos import photo
from workers.prepare.geometry import Size, Window
from workers.prepare.resample import Shrunk, max_shrink, resample
from workers.prepare.scalers import Box, scale, scale_by_pillow

INTERPOLATIONS: tuple[Interpolation, ...] = ("nearest", "bilinear", "bicubic", "area", "lanczos")
PIXELS = np.asarray(photo("coffee", (300, 200)))
MAX_ROUNDING = 0.5


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0.0, 0.0, 300.0, 200.0), (150, 100)),
        ((0.0, 0.0, 300.0, 200.0), (700, 431)),
        ((12.25, 7.5, 211.8, 190.125), (97, 83)),
        ((299.5, 199.5, 300.0, 200.0), (4, 4)),
        ((100 / 3, 200 / 7, 300.0, 200.0), (64, 64)),
    ],
)
def test_the_fastest_way_and_pillow_agree(
    interpolation: Interpolation, channels: int, box: Box, size: tuple[int, int]
) -> None:
    pixels = PIXELS[:, :, :channels]
    fast = scale(pixels, box, *size, interpolation)
    assert (fast.shape, fast.dtype) == ((size[1], size[0], channels), np.uint8)
    assert reference.difference(fast, scale_by_pillow(pixels, box, *size, interpolation)) < MAX_ROUNDING


def test_every_box_inside_the_picture_is_accepted() -> None:
    """Sums of fractions that end a hair behind the edge are no reason to fail."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        width, height = (int(side) for side in rng.integers(1, 60, 2))
        left, upper = rng.uniform(0, width), rng.uniform(0, height)
        box = (left * 0.9, upper * 0.9, float(width), float(height))
        assert scale(np.zeros((height, width, 3), np.uint8), box, 5, 7, "bicubic").shape == (7, 5, 3)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_window_is_what_one_would_cut_from_the_resized_picture(interpolation: Interpolation) -> None:
    picture = Shrunk(PIXELS, 1, Size(300, 200))
    whole = resample(picture, Window(Size(171, 114), 0, 0, 171, 114), interpolation)
    part = resample(picture, Window(Size(171, 114), 40, 9, 100, 80), interpolation)
    assert reference.difference(part, whole[9:89, 40:140]) < MAX_ROUNDING
    expected = Image.fromarray(PIXELS).resize((171, 114), reference.FILTERS[interpolation])
    assert reference.difference(whole, np.asarray(expected)) < MAX_ROUNDING


def test_how_small_a_picture_may_be_decoded_leaves_room_for_the_filter() -> None:
    assert max_shrink(Size(4000, 3000), Size(341, 256), "bicubic") == 5
    assert max_shrink(Size(4000, 3000), Size(341, 256), "area") == 2
    assert max_shrink(Size(4000, 3000), Size(341, 256), "nearest") == 1
    assert max_shrink(Size(600, 400), Size(384, 256), "bicubic") == 1
    assert max_shrink(Size(600, 400), Size(1, 1), "bicubic") == 3
    assert max_shrink(Size(100_000, 10), Size(224, 224), "bicubic") == 1


def test_the_finer_the_details_the_less_a_picture_may_be_shrunk() -> None:
    rng = np.random.default_rng(0)
    flat = np.full((300, 400, 3), 90, np.uint8)
    photos = np.asarray(photo("coffee", (400, 300)))
    noise = rng.integers(0, 256, (300, 400, 3), np.uint8)
    drifts = [Shrunk(pixels, 4, Size(1600, 1200)).drift(Size(200, 150), "bicubic") for pixels in (flat, photos, noise)]
    assert drifts[0] == 0
    assert drifts[0] < drifts[1] < 2 < drifts[2]
    assert Shrunk(noise, 1, Size(400, 300)).drift(Size(200, 150), "bicubic") == 0
