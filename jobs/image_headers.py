"""Where each format's header says how large the picture is, and a HEIF's how it is turned; no pixels are read.

It owns the walk through segments, chunks, tags and boxes; it must not decide what is acceptable, and no file, however
hostile, may make it loop more than `MAX_BLOCKS` times per level of its structure.
"""

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

MAX_BLOCKS: Final = 4096
"""More segments, chunks, tags or boxes than this in front of the pixels are no camera's and no editor's."""


class InvalidImage(ValueError):
    """The upload can't be decoded into a picture; the message is one sentence for its owner."""


class JpegSegment(NamedTuple):
    """One marker segment: `payload` starts behind its two length bytes, `end` is where the next marker begins."""

    marker: int
    start: int
    payload: int
    end: int


def jpeg_segments(view: memoryview) -> Iterator[JpegSegment]:
    """The marker segments of a JPEG up to and including the first start of scan.

    Raises InvalidImage where a marker is missing or there are too many, struct.error where the file ends too early.
    """
    offset = 2
    for _ in range(MAX_BLOCKS):
        prefix, marker = struct.unpack_from("2B", view, offset)
        if prefix != 0xFF:
            raise InvalidImage(f"the JPEG header is damaged: expected a marker at byte {offset}, got 0x{prefix:02x}")
        if marker == 0xFF:  # padding
            offset += 1
        elif marker in _JPEG_BARE:
            offset += 2
        elif marker == 0xD9:
            raise InvalidImage("the JPEG ends before its picture begins")
        else:
            (length,) = struct.unpack_from(">H", view, offset + 2)
            end = offset + 2 + max(length, 2)
            yield JpegSegment(marker, offset, offset + 4, end)
            if marker == _JPEG_SCAN:
                return
            offset = end
    raise InvalidImage(f"the JPEG header has more than {MAX_BLOCKS} segments")


_JPEG_BARE: Final = frozenset({0x01, 0xD8, *range(0xD0, 0xD8)})
_JPEG_SCAN: Final = 0xDA
_JPEG_END: Final = re.compile(rb"\xff\xd9")
_JPEG_SEARCH_BYTES: Final = 1 << 20
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def jpeg_size(view: memoryview) -> tuple[int, int]:
    """Width and height; refuses a file that plainly lacks its end."""
    size: tuple[int, int] | None = None
    scan = len(view)
    for segment in jpeg_segments(view):
        if segment.marker in _JPEG_FRAMES and size is None:
            height, width = struct.unpack_from(">HH", view, segment.payload + 1)
            size = width, height
        scan = segment.end
    if size is None:
        raise InvalidImage("the JPEG has no frame header in front of its pixels")
    # Cameras append data, so the end marker may stand anywhere; only its absence from the whole rest is a proof.
    rest = len(view) - scan
    if bytes(view[-2:]) != b"\xff\xd9" and rest <= _JPEG_SEARCH_BYTES and not _JPEG_END.search(view, scan):
        raise InvalidImage(f"the JPEG is cut short: it has no end marker in its {len(view)} bytes")
    return size


def png_chunks(view: memoryview, limit: int) -> Iterator[tuple[bytes, int]]:
    """The tag of each chunk behind the header, and where it ends with its checksum, up to `limit` of them."""
    offset = 33
    for _ in range(limit):
        if offset + 8 > len(view):
            return
        length, tag = struct.unpack_from(">I4s", view, offset)
        offset += 12 + length
        yield tag, offset
        if tag == b"IEND":
            return


