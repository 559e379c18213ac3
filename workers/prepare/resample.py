"""Scales a window of a picture to a model's size: as Pillow would, to within a bound, and faster where that allows.

It owns the bound and what is chosen for the sake of it; it must not know about formats or datatypes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

import cv2
import numpy as np
from PIL import Image

from jobs.spec import Interpolation
from workers.prepare.geometry import Size, Window
from workers.prepare.quick import SMOOTH, recipes, scale_by, steps

# Pictures are scaled side by side on all cores; threads inside of each would only get in their way.
cv2.setNumThreads(1)

Array = np.ndarray[Any, Any]

MAX_DRIFT: Final = 1.5
"""How many of the 255 levels a value may be from Pillow's, on average over the picture, by our estimate."""

_MAX_QUICK_SCALE: Final = 4.0
_MAX_WASTE: Final = 4
_LITTLE: Final = 1 << 16
_SMALL_SIDE: Final = 64

_FILTERS: Final[Mapping[Interpolation, Image.Resampling]] = MappingProxyType(
    {
        "nearest": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "area": Image.Resampling.BOX,
        "lanczos": Image.Resampling.LANCZOS,
    }
)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A whole picture, `shrink` times smaller than `original` (rounded up), and its mean steps between neighbours."""

    pixels: Array
    shrink: int
    original: Size
    step_across: float
    step_down: float

    @classmethod
    def measure(cls, pixels: Array, shrink: int, original: Size) -> "Shrunk":
        """The picture with its steps, in levels, as every third row shows them."""
        across = _difference(pixels[::3, 1:], pixels[::3, :-1])
        return cls(pixels, shrink, original, across, _difference(pixels[1::3], pixels[:-1:3]))

    def scale(self, resized: Size) -> tuple[float, float]:
        """How many of these pixels become one, across and down."""
        return (
            self.original.width / self.shrink / resized.width,
            self.original.height / self.shrink / resized.height,
        )

    def drift(self, resized: Size, interpolation: Interpolation) -> float:
        """An estimate of how far shrinking first takes the result from scaling the original, in levels.

        The numbers were fitted on photos, noise and text: a filter with hard edges suffers more from pixels that
        have been merged already.
        """
        if self.shrink == 1:
            return 0.0
        across, down = self.scale(resized)
        if interpolation == "area":
            return 0.3 * (self.step_across / across + self.step_down / down)
        return 0.2 * (self.step_across / across**2 + self.step_down / down**2)


def max_shrink(picture: Size, resized: Size, interpolation: Interpolation) -> int:
    """How many times smaller a picture may be decoded that will be resized; what is left must still be scaled down."""
    if interpolation == "nearest":  # takes single pixels as they are: averages would be others
        return 1
    spare = 4 if interpolation == "area" else 2
    kept = (max(spare * want, 2 * _SMALL_SIDE) for want in resized)
    return max(min(have // keep for have, keep in zip(picture, kept, strict=True)), 1)


def resample(picture: Shrunk, wanted: Window, interpolation: Interpolation) -> Array:
    """The window's pixels [height, width, channels], as if the original had been resized and then cut.

    The window must lie inside the resized picture.
    """
    if wanted.resized == picture.original and picture.shrink == 1:
        return _cut(picture.pixels, wanted)
    quick = _quick(picture, wanted, interpolation)
    return _exact(picture, wanted, interpolation) if quick is None else quick


def _exact(picture: Shrunk, wanted: Window, interpolation: Interpolation) -> Array:
    is_hard = interpolation not in SMOOTH or _is_small(picture.original) or _is_small(wanted.resized)
    if is_hard and not _is_wasteful(wanted):
        # Which pixels a hard-edged filter takes is a matter of rounding, and Pillow's depends on where it starts.
        whole = Window(wanted.resized, 0, 0, *wanted.resized)
        return _cut(_by_pillow(picture, whole, interpolation), wanted)
    return _by_pillow(picture, wanted, interpolation)


def _by_pillow(picture: Shrunk, wanted: Window, interpolation: Interpolation) -> Array:
    height, width, channels = picture.pixels.shape
    across, down = picture.scale(wanted.resized)
    box = (
        wanted.left * across,
        wanted.top * down,
        min((wanted.left + wanted.width) * across, width),
        min((wanted.top + wanted.height) * down, height),
    )
    source = Image.fromarray(picture.pixels if channels > 1 else picture.pixels[:, :, 0])
    scaled = source.resize((wanted.width, wanted.height), _FILTERS[interpolation], box)
    return np.asarray(scaled).reshape(wanted.height, wanted.width, channels)


def _quick(picture: Shrunk, wanted: Window, interpolation: Interpolation) -> Array | None:
    """The same by the fastest recipe that stays within the bound, or None if none does or it would not be faster."""
    across, down = picture.scale(wanted.resized)
    if interpolation not in SMOOTH or max(across, down) > _MAX_QUICK_SCALE:
        return None
    if _is_wasteful(wanted) or _is_small(picture.original) or _is_small(wanted.resized):
        return None
    spent = picture.drift(wanted.resized, interpolation)
    plain, *blurred = (
        (spent + by_x.drift * picture.step_across + by_y.drift * picture.step_down, by_x, by_y)
        for by_x, by_y in zip(recipes(interpolation, steps(across)), recipes(interpolation, steps(down)), strict=True)
    )
    drift, by_x, by_y = plain if plain[0] <= MAX_DRIFT else min(blurred, key=itemgetter(0))
    if drift > MAX_DRIFT:
        return None
    return _cut(scale_by(picture.pixels, (across, down), wanted, by_x, by_y), wanted)


def _is_wasteful(wanted: Window) -> bool:
    """Whether scaling the whole picture to cut the window out of it costs much more than the window."""
    return wanted.resized.width * wanted.resized.height > max(_MAX_WASTE * wanted.width * wanted.height, _LITTLE)


def _is_small(size: Size) -> bool:
    """Whether there is little to gain, and too few pixels for an estimate of what is lost: edges count for much."""
    return min(size) < _SMALL_SIDE


def _cut(pixels: Array, wanted: Window) -> Array:
    return pixels[wanted.top : wanted.top + wanted.height, wanted.left : wanted.left + wanted.width]


def _difference(one: Array, other: Array) -> float:
    return cv2.norm(one, other, cv2.NORM_L1) / one.size if one.size else 0.0
