"""What a TIFF says of its pixels, in words, and which of them the decoder would read wrong.

It owns the tags about samples; it must not read a pixel.
"""

from contextlib import suppress
from io import BytesIO
from typing import Any, Final

from PIL import TiffImagePlugin

from jobs.images import InvalidImage

_BITS, _COMPRESSION, _SAMPLES, _PLANES, _FORMAT = 258, 259, 277, 284, 339
_UNCOMPRESSED: Final = 1
_SEPARATE: Final = 2
_FORMATS: Final = {
    1: "unsigned integers",
    2: "signed integers",
    3: "floats",
    5: "complex integers",
    6: "complex floats",
}
_BIG: Final = 43
_TAKEN: Final = "8 bits a sample are taken, and 16 unsigned ones of grey, RGB, RGBA and CMYK"

Tags = Any
"""Pillow's directory of a TIFF: values by the number of their tag, one or a tuple."""


def check_layout(tags: Tags) -> None:
    """Raise InvalidImage for what Pillow takes for 8 bits: planes of 16 bits that are not compressed."""
    bits = _values(tags, _BITS)
    is_separate = tags.get(_PLANES) == _SEPARATE and len(bits) > 1
    if is_separate and max(bits) > 8 and tags.get(_COMPRESSION, _UNCOMPRESSED) == _UNCOMPRESSED:
        raise InvalidImage(
            f"the TIFF has uncompressed planes of {max(bits)} bits, which are not read here; "
            "save it with its samples together (chunky), or compressed"
        )


def sample_words(tags: Tags) -> str:
    """What one sample is: `signed integers of 16 bits`."""
    bits, kinds = sorted(set(_values(tags, _BITS))), sorted(set(_values(tags, _FORMAT)))
    kind = " and ".join(_FORMATS.get(kind, "samples of no known format") for kind in kinds)
    return f"{kind} of {' and '.join(map(str, bits))} bits"


def unsupported(view: memoryview) -> str:
    """Why a TIFF that Pillow has no mode for is refused."""
    with suppress(Exception):  # the file has met one decoder that did not like it, and may not please this one
        tags = _directory(view)
        count = _values(tags, _SAMPLES)[0]
        return f"its pixels have {count} sample{'s' if count != 1 else ''}, {sample_words(tags)}; {_TAKEN}"
    return f"its pixels are of an unknown kind; {_TAKEN}"


def _directory(view: memoryview) -> Tags:
    """The first directory."""
    file = BytesIO(view)
    head = file.read(8)
    head += file.read(8) if _BIG in head[2:4] else b""
    tags = TiffImagePlugin.ImageFileDirectory_v2(head)
    file.seek(tags.next)
    tags.load(file)
    return tags


def _values(tags: Tags, tag: int) -> tuple[int, ...]:
    """A tag's values; one where it is not there, as the format has it."""
    value = tags.get(tag, 1)
    return tuple(map(int, value)) if isinstance(value, tuple) else (int(value),)