_PNG_PALETTE: Final = 3
_PNG_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), _PNG_PALETTE: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""The bits a sample that each colour type may have."""


def png_size(view: memoryview) -> tuple[int, int]:
    """Width and height; refuses a file whose pixels plainly end behind it, or are of no kind that PNG has."""
    length, tag, width, height, bits, color = struct.unpack_from(">I4sIIBB", view, 8)
    if tag != b"IHDR" or length != 13:
        raise InvalidImage("the PNG header is damaged: expected an IHDR chunk of 13 bytes first")
    if bits not in _PNG_DEPTHS.get(color, ()):
        raise InvalidImage(f"the PNG header is damaged: there is no colour type {color} with {bits} bits")
    has_pixels = has_palette = False
    for tag, end in png_chunks(view, MAX_BLOCKS):
        has_palette = has_palette or tag == b"PLTE"
        if tag == b"IDAT":
            if color == _PNG_PALETTE and not has_palette:
                raise InvalidImage("the PNG is damaged: its pixels need a palette (PLTE), and it has none before them")
            has_pixels = True
            if end - 4 > len(view):
                raise InvalidImage(f"the PNG is cut short: its pixels end behind the file's {len(view)} bytes")
    if not has_pixels:
        raise InvalidImage(f"the PNG has no pixels in its first {MAX_BLOCKS} chunks")
    return width, height


def webp_size(view: memoryview) -> tuple[int, int]:
    """Width and height of the canvas; refuses a file shorter than it says."""
    riff_bytes, tag = struct.unpack_from("<I4x4s", view, 4)
    if riff_bytes + 8 > len(view):
        raise InvalidImage(f"the WebP is cut short: expected {riff_bytes + 8} bytes, got {len(view)}")
    if tag == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", view, 24)
        return (low_w | high_w << 16) + 1, (low_h | high_h << 16) + 1
    if tag == b"VP8L":
        (bits,) = struct.unpack_from("<I", view, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if tag != b"VP8 ":
        raise InvalidImage("the WebP header is damaged: its first chunk is no picture")
    width, height = struct.unpack_from("<HH", view, 26)
    return width & 0x3FFF, height & 0x3FFF


def gif_size(view: memoryview) -> tuple[int, int]:
    """Width and height of the screen, or of the first frame where that reaches further."""
    width, height, flags = struct.unpack_from("<HHB", view, 6)
    offset = 13 + _gif_palette_bytes(flags)
    for _ in range(MAX_BLOCKS):
        (kind,) = struct.unpack_from("B", view, offset)
        if kind == 0x2C:
            left, top, frame_width, frame_height = struct.unpack_from("<HHHH", view, offset + 1)
            return max(width, left + frame_width), max(height, top + frame_height)
        if kind == 0x3B:
            raise InvalidImage("the GIF ends before its first frame")
        offset = _gif_after_extension(view, offset + 2) if kind == 0x21 else offset + 1
    raise InvalidImage(f"the GIF has more than {MAX_BLOCKS} blocks in front of its first frame")


def _gif_palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _gif_after_extension(view: memoryview, offset: int) -> int:
    for _ in range(MAX_BLOCKS):
        (size,) = struct.unpack_from("B", view, offset)
        offset += 1 + size
        if not size:
            return offset
    raise InvalidImage(f"the GIF has an extension of more than {MAX_BLOCKS} blocks in front of its first frame")


def bmp_size(view: memoryview) -> tuple[int, int]:
    """Width and height; refuses a file too short for its uncompressed pixels."""
    pixels, header_bytes = struct.unpack_from("<II", view, 10)
    layout = "<HHHH" if header_bytes == 12 else "<iiHHI"
    width, height, _, bits, *compression = struct.unpack_from(layout, view, 18)
    if width < 0:
        raise InvalidImage(f"the BMP header is damaged: its width is {width}")
    height = abs(height)  # a negative height means rows from the top
    if not any(compression) and height:
        row_bytes = (width * bits + 7) // 8
        expected = pixels + -(-row_bytes // 4) * 4 * (height - 1) + row_bytes
        if expected > len(view):
            raise InvalidImage(f"the BMP is cut short: expected {expected} bytes, got {len(view)}")
    return width, height


_TIFF_ITEMSIZES: Final = (1, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 1, 1, 8, 8, 8)  # by type number
_TIFF_INTEGERS: Final = {1: "B", 3: "H", 4: "I", 16: "Q"}
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 322, 323
_TIFF_TILE_PIXELS: Final = 1 << 24
_TIFF_MAX_VALUES: Final = 1 << 17


def tiff_size(view: memoryview) -> tuple[int, int]:
    """Width and height of the first page."""
    tags = _tiff_tags(view)
    width, height = tags.get(_TIFF_WIDTH, 0), tags.get(_TIFF_HEIGHT, 0)
    tile_width, tile_height = tags.get(_TIFF_TILE_WIDTH, 0), tags.get(_TIFF_TILE_HEIGHT, 0)
    # Decoders allocate whole tiles, so a small picture in a huge tile needs the memory of the tile.
    if tile_width * tile_height > max(_TIFF_TILE_PIXELS, 2 * width * height):
        raise InvalidImage(f"the TIFF is damaged: {width}x{height} pixels in tiles of {tile_width}x{tile_height}")
    return width, height


def _tiff_tags(view: memoryview) -> dict[int, int]:
    """The single integers among the first directory's tags; refuses directories that would make a reader run wild."""
    order = "<" if view[0] == ord("I") else ">"
    big = struct.unpack_from(order + "H", view, 2)[0] == 43
    (start,) = struct.unpack_from(order + ("Q" if big else "I"), view, 8 if big else 4)
    (count,) = struct.unpack_from(order + ("Q" if big else "H"), view, start)
    entry = struct.Struct(order + ("HHQ8s" if big else "HHI4s"))
    start += 8 if big else 2
    if count > MAX_BLOCKS:
        raise InvalidImage(f"the TIFF has {count} tags, more than the {MAX_BLOCKS} that are read")
    tags: dict[int, int] = {}
    value_bytes = 0
    for index in range(count):
        tag, kind, values, inline = entry.unpack_from(view, start + index * entry.size)
        size = _TIFF_ITEMSIZES[kind] if kind < len(_TIFF_ITEMSIZES) else 1
        value_bytes += values * size
        if value_bytes > len(view) or (size > 1 and values > _TIFF_MAX_VALUES):
            raise InvalidImage(f"the TIFF header is damaged: tag {tag} claims {values} values")
        if values == 1 and kind in _TIFF_INTEGERS:
            (tags[tag],) = struct.unpack_from(order + _TIFF_INTEGERS[kind], inline)
    return tags


