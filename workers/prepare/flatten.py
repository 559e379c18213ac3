"""A decoded picture of any kind as plain 8-bit grey or RGB pixels: palettes, alpha, inks and deep channels end here.

It must not decode files. It works in bands, so that a large picture needs little more memory than it has itself.
"""

from typing import Any, Final

import numpy as np
from PIL import Image

from jobs.images import InvalidImage
from workers.prepare.tiff import sample_words

_BAND_PIXELS: Final = 1 << 18
_DEEP: Final = "I;16"
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262

Array = np.ndarray[Any, Any]


def flatten(image: Image.Image, shrink: int, is_gray: bool) -> Array:
    """The pixels [height, width, channels], averaged over squares of `shrink` pixels; partial ones at the far edges.

    Alpha is composed on white. Channels of 16 bits are scaled, not clipped. Colour profiles are left as they are.
    One channel where gray is asked for or the picture has no colour, else RGB. Raises InvalidImage for pixels
    of 32 bits or with a sign, which have no defined white.
    """
    if image.mode in ("I", "F"):
        tags = getattr(image, "tag_v2", None)
        got = sample_words(tags) if tags else f"{'floats' if image.mode == 'F' else 'integers'} of 32 bits"
        raise InvalidImage(
            f"expected 8 or 16 bits per channel, without a sign; got {got}, which don't say what white is"
        )
    width, height = image.size
    is_opaque = not image.has_transparency_data
    channels = 1 if is_gray or (is_opaque and (image.mode in ("1", "L") or image.mode.startswith(_DEEP))) else 3
    out = np.empty((-(-height // shrink), -(-width // shrink), channels), np.uint8)
    rows = max(_BAND_PIXELS // (width * shrink), 1) * shrink
    for top in range(0, height, rows):
        band = image.crop((0, top, width, min(top + rows, height))) if rows < height else image
        plain = _plain(_eight_bits(band, image), is_opaque, channels)
        if shrink > 1:
            plain = plain.reduce(shrink)
        start = top // shrink
        out[start : start + plain.height] = np.asarray(plain).reshape(plain.height, plain.width, channels)
    return out


def _plain(band: Image.Image, is_opaque: bool, channels: int) -> Image.Image:
    mode = "L" if channels == 1 else "RGB"
    if is_opaque:
        # Inks and other colour spaces reach grey by way of RGB only.
        through = band if band.mode in ("1", "L", "RGB") else band.convert("RGB")
        return through if through.mode == mode else through.convert(mode)
    if band.mode in ("La", "RGBa"):
        band = band.convert(band.mode.upper())
    band = band.convert("RGBA")
    white = Image.new("RGBA", band.size, "white")
    white.alpha_composite(band)
    return white.convert("RGB").convert(mode)


def _eight_bits(band: Image.Image, image: Image.Image) -> Image.Image:
    if not band.mode.startswith(_DEEP):
        return band
    bits, is_inverted = _tiff_depth(image)
    levels = np.asarray(band)
    shown = (levels >> (bits - 8)).astype(np.uint8)
    grey = Image.fromarray(~shown if is_inverted else shown)
    see_through = image.info.get("transparency")
    if isinstance(see_through, int):
        grey.putalpha(Image.fromarray(((levels != see_through) * 255).astype(np.uint8)))
    return grey


def _tiff_depth(image: Image.Image) -> tuple[int, bool]:
    """How many of the 16 bits are used, and whether 0 is white: only TIFF knows other answers than 16 and no."""
    tags = getattr(image, "tag_v2", None) or {}
    (bits, *_) = tags.get(_BITS_PER_SAMPLE, (16,))
    return int(bits), tags.get(_PHOTOMETRIC) == 0
