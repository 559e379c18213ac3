"""Opens an uploaded picture and reads its pixels, no more of them than needed and none above the cap.

It owns the decoders and turns whatever they raise into InvalidImage; it must not resize or reorder anything.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from typing import Any, Final, Protocol

import numpy as np
import simplejpeg
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from jobs.image_headers import jpeg_segments, png_chunks
from jobs.images import ImageFormat, ImageHeader, InvalidImage, check_pixels, probe
from workers.prepare import tiff
from workers.prepare.flatten import flatten
from workers.prepare.geometry import Size
from workers.prepare.orientation import UPRIGHT, Turn, turn_of, turn_of_heif, turn_of_jpeg, turn_of_number

# Our own cap, which a setting can raise or lower, comes before every decoder; Pillow's fixed one would only add
# a warning below it and a second refusal above.
Image.MAX_IMAGE_PIXELS = None
# Pictures are decoded side by side on all cores; a decoder with threads of its own would only get in their way.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1

Array = np.ndarray[Any, Any]

# The classes are called directly: Image.open would also try every other format that Pillow knows.
_PLUGINS: Final[dict[ImageFormat, type[ImageFile.ImageFile]]] = {
    ImageFormat.PNG: PngImagePlugin.PngImageFile,
    ImageFormat.WEBP: WebPImagePlugin.WebPImageFile,
    ImageFormat.GIF: GifImagePlugin.GifImageFile,
    ImageFormat.BMP: BmpImagePlugin.BmpImageFile,
    ImageFormat.TIFF: TiffImagePlugin.TiffImageFile,
    ImageFormat.AVIF: AvifImagePlugin.AvifImageFile,
}
_TURNED_BY_DECODER: Final = (ImageFormat.TIFF, ImageFormat.HEIC)
_MAX_PNG_CHUNKS: Final = 1 << 16
_MAX_SLOW_BYTES: Final = 1 << 20
_JPEG_BYTES_PER_PIXEL: Final = 4
_RASTER_BYTES_PER_PIXEL: Final = 16
"""Measured with WebP and PNG with transparency: the decoder's own picture, Pillow's, and that on white."""
_MAX_QUOTE_LENGTH: Final = 120
_SPEAKING: Final = (OSError, SyntaxError, ValueError, RuntimeError)
_UNKNOWN_MODE: Final = "unknown pixel mode"
_NOT_IDENTIFIED: Final = "not identified by this driver"
_JPEG_SHRINKS: Final = (8, 4, 2, 1)
_JPEG_DAMAGES: Final = ("premature end", "bad huffman", "bad arithmetic", "found marker")


class Picture(Protocol):
    """An opened upload: its first frame, as stored."""

    size: Size
    turn: Turn
    as_stored: Turn
    """What in place of `turn` leaves the picture as its file stores it: nothing, unless its decoder turned it."""

    def read(self, max_shrink: int, is_gray: bool) -> tuple[Array, int]:
        """Pixels [height, width, 1 or 3] in 8 bits and how many times smaller than `size` they are, rounded up.

        The factor is at most `max_shrink`. One channel where gray is asked for or the picture has no colour; else RGB.
        Raises InvalidImage where the pixels are damaged or not all there.
        """
        ...


def open_picture(upload: bytes | memoryview, max_pixels: int) -> Picture:
    """The picture in an upload; raises InvalidImage if there is none or it has more than `max_pixels` pixels."""
    view = memoryview(upload).cast("B")
    header = probe(view, max_pixels)
    if header.format is ImageFormat.JPEG:
        return _Jpeg(view, header)
    return _Raster(view, header.format, max_pixels)


def picture_bytes(upload: bytes | memoryview, max_pixels: int) -> int:
    """About what the decoder of this upload takes of memory, copies included; 0 for what it will refuse."""
    try:
        header = probe(upload, max_pixels)
    except InvalidImage:
        return 0
    each = _JPEG_BYTES_PER_PIXEL if header.format is ImageFormat.JPEG else _RASTER_BYTES_PER_PIXEL
    return header.width * header.height * each


class _Jpeg:
    """A JPEG, decoded by libjpeg-turbo at 1/1, 1/2, 1/4 or 1/8 of its size."""

    def __init__(self, view: memoryview, header: ImageHeader) -> None:
        self.size = Size(header.width, header.height)
        self.turn, self.as_stored = turn_of_jpeg(view), UPRIGHT
        self._view = view

    def read(self, max_shrink: int, is_gray: bool) -> tuple[Array, int]:
        shrink = next(factor for factor in _JPEG_SHRINKS if factor <= max_shrink)
        try:
            return self._read_strictly(shrink, is_gray), shrink
        except InvalidImage:
            raise
        except ValueError as exc:
            # libjpeg paints what is missing of a cut or garbled file grey, and warns; its other warnings are harmless.
            if any(damage in str(exc).lower() for damage in _JPEG_DAMAGES):
                raise InvalidImage(f"the JPEG is damaged: {exc}") from exc
        return self._read_leniently(shrink, is_gray), shrink

    def _read_strictly(self, shrink: int, is_gray: bool) -> Array:
        """The pixels; raises ValueError with libjpeg's words for anything that it would only warn of."""
        height, width, stored, _ = simplejpeg.decode_jpeg_header(self._view)
        self._check_size(width, height)
        colors = "CMYK" if stored in ("CMYK", "YCCK") else "GRAY" if is_gray or stored == "Gray" else "RGB"
        pixels: Array = simplejpeg.decode_jpeg(
            self._view, colors, min_height=-(-height // shrink), min_width=-(-width // shrink)
        )
        if colors != "CMYK":
            return pixels
        inks = Image.fromarray(np.subtract(255, pixels), "CMYK")  # stored inverted, as Adobe began it
        return flatten(inks, 1, is_gray)

    def _read_leniently(self, shrink: int, is_gray: bool) -> Array:
        """The pixels by way of Pillow, which refuses cut files and shrugs off the rest."""
        with translated(ImageFormat.JPEG), JpegImagePlugin.JpegImageFile(BytesIO(self._without_metadata())) as image:
            self._check_size(*image.size)
            if shrink > 1:
                image.draft(None, (self.size.width // shrink, self.size.height // shrink))
            image.load()
            return flatten(image, 1, is_gray)

    def _check_size(self, width: int, height: int) -> None:
        """The header was read by us, and its size was checked; the decoder must have read the same."""
        if (width, height) != self.size:
            raise InvalidImage(f"the JPEG says two sizes: {self.size.width}x{self.size.height} and {width}x{height}")

    def _without_metadata(self) -> bytes:
        """The file without EXIF and comments, which we read ourselves and which make Pillow warn where damaged."""
        kept = [self._view[:2]]
        end = 2
        for segment in jpeg_segments(self._view):
            if segment.marker not in (0xE1, 0xE2, 0xED, 0xFE):
                kept.append(self._view[segment.start : segment.end])
            end = segment.end
        return b"".join((*kept, self._view[end:]))


class _Raster:
    """Any other format, decoded whole by Pillow when it is opened."""

    def __init__(self, view: memoryview, kind: ImageFormat, max_pixels: int) -> None:
        with translated(kind):
            if kind is ImageFormat.PNG:
                _check_chunks(view)
            image = _opened(view, kind)
            check_pixels(*image.size, max_pixels)
            _check_tiles(image, len(view))
            turned = UPRIGHT
            if isinstance(image, TiffImagePlugin.TiffImageFile):
                tiff.check_layout(image.tag_v2)
                # Pillow turns these while it loads them
                turned = turn_of_number(image.getexif().get(ExifTags.Base.Orientation))
            elif kind is ImageFormat.HEIC:  # and libheif these
                turned = turn_of_heif(view)
            image.load()
            self.size = Size(*image.size)
            self.turn = UPRIGHT if kind in _TURNED_BY_DECODER else turn_of(*_metadata(image))
            self.as_stored = turned.inverse()
        self._image, self._kind = image, kind

    def read(self, max_shrink: int, is_gray: bool) -> tuple[Array, int]:
        with translated(self._kind), self._image as image:
            return flatten(image, max_shrink, is_gray), max_shrink


def _opened(view: memoryview, kind: ImageFormat) -> ImageFile.ImageFile:
    try:
        return _plugin(kind)(BytesIO(view))
    except SyntaxError as exc:
        if kind is ImageFormat.TIFF and _UNKNOWN_MODE in str(exc):
            raise InvalidImage(f"the TIFF can't be decoded: {tiff.unsupported(view)}") from exc
        raise


def _check_chunks(view: memoryview) -> None:
    """Pillow takes microseconds for each chunk, however small, and millions fit into an upload."""
    if sum(1 for _ in png_chunks(view, _MAX_PNG_CHUNKS + 1)) > _MAX_PNG_CHUNKS:
        raise InvalidImage(f"the PNG has more than the {_MAX_PNG_CHUNKS} chunks that are read")


def _check_tiles(image: ImageFile.ImageFile, file_bytes: int) -> None:
    """Refuse what Pillow would decode in slow Python, holding the GIL, and TIFFs that it would leave black in part."""
    if file_bytes > _MAX_SLOW_BYTES and any(tile.codec_name in Image.DECODERS for tile in image.tile):
        raise InvalidImage(f"{image.format} files with this compression are read up to {_MAX_SLOW_BYTES} bytes only")
    if image.format == "TIFF":
        boxes = (tile.extents for tile in image.tile if tile.extents)
        covered = sum((right - left) * (lower - upper) for left, upper, right, lower in boxes)
        if covered < image.width * image.height:
            raise InvalidImage("the TIFF is damaged: its strips or tiles cover only a part of it")


def _plugin(kind: ImageFormat) -> type[ImageFile.ImageFile]:
    if kind is not ImageFormat.HEIC:
        return _PLUGINS[kind]
    heif = import_module("pillow_heif")
    heif.options.DECODE_THREADS = 1
    plugin: type[ImageFile.ImageFile] = import_module("pillow_heif.as_plugin").HeifImageFile
    return plugin


def _metadata(image: ImageFile.ImageFile) -> tuple[bytes, bytes]:
    """The raw EXIF and XMP data."""
    xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    exif = image.info.get("exif") or b""
    return bytes(exif), xmp.encode() if isinstance(xmp, str) else bytes(xmp)


@contextmanager
def translated(kind: ImageFormat) -> Iterator[None]:
    """Whatever a decoder raises becomes InvalidImage.

    Decoders meet hostile bytes in code that expects good ones: besides OSError they raise SyntaxError, KeyError,
    struct.error, MemoryError for absurd sizes and more. So everything is caught, here and nowhere else.
    """
    try:
        yield
    except InvalidImage:
        raise
    except Exception as exc:
        raise InvalidImage(f"the {kind} can't be decoded: {_words(exc)}") from exc


def _words(exc: Exception) -> str:
    """What a decoder says, where it says it to people; the others stumbled over the file."""
    words = " ".join(str(exc).split())[:_MAX_QUOTE_LENGTH]
    is_stumble = isinstance(exc, SyntaxError) and exc.args and isinstance(exc.args[0], Exception)
    if is_stumble or not words or words == _NOT_IDENTIFIED or not isinstance(exc, _SPEAKING):
        return "it is damaged, or of a kind that is not supported"
    return words