def _boxes(view: memoryview, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The (type, start, end) of the bodies of the ISO media boxes between two offsets."""
    for _ in range(MAX_BLOCKS):
        if start >= end:
            return
        size, kind = struct.unpack_from(">I4s", view, start)
        body = start + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", view, body)
            body += 8
        box_end = end if size == 0 else start + size
        if box_end < body:
            raise InvalidImage("the picture's boxes are damaged: one is shorter than its own header")
        if box_end > end:
            raise InvalidImage(f"the picture is cut short: a box ends behind the file's {len(view)} bytes")
        yield kind, body, box_end
        start = box_end
    raise InvalidImage(f"the picture has more than {MAX_BLOCKS} boxes")


def _box_path(view: memoryview, start: int, end: int, path: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    if not path:
        yield start, end
        return
    for kind, body, box_end in _boxes(view, start, end):
        if kind == path[0]:
            yield from _box_path(view, body + (4 if kind in _VERSIONED_BOXES else 0), box_end, path[1:])


_VERSIONED_BOXES: Final = frozenset({b"meta", b"ispe"})


def heif_size(view: memoryview) -> tuple[int, int]:
    """The largest size that any item claims: the picture itself, whose tiles and thumbnails are smaller."""
    sizes = (
        struct.unpack_from(">II", view, start)
        for start, _ in _box_path(view, 0, len(view), (b"meta", b"iprp", b"ipco", b"ispe"))
    )
    width, height = max(sizes, key=lambda size: size[0] * size[1], default=(0, 0))
    return width, height


_HEIF_ASSOCIATIONS: Final = 4  # one for each version and width is allowed


def heif_transformations(view: memoryview) -> list[tuple[bytes, int]]:
    """What a decoder does to the main picture, in order: `irot` by so many quarters to the left, `imir` top to bottom
    (0) or left to right (1).

    Raises InvalidImage where there are too many items, struct.error where a box ends too early.
    """
    primary = next((_heif_item(view, start) for start, _ in _box_path(view, 0, len(view), (b"meta", b"pitm"))), None)
    container = next(_box_path(view, 0, len(view), (b"meta", b"iprp", b"ipco")), (0, 0))
    properties = [(kind, start) for kind, start, _ in _boxes(view, *container)]
    associations = _box_path(view, 0, len(view), (b"meta", b"iprp", b"ipma"))
    return [
        (properties[index - 1][0], int(view[properties[index - 1][1]]))
        for start, end in islice(associations, _HEIF_ASSOCIATIONS)
        for index in _heif_associations(view[:end], start, primary)
        if 0 < index <= len(properties) and properties[index - 1][0] in (b"irot", b"imir")
    ]


def _heif_item(view: memoryview, start: int) -> int:
    """The number of the main picture in a `pitm` box."""
    (version,) = struct.unpack_from("B", view, start)
    (item,) = struct.unpack_from(">I" if version else ">H", view, start + 4)
    return int(item)


def _heif_associations(view: memoryview, start: int, item: int | None) -> Iterator[int]:
    """Which properties an `ipma` box gives to an item, by their numbers, which begin at 1."""
    version, flags, count = struct.unpack_from(">B2xBI", view, start)
    if count > MAX_BLOCKS:
        raise InvalidImage(f"the picture has properties for {count} items, more than the {MAX_BLOCKS} that are read")
    entry, width = struct.Struct(">IB" if version else ">HB"), 2 if flags & 1 else 1
    offset = start + 8
    for _ in range(count):
        found, properties = entry.unpack_from(view, offset)
        offset += entry.size
        if found == item:
            words = struct.unpack_from(f">{properties}{'H' if width == 2 else 'B'}", view, offset)
            yield from (word & (0x7FFF if width == 2 else 0x7F) for word in words)
        offset += properties * width
