"""What an upload says it is: the picture format and size, read from the first bytes of the file.

It owns the formats that are accepted, how they are told apart and the pixel cap; it must never decode a pixel.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from typing import Final

from jobs.image_headers import (
    InvalidImage,
    bmp_size,
    gif_size,
    heif_size,
    jpeg_size,
    png_size,
    tiff_size,
    webp_size,
)
from jobs.tensors import Buffer

__all__ = [
    "ImageFormat",
    "ImageHeader",
    "InvalidImage",
    "TooManyPixels",
    "UnsupportedImage",
    "check_pixels",
    "decodable_formats",
    "is_picture",
    "probe",
]


class UnsupportedImage(InvalidImage):
    """The upload is no picture, or one of a format that is not accepted here."""


class TooManyPixels(InvalidImage):
    """The picture is larger than the pixel cap; it was not decoded."""


class ImageFormat(StrEnum):
    """The accepted formats; which one an upload has is told by its first bytes alone."""

    JPEG = "JPEG"
    PNG = "PNG"
    WEBP = "WebP"
    GIF = "GIF"
    BMP = "BMP"
    TIFF = "TIFF"
    AVIF = "AVIF"
    HEIC = "HEIC"


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a file says of its first picture, in pixels as stored: before any EXIF turn."""

    format: ImageFormat
    width: int
    height: int


@cache
def decodable_formats() -> tuple[ImageFormat, ...]:
    """The formats that this installation has decoders for; AVIF and HEIC depend on optional ones."""
    optional = {ImageFormat.AVIF: "PIL._avif", ImageFormat.HEIC: "pillow_heif"}
    return tuple(kind for kind in ImageFormat if kind not in optional or find_spec(optional[kind]))


def probe(data: bytes | memoryview, max_pixels: int) -> ImageHeader:
    """The format and size of an uploaded picture, in microseconds and without decoding it.

    `max_pixels` is the cap on width x height. Raises UnsupportedImage if the upload is no picture of a decodable
    format, TooManyPixels above the cap, and InvalidImage if the header is cut or contradicts itself, or if the
    pixels are plainly cut short. A file that passes may still turn out to be damaged when it is decoded.
    """
    view = memoryview(data).cast("B")
    kind = _identify(view)
    if kind not in decodable_formats():
        raise UnsupportedImage(f"this installation has no {kind} decoder; it reads {_names(decodable_formats())}")
    try:
        width, height = _SIZES[kind](view)
    except (struct.error, IndexError, OverflowError) as exc:
        raise InvalidImage(f"the {kind} header is cut short: the file ends after {len(view)} bytes") from exc
    if not width or not height:
        raise InvalidImage(f"expected a picture of at least 1x1 pixels, the {kind} header says {width}x{height}")
    check_pixels(width, height, max_pixels)
    return ImageHeader(kind, width, height)


def is_picture(data: Buffer) -> bool:
    """Whether the first bytes are those of an accepted format; the rest is not looked at."""
    try:
        _identify(memoryview(data).cast("B"))
    except UnsupportedImage:
        return False
    return True


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Raise TooManyPixels if a picture of this size is above the cap."""
    if width * height > max_pixels:
        raise TooManyPixels(
            f"the picture has {width}x{height} = {width * height} pixels, "
            f"more than the {max_pixels} that INFERQ_MAX_PIXELS allows"
        )


_SIZES: Final[Mapping[ImageFormat, Callable[[memoryview], tuple[int, int]]]] = {
    ImageFormat.JPEG: jpeg_size,
    ImageFormat.PNG: png_size,
    ImageFormat.WEBP: webp_size,
    ImageFormat.GIF: gif_size,
    ImageFormat.BMP: bmp_size,
    ImageFormat.TIFF: tiff_size,
    ImageFormat.AVIF: heif_size,
    ImageFormat.HEIC: heif_size,
}

_MAGIC: Final = (
    (b"\xff\xd8\xff", ImageFormat.JPEG),
    (b"\x89PNG\r\n\x1a\n", ImageFormat.PNG),
    (b"GIF87a", ImageFormat.GIF),
    (b"GIF89a", ImageFormat.GIF),
    (b"BM", ImageFormat.BMP),
    (b"II*\0", ImageFormat.TIFF),
    (b"MM\0*", ImageFormat.TIFF),
    (b"II+\0", ImageFormat.TIFF),
    (b"MM\0+", ImageFormat.TIFF),
)
_BRANDS: Final = (
    (ImageFormat.AVIF, frozenset({b"avif", b"avis"})),
    (ImageFormat.HEIC, frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})),
)
_OTHERS: Final = (
    (b"%PDF", "a PDF document"),
    (b"%!PS", "a PostScript file"),
    (b"8BPS", "a Photoshop file"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 picture"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"\x93NUMPY", "a .npy array"),
)


def _identify(view: memoryview) -> ImageFormat:
    head = bytes(view[:64])
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ImageFormat.WEBP
    if head[4:8] == b"ftyp":
        listed = {head[8:12], *(head[at : at + 4] for at in range(16, min(len(head), int.from_bytes(head[:4])), 4))}
        for kind, brands in _BRANDS:
            if brands & listed:
                return kind
    raise UnsupportedImage(f"expected a picture ({_names(decodable_formats())}), got {_describe(head)}")


def _describe(head: bytes) -> str:
    if not head:
        return "an empty file"
    for magic, name in _OTHERS:
        if head.startswith(magic):
            return name
    is_text = head.decode("utf-8", "ignore").replace("\n", "").replace("\r", "").replace("\t", "").isprintable()
    return "text" if is_text else "a file of another kind"


def _names(formats: tuple[ImageFormat, ...]) -> str:
    return ", ".join(formats)
