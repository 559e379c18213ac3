"""Which way up a picture is, by its EXIF data, and how to turn windows and pixels accordingly.

It reads the one tag that it needs from untrusted bytes; damaged EXIF data never makes a picture unreadable.
"""

import re
import struct
from typing import Any, Final, NamedTuple

import numpy as np

from jobs.image_headers import InvalidImage, heif_transformations, jpeg_segments
from workers.prepare.geometry import Size, Window

_TAG: Final = 0x0112
_SHORT: Final = 3
_MAX_TAGS: Final = 4096
_EXIF: Final = b"Exif\0\0"
_XMP: Final = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_TAG: Final = re.compile(rb"tiff:Orientation(?:=[\"']|>)([1-8])")


class Turn(NamedTuple):
    """From stored to seen: first swap the axes, then mirror left to right, then top to bottom."""

    swaps: bool
    mirrors_x: bool
    mirrors_y: bool

    def size(self, stored: Size) -> Size:
        """The size as seen."""
        return Size(stored.height, stored.width) if self.swaps else stored

    def undo(self, seen: Window) -> Window:
        """The window that, cut from the stored picture and turned, shows the same as `seen` does."""
        resized, left, top = seen.resized, seen.left, seen.top
        if self.mirrors_x:
            left = resized.width - left - seen.width
        if self.mirrors_y:
            top = resized.height - top - seen.height
        if self.swaps:
            return Window(Size(resized.height, resized.width), top, left, seen.height, seen.width)
        return Window(resized, left, top, seen.width, seen.height)

    def then(self, later: "Turn") -> "Turn":
        """This turn, and a later one after it."""
        x, y = (self.mirrors_y, self.mirrors_x) if later.swaps else (self.mirrors_x, self.mirrors_y)
        return Turn(self.swaps != later.swaps, x != later.mirrors_x, y != later.mirrors_y)

    def inverse(self) -> "Turn":
        """From seen back to stored."""
        return Turn(self.swaps, self.mirrors_y, self.mirrors_x) if self.swaps else self

    def apply(self, stored: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        """The pixels (height, width, channels) as seen; a view."""
        seen = stored.swapaxes(0, 1) if self.swaps else stored
        return seen[:: -1 if self.mirrors_y else 1, :: -1 if self.mirrors_x else 1]


UPRIGHT: Final = Turn(False, False, False)
_TURNS: Final = {
    1: UPRIGHT,
    2: Turn(False, True, False),
    3: Turn(False, True, True),
    4: Turn(False, False, True),
    5: Turn(True, False, False),
    6: Turn(True, True, False),
    7: Turn(True, True, True),
    8: Turn(True, False, True),
}
_QUARTERS: Final = (_TURNS[1], _TURNS[8], _TURNS[3], _TURNS[6])
"""Turns to the left."""
_MIRRORS: Final = (_TURNS[4], _TURNS[2])


def turn_of(exif: bytes, xmp: bytes = b"") -> Turn:
    """The turn that EXIF data asks for, or else XMP data; none if neither says so."""
    value = _exif_orientation(exif)
    if value is None and (match := _XMP_TAG.search(xmp)):
        value = int(match[1])
    return turn_of_number(value)


def turn_of_number(orientation: int | None) -> Turn:
    """The turn that a value of the tag asks for; none for one that means nothing."""
    return _TURNS.get(orientation or 1, UPRIGHT)


def turn_of_jpeg(view: memoryview) -> Turn:
    """The turn that a JPEG's own EXIF or XMP segment asks for."""
    exif = xmp = b""
    try:
        for segment in jpeg_segments(view):
            if segment.marker == 0xE1:
                data = bytes(view[segment.payload : segment.end])
                exif = exif or (data if data.startswith(_EXIF) else b"")
                xmp = xmp or (data if data.startswith(_XMP) else b"")
    except (InvalidImage, struct.error):
        return UPRIGHT
    return turn_of(exif, xmp)


def turn_of_heif(view: memoryview) -> Turn:
    """The turn that a HEIF's container asks for, and that its decoder makes; EXIF data has no say there."""
    turn = UPRIGHT
    try:
        for kind, value in heif_transformations(view):
            turn = turn.then(_QUARTERS[value & 3] if kind == b"irot" else _MIRRORS[value & 1])
    except (InvalidImage, IndexError, struct.error):
        return UPRIGHT
    return turn


def _exif_orientation(exif: bytes) -> int | None:
    data = exif.removeprefix(_EXIF)
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return None
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, start)
        for index in range(min(count, _MAX_TAGS)):
            tag, kind, values, value = struct.unpack_from(order + "HHIH", data, start + 2 + index * 12)
            if tag == _TAG:
                return int(value) if kind == _SHORT and values == 1 else None
    except struct.error:
        return None
    return None
