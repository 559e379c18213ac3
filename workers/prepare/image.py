"""An uploaded picture as the tensor that a model wants: the steps in order, and the shape of what comes out.

It owns the sequence (open, find the window, read, scale, turn, write); each step is a module of its own.
"""

from typing import Any

import numpy as np

from jobs.errors import InvalidInput
from jobs.images import InvalidImage
from jobs.spec import ImageOptions, InputSpec
from workers.prepare.decode import Picture, open_picture
from workers.prepare.geometry import Window, window
from workers.prepare.orientation import Turn
from workers.prepare.resample import MAX_DRIFT, Shrunk, max_shrink, resample
from workers.prepare.values import CHANNELS, value_table, write

Array = np.ndarray[Any, Any]


def fixed_shape(spec: InputSpec) -> tuple[int, ...] | None:
    """The shape of every item of an image input, or None where it depends on the picture."""
    options = _options(spec)
    height, width = _sides(spec, options)
    if options.crop is not None:
        height, width = options.crop
    if height < 0 or width < 0:
        return None
    return _shape(options, height, width)


def prepare_image(upload: bytes | memoryview, spec: InputSpec, max_pixels: int, out: Array | None = None) -> Array:
    """The picture as an array of the input's datatype and dims, written to `out` if that is given.

    Raises InvalidInput where the upload can't be decoded, or is too large as it is or as the model wants it.
    """
    options = _options(spec)
    try:
        picture = open_picture(upload, max_pixels)
        turn = picture.turn if options.orientation else picture.as_stored
        wanted = window(turn.size(picture.size), options, *_sides(spec, options))
        _check_result(wanted, max_pixels)
        if out is None:
            out = np.empty(_shape(options, wanted.height, wanted.width), spec.datatype.numpy)
        pixels = _pixels(picture, turn, wanted, options)
    except InvalidImage as exc:
        raise InvalidInput(f"Input `{spec.name}`: {exc}.") from exc
    write(pixels, options, value_table(spec.datatype, options), _as_rows(out, options))
    return out


def _pixels(picture: Picture, turn: Turn, wanted: Window, options: ImageOptions) -> Array:
    """The window's pixels, turned, on black where the window reaches beyond the picture."""
    visible = wanted.visible()
    stored = turn.undo(visible)
    shrunk = _read(picture, stored, options)
    scaled = turn.apply(resample(shrunk, stored, options.interpolation))
    if visible == wanted:
        return scaled
    canvas = np.zeros((wanted.height, wanted.width, scaled.shape[2]), np.uint8)
    top, left = visible.top - wanted.top, visible.left - wanted.left
    canvas[top : top + visible.height, left : left + visible.width] = scaled
    return canvas


def _read(picture: Picture, stored: Window, options: ImageOptions) -> Shrunk:
    """The picture, decoded only as large as needed: larger, once more, if its details turn out to be too fine."""
    shrink = max_shrink(picture.size, stored.resized, options.interpolation)
    while True:
        pixels, shrink = picture.read(shrink, options.color == "GRAY")
        shrunk = Shrunk(pixels, shrink, picture.size)
        if shrunk.drift(stored.resized, options.interpolation) <= MAX_DRIFT:
            return shrunk
        shrink //= 2


def _check_result(wanted: Window, max_pixels: int) -> None:
    if wanted.width * wanted.height > max_pixels:
        raise InvalidImage(
            f"at the size that the model wants, {wanted.width}x{wanted.height}, the picture has more "
            f"than the {max_pixels} pixels that INFERQ_MAX_PIXELS allows"
        )


def _options(spec: InputSpec) -> ImageOptions:
    if spec.image is None or len(spec.dims) != 3:
        raise ValueError(f"input {spec.name} takes no pictures: it has dims {spec.dims} and options {spec.image}")
    return spec.image


def _sides(spec: InputSpec, options: ImageOptions) -> tuple[int, int]:
    """The model's height and width, -1 where they are variable."""
    height, width = spec.dims[:2] if options.layout == "HWC" else spec.dims[1:]
    return height, width


def _shape(options: ImageOptions, height: int, width: int) -> tuple[int, int, int]:
    channels = CHANNELS[options.color]
    return (height, width, channels) if options.layout == "HWC" else (channels, height, width)


def _as_rows(out: Array, options: ImageOptions) -> Array:
    """A view with the channels last."""
    return out if options.layout == "HWC" else out.transpose(1, 2, 0)
