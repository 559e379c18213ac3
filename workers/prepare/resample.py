"""Scales a window of a picture to a model's size, as Pillow would, and says how small it may be decoded before.

It must not know about formats or datatypes. Cheaper filters (OpenCV's) were tried: half a level of difference on
average, always in the same direction, is enough to change the label of a doubtful photo.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from jobs.spec import Interpolation
from workers.prepare.geometry import Size, Window
from workers.prepare.scalers import scale

Array = np.ndarray[Any, Any]

MAX_DRIFT: Final = 1.0
"""How many of the 255 levels shrinking may change a value, on average over the picture, by our estimate."""

_SMALL_SIDE: Final = 64
_LITTLE_WASTE: Final = 4
_LITTLE: Final = 1 << 16

_REACHES: Final[Mapping[Interpolation, int]] = MappingProxyType(
    {"nearest": 1, "bilinear": 1, "bicubic": 2, "area": 1, "lanczos": 3}
)
"""How far a filter sees, in output pixels, or in input pixels where it enlarges."""

_HARD_EDGED: Final = frozenset({"nearest", "area"})


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A whole picture, `shrink` times smaller than `original`; partial pixels stand at the far edges."""

    pixels: Array
    shrink: int
    original: Size

    def scale(self, resized: Size) -> tuple[float, float]:
        """How many of these pixels become one, across and down."""
        return (
            self.original.width / self.shrink / resized.width,
            self.original.height / self.shrink / resized.height,
        )

    def drift(self, resized: Size, interpolation: Interpolation) -> float:
        """An estimate of how far shrinking first takes the result from scaling the original, in levels.

        The finer the details, the more. The factors were fitted on photos, noise and text; filters with hard edges
        suffer more from pixels that have been merged already.
        """
        if self.shrink == 1:
            return 0.0
        every = max(len(self.pixels) // 100, 3)
        rows = self.pixels[::every]
        steps = _distance(rows[:, 1:], rows[:, :-1]), _distance(self.pixels[1::every], self.pixels[:-1:every])
        scales = self.scale(resized)
        if interpolation in _HARD_EDGED:
            return sum(0.3 * step / ratio for step, ratio in zip(steps, scales, strict=True))
        return sum(0.2 * step / ratio**2 for step, ratio in zip(steps, scales, strict=True))


def max_shrink(picture: Size, resized: Size, interpolation: Interpolation) -> int:
    """How many times smaller a picture may be decoded that will be resized; what is left must still be scaled down."""
    if interpolation == "nearest":  # takes single pixels as they are: averages would be others
        return 1
    spare = 4 if interpolation in _HARD_EDGED else 2
    kept = (max(spare * want, 2 * _SMALL_SIDE) for want in resized)
    return max(min(have // keep for have, keep in zip(picture, kept, strict=True)), 1)


def resample(picture: Shrunk, wanted: Window, interpolation: Interpolation) -> Array:
    """The window's pixels [height, width, channels], as if the original had been resized and then cut.

    The window must lie inside the resized picture.
    """
    if wanted.resized == picture.original and picture.shrink == 1:
        return _cut(picture.pixels, wanted)
    area = wanted.resized.width * wanted.resized.height
    is_cheap = area <= max(_LITTLE_WASTE * wanted.width * wanted.height, _LITTLE)
    if is_cheap and (interpolation in _HARD_EDGED or min(picture.original) < _SMALL_SIDE):
        # Which pixels a hard-edged filter takes is a matter of rounding, and Pillow's depends on where it starts.
        whole = Window(wanted.resized, 0, 0, *wanted.resized)
        return _cut(_scaled(picture, whole, interpolation), wanted)
    return _scaled(picture, wanted, interpolation)


def _scaled(picture: Shrunk, wanted: Window, interpolation: Interpolation) -> Array:
    height, width, _ = picture.pixels.shape
    across, down = picture.scale(wanted.resized)
    reach = _REACHES[interpolation]
    left, right, columns = _needed(wanted.left, wanted.width, across, width, reach)
    upper, lower, rows = _needed(wanted.top, wanted.height, down, height, reach)
    seen = picture.pixels[rows, columns]
    return scale(seen, (left, upper, right, lower), wanted.width, wanted.height, interpolation)


def _needed(start: int, length: int, scale: float, side: int, reach: int) -> tuple[float, float, slice]:
    """Where a stretch of output begins and ends along one axis, inside the slice of pixels that its filter sees."""
    begin, end = start * scale, min((start + length) * scale, side)
    margin = ceil(reach * max(scale, 1)) + 1
    first = max(int(begin) - margin, 0)
    return begin - first, end - first, slice(first, min(ceil(end) + margin, side))


def _cut(pixels: Array, wanted: Window) -> Array:
    return pixels[wanted.top : wanted.top + wanted.height, wanted.left : wanted.left + wanted.width]


def _distance(one: Array, other: Array) -> float:
    """The mean absolute difference, without leaving 8 bits."""
    return float((np.maximum(one, other) - np.minimum(one, other)).mean()) if one.size else 0.0
