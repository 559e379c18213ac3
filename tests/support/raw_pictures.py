"""Picture files put together byte by byte: what Pillow can't write, and what nobody should.

It must not use the product.
"""

import struct
import zlib
from typing import Any, Literal

import numpy as np

Order = Literal["<", ">"]


def png_chunk(tag: bytes, data: bytes = b"") -> bytes:
    """A chunk with its length and checksum."""
    return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))


def png(width: int, height: int, *chunks: bytes, bits: int = 8, color: int = 0) -> bytes:
    """A PNG of this size, with these chunks behind its header."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks)


def white_png(width: int, height: int) -> bytes:
    """A complete 1-bit PNG: kilobytes that unpack to the whole width x height."""
    row = b"\x00" + b"\xff" * ((width + 7) // 8)
    packer = zlib.compressobj(9)
    pixels = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    return png(width, height, png_chunk(b"IDAT", pixels), png_chunk(b"IEND"), bits=1)


def tiff(entries: list[tuple[int, int, int, int]], order: Order = "<") -> bytes:
    """A TIFF whose first directory has these (tag, type, count, value) entries and nothing else."""
    head = b"II*\0" if order == "<" else b"MM\0*"
    body = b"".join(
        struct.pack(order + "HHI", *entry[:3])
        + (struct.pack(order + "HH", entry[3], 0) if entry[1:3] == (3, 1) else struct.pack(order + "I", entry[3]))
        for entry in entries
    )
    return head + struct.pack(order + "IH", 8, len(entries)) + body + bytes(4)


def jpeg_header(width: int, height: int) -> bytes:
    """A JPEG up to its scan."""
    frame = struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0)
    return b"\xff\xd8\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"


def deep_png(levels: "np.ndarray[Any, Any]") -> bytes:
    """A PNG of 16 bits per channel from [height, width, channels]: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha."""
    height, width, channels = levels.shape
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = levels.astype(">u2").reshape(height, -1).view(np.uint8)
    packed = zlib.compress(b"".join(b"\x00" + row.tobytes() for row in rows))
    return png(width, height, png_chunk(b"IDAT", packed), png_chunk(b"IEND"), bits=16, color=color)


def raw_tiff(
    levels: "np.ndarray[Any, Any]",
    order: Order = "<",
    *,
    white_is_zero: bool = False,
    bits: int = 16,
    rows: int = 0,
    is_planar: bool = False,
) -> bytes:
    """An uncompressed TIFF from [height, width, 1 to 3]; `rows` is how many of them a strip claims to hold.

    Unsigned levels of 8, 12 or 16 bits, signed ones, or floats, as the array's type says. Two channels are grey and
    alpha. Planar channels stand one behind the other, each in a strip of its own.
    """
    height, width, channels = levels.shape
    words = levels.astype(levels.dtype.newbyteorder(order))
    if is_planar:
        words = np.moveaxis(words, 2, 0)
    data = _packed12(levels) if bits == 12 else words.tobytes()
    strips = channels if is_planar else 1
    depths_at = 8 + 2 + 12 * 12 + 4
    offsets_at = depths_at + 8
    sizes_at = offsets_at + 4 * strips
    pixels_at = sizes_at + 4 * strips
    bits = words.dtype.itemsize * 8 if bits == 16 else bits
    strip_bytes = len(data) // strips
    entries = [
        (256, 3, 1, width),
        (257, 3, 1, height),
        (258, 3, channels, {1: bits, 2: bits << 16 | bits}.get(channels, depths_at)),
        (259, 3, 1, 1),
        (262, 3, 1, 2 if channels == 3 else int(not white_is_zero)),
        (273, 4, strips, offsets_at if strips > 1 else pixels_at),
        (277, 3, 1, channels),
        (278, 3, 1, rows or height),
        (279, 4, strips, sizes_at if strips > 1 else len(data)),
        (284, 3, 1, 2 if is_planar else 1),
        *([(338, 3, 1, 2)] if channels == 2 else [(297, 3, 1, 0)]),  # the second is alpha; or nothing that matters
        (339, 3, 1, {"u": 1, "i": 2, "f": 3}[words.dtype.kind]),
    ]
    depths = struct.pack(order + "4H", *[bits] * 4)
    offsets = struct.pack(f"{order}{strips}I", *(pixels_at + strip_bytes * n for n in range(strips)))
    sizes = struct.pack(f"{order}{strips}I", *[strip_bytes] * strips)
    return tiff(entries, order) + depths + offsets + sizes + data


def _packed12(levels: "np.ndarray[Any, Any]") -> bytes:
    first, second = (levels.reshape(-1)[start::2].astype(np.uint16) for start in (0, 1))
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype(np.uint8).tobytes()
