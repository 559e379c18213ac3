"""Scales a window of a picture to a model's size, with Pillow's filters.

It must not know about formats or datatypes; pixels in, pixels out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from PIL import Image

from jobs.spec import Interpolation
from workers.prepare.geometry import Size, Window

_FILTERS: Final[Mapping[Interpolation, Image.Resampling]] = MappingProxyType(
    {
        "nearest": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "area": Image.Resampling.BOX,
        "lanczos": Image.Resampling.LANCZOS,
    }
)

Array = np.ndarray[Any, Any]


def resample(pixels: Array, shrink: int, picture: Size, wanted: Window, interpolation: Interpolation) -> Array:
    """The window's pixels [height, width, channels], as if the whole picture had been resized and then cut.

    `pixels` is the whole picture, already `shrink` times smaller than `picture`, its original size. The window must
    lie inside the resized picture.
    """
    if shrink == 1 and wanted.resized == picture:
        return pixels[wanted.top : wanted.top + wanted.height, wanted.left : wanted.left + wanted.width]
    height, width, channels = pixels.shape
    across = picture.width / shrink / wanted.resized.width
    down = picture.height / shrink / wanted.resized.height
    box = (
        wanted.left * across,
        wanted.top * down,
        min((wanted.left + wanted.width) * across, width),
        min((wanted.top + wanted.height) * down, height),
    )
    source = Image.fromarray(pixels if channels > 1 else pixels[:, :, 0])
    scaled = source.resize((wanted.width, wanted.height), _FILTERS[interpolation], box)
    return np.asarray(scaled).reshape(wanted.height, wanted.width, channels)
