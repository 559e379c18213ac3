"""Where the pixels that a model wants lie in a picture: sizes and windows, no pixels.

Pure integer arithmetic, equal to torchvision's Resize and CenterCrop, so that a model sees what it was trained on.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jobs.spec import ImageOptions


class Size(NamedTuple):
    """Pixels across and down."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle of a resized picture, in the resized picture's pixels; it may reach beyond the picture's edges."""

    resized: Size
    left: int
    top: int
    width: int
    height: int

    def visible(self) -> "Window":
        """The part of the window that lies inside the picture."""
        left, top = max(self.left, 0), max(self.top, 0)
        right = min(self.left + self.width, self.resized.width)
        bottom = min(self.top + self.height, self.resized.height)
        return Window(self.resized, left, top, right - left, bottom - top)


def window(picture: Size, options: ImageOptions, height: int, width: int) -> Window:
    """What a model with this height and width (-1 = variable) wants of a picture that is the right way up.

    A `resize` scales the shorter side to that length and the longer one in proportion, rounded down. A `crop` is cut
    from the middle; where it is larger than the picture, the picture stays in the middle of it. Without either, the
    picture is stretched to the model's fixed sides.
    """
    resized = _resized(picture, options, height, width)
    crop_height, crop_width = options.crop or (
        resized.height if height < 0 else height,
        resized.width if width < 0 else width,
    )
    left, top = _offset(resized.width, crop_width), _offset(resized.height, crop_height)
    return Window(resized, left, top, crop_width, crop_height)


def _resized(picture: Size, options: ImageOptions, height: int, width: int) -> Size:
    if options.resize is not None:
        shorter = min(picture)
        return Size(*(max(options.resize * side // shorter, 1) for side in picture))
    if options.crop is not None:
        return picture
    return Size(picture.width if width < 0 else width, picture.height if height < 0 else height)


def _offset(side: int, crop: int) -> int:
    spare = side - crop
    return round(spare / 2) if spare >= 0 else -(-spare // 2)
