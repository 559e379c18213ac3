"""What a picture should become, said by Pillow in the plainest way: decode whole, turn, flatten, resize, cut.

It is the yardstick of the image tests, so it must not share a line with the product.
"""

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "area": Image.Resampling.BOX,
    "lanczos": Image.Resampling.LANCZOS,
}


def decoded(data: bytes) -> Image.Image:
    """The first frame in RGB, the right way up, on white."""
    with Image.open(BytesIO(data)) as opened:
        opened.load()
        image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        return white.convert("RGB")
    return image.convert("RGB")


def resized(image: Image.Image, resize: int, crop: tuple[int, int], interpolation: str) -> "np.ndarray[Any, Any]":
    """The shorter side scaled to `resize`, then (height, width) cut from the middle, as torchvision rounds."""
    width, height = image.size
    shorter = min(width, height)
    size = int(resize * width / shorter), int(resize * height / shorter)
    scaled = image.resize(size, FILTERS[interpolation])
    left, top = round((size[0] - crop[1]) / 2), round((size[1] - crop[0]) / 2)
    return np.asarray(scaled.crop((left, top, left + crop[1], top + crop[0])))


def stretched(image: Image.Image, height: int, width: int, interpolation: str) -> "np.ndarray[Any, Any]":
    """The whole picture at this size."""
    return np.asarray(image.resize((width, height), FILTERS[interpolation]))


def difference(one: "np.ndarray[Any, Any]", other: "np.ndarray[Any, Any]") -> float:
    """Mean absolute difference in levels."""
    assert one.shape == other.shape
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).mean())
