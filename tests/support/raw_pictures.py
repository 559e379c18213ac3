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
    levels: "np.ndarray[Any, Any]", order: Order = "<", *, white_is_zero: bool = False, bits: int = 16, rows: int = 0
) -> bytes:
    """An uncompressed TIFF from [height, width, 1 or 3]; `rows` is how many of them the one strip claims to hold.

    Unsigned levels of 8, 12 or 16 bits, signed ones of 16, or 32-bit floats, as the array's type says.
    """
    height, width, channels = levels.shape
    words = levels.astype(levels.dtype.newbyteorder(order))
    data = _packed12(levels) if bits == 12 else words.tobytes()
    pixels_at, depths_at = 8 + 2 + 12 * 10 + 4 + 8, 8 + 2 + 12 * 10 + 4
    bits = words.dtype.itemsize * 8 if bits == 16 else bits
    entries = [
        (256, 3, 1, width),
        (257, 3, 1, height),
        (258, 3, channels, depths_at if channels > 2 else bits),
        (259, 3, 1, 1),
        (262, 3, 1, 2 if channels == 3 else int(not white_is_zero)),
        (273, 4, 1, pixels_at),
        (277, 3, 1, channels),
        (278, 3, 1, rows or height),
        (279, 4, 1, len(data)),
        (339, 3, 1, {"u": 1, "i": 2, "f": 3}[words.dtype.kind]),
    ]
    return tiff(entries, order) + struct.pack(order + "4H", *[bits] * 4) + data


def _packed12(levels: "np.ndarray[Any, Any]") -> bytes:
    first, second = (levels.reshape(-1)[start::2].astype(np.uint16) for start in (0, 1))
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype(np.uint8).tobytes()
