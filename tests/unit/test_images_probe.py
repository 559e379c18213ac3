"""What an upload's first bytes say: formats, sizes, refusals, and files made to waste the reader's time."""

import io
import re
import struct
import sys
import time
import zlib

import pytest
from PIL import Image

from jobs.images import (
    ImageFormat,
    ImageHeader,
    InvalidImage,
    TooManyPixels,
    UnsupportedImage,
    decodable_formats,
    probe,
)
from tests.support.photos import encode, exif_with_orientation, photo
from tests.support.raw_pictures import Order, jpeg_header, png, png_chunk, tiff, white_png

CAP = 100_000_000
MAX_CPU_SECONDS = 0.05


def samples() -> dict[str, bytes]:
    """A file of every accepted format, 96x64 pixels."""
    picture = photo("coffee", (96, 64))
    see_through = picture.convert("RGBA")
    return {
        "JPEG": encode(picture, "JPEG"),
        "JPEG progressive": encode(picture, "JPEG", progressive=True),
        "JPEG with EXIF, XMP and ICC": encode(
            picture, "JPEG", exif=exif_with_orientation(6), xmp=b"<x/>", icc_profile=bytes(100_000), comment=b"hello"
        ),
        "PNG": encode(picture, "PNG"),
        "APNG": encode(picture, "PNG", save_all=True, append_images=[picture.rotate(90)]),
        "WebP": encode(picture, "WEBP"),
        "WebP lossless": encode(picture, "WEBP", lossless=True),
        "WebP with alpha": encode(see_through, "WEBP"),
        "WebP animated": encode(picture, "WEBP", save_all=True, append_images=[picture.rotate(90)]),
        "GIF": encode(picture, "GIF"),
        "GIF animated, with a comment": encode(
            picture, "GIF", save_all=True, append_images=[picture.rotate(90)], comment=b"x" * 1000
        ),
        "BMP": encode(picture, "BMP"),
        "TIFF": encode(picture, "TIFF"),
        "TIFF compressed": encode(picture, "TIFF", compression="tiff_lzw"),
        "TIFF big": encode(picture, "TIFF", big_tiff=True),
        "AVIF": encode(picture, "AVIF"),
        "HEIC": encode(picture, "HEIC"),
    }


SAMPLES = samples()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_header_says_the_format_and_the_size(name: str) -> None:
    expected = ImageHeader(ImageFormat(name.removeprefix("A" if name == "APNG" else "").split()[0]), 96, 64)
    assert probe(SAMPLES[name], CAP) == expected
    assert probe(memoryview(SAMPLES[name]), CAP) == expected


def test_the_size_is_as_stored_whatever_exif_says() -> None:
    turned = encode(photo("coffee", (96, 64)), "JPEG", exif=exif_with_orientation(6))
    assert probe(turned, CAP) == ImageHeader(ImageFormat.JPEG, 96, 64)


@pytest.mark.parametrize("size", [(1, 1), (1, 999), (999, 1), (16383, 16), (17, 16383)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_extreme_sizes_are_read_as_pillow_reads_them(kind: str, size: tuple[int, int]) -> None:
    data = encode(Image.new("RGB", size, "navy"), kind)
    header = probe(data, CAP)
    assert (header.width, header.height) == size


def test_a_gif_is_as_large_as_its_first_frame_where_that_is_larger_than_its_screen() -> None:
    frame = struct.pack("<BHHHHB", 0x2C, 10, 20, 300, 200, 0)
    assert probe(b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0) + frame, CAP) == ImageHeader(
        ImageFormat.GIF, 310, 220
    )


def test_a_bmp_may_be_stored_from_the_top() -> None:
    data = bytearray(SAMPLES["BMP"])
    struct.pack_into("<i", data, 22, -64)
    assert probe(bytes(data), CAP) == ImageHeader(ImageFormat.BMP, 96, 64)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
def test_a_tiff_may_say_its_size_in_either_byte_order_and_width(order: Order, kind: int) -> None:
    data = tiff([(256, kind, 1, 640), (257, kind, 1, 480)], order)
    assert probe(data, CAP) == ImageHeader(ImageFormat.TIFF, 640, 480)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html>\n<html><body>Not Found</body></html>", "text"),
        ("Grüße".encode(), "text"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "a PostScript file"),
        (b"8BPS\x00\x01" + bytes(20), "a Photoshop file"),
        (b"PK\x03\x04" + bytes(30), "a ZIP archive"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "a JPEG 2000 picture"),
        (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
        (b"\x00\x00\x00\x1cftypisom\x00\x00\x02\x00isomiso2mp41", "a file of another kind"),
        (b"\x93NUMPY\x01\x00", "a .npy array"),
        (bytes(100), "a file of another kind"),
    ],
)
def test_what_is_no_accepted_picture_is_named(data: bytes, what: str) -> None:
    """B086: HTML named .jpg and its kin; nothing here is decided by a file's name."""
    with pytest.raises(UnsupportedImage, match=rf"^expected a picture \(JPEG, PNG, .*\), got {re.escape(what)}$"):
        probe(data, CAP)


def test_formats_that_pillow_reads_but_nobody_needs_are_refused() -> None:
    picture = photo("coffee", (8, 8))
    for kind in ("EPS", "ICO", "PCX", "PPM", "TGA", "SGI", "DDS", "PDF", "JPEG2000"):
        with pytest.raises(UnsupportedImage):
            probe(encode(picture, kind), CAP)


def test_a_format_without_its_optional_decoder_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    decodable_formats.cache_clear()
    try:
        with pytest.raises(UnsupportedImage, match="this installation has no HEIC decoder; it reads JPEG, PNG"):
            probe(SAMPLES["HEIC"], CAP)
    finally:
        decodable_formats.cache_clear()


@pytest.mark.parametrize("side", [13_000, 19_000, 20_000])
def test_a_pixel_bomb_is_refused_by_its_header(side: int) -> None:
    """B085: kilobytes that decode to gigabytes, below and above the double of Pillow's own limit; no warning."""
    bomb = white_png(side, side)
    assert len(bomb) < 100_000
    with pytest.raises(TooManyPixels) as caught:
        probe(bomb, CAP)
    assert str(caught.value) == (
        f"the picture has {side}x{side} = {side * side} pixels, more than the 100000000 that INFERQ_MAX_PIXELS allows"
    )


def test_a_long_thin_picture_is_no_bomb() -> None:
    """B085: 30000x1."""
    assert probe(white_png(30_000, 1), CAP).width == 30_000


@pytest.mark.parametrize(
    "data",
    [
        jpeg_header(60_000, 60_000),
        png(2**31, 2**31),
        b"RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00" + bytes(4) + b"\xff\xff\xff" * 2,
        b"GIF89a\xff\xff\xff\xff\x00\x00\x00" + struct.pack("<BHHHHB", 0x2C, 0, 0, 1, 1, 0),
        b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 2**31 - 1, -(2**31), 1, 24, 1),
        tiff([(256, 4, 1, 2**32 - 1), (257, 4, 1, 2**32 - 1)]),
    ],
    ids=["JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF"],
)
def test_every_format_is_capped(data: bytes) -> None:
    """T: Image."""
    data += b"\xff\xd9" if data.startswith(b"\xff\xd8") else b""
    data += png_chunk(b"IDAT") if data.startswith(b"\x89PNG") else b""
    with pytest.raises(TooManyPixels):
        probe(data, CAP)


def test_the_cap_itself_is_allowed() -> None:
    assert probe(SAMPLES["PNG"], 96 * 64).height == 64
    with pytest.raises(TooManyPixels):
        probe(SAMPLES["PNG"], 96 * 64 - 1)


def test_a_small_picture_in_a_huge_tile_is_refused() -> None:
    """T: Image. A decoder would allocate the tile, whatever the picture's own size."""
    sizes = [(256, 3, 1, 16), (257, 3, 1, 16)]
    assert probe(tiff([*sizes, (322, 3, 1, 256), (323, 3, 1, 256)]), CAP).width == 16
    with pytest.raises(InvalidImage, match="16x16 pixels in tiles of 60000x60000"):
        probe(tiff([*sizes, (322, 4, 1, 60_000), (323, 4, 1, 60_000)]), CAP)


@pytest.mark.parametrize(
    "data",
    [
        jpeg_header(0, 10) + b"\xff\xd9",
        png(10, 0, png_chunk(b"IDAT")),
        b"GIF89a" + bytes(7) + struct.pack("<BHHHHB", 0x2C, 0, 0, 0, 9, 0),
        b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 0, 5, 1, 24, 0),
        tiff([(256, 3, 1, 10)]),
    ],
    ids=["JPEG", "PNG", "GIF", "BMP", "TIFF without a height"],
)
def test_a_picture_without_pixels_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidImage, match=r"at least 1x1 pixels, the .* header says"):
        probe(data, CAP)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_header_cut_anywhere_is_refused(name: str) -> None:
    """B086."""
    data = SAMPLES[name]
    for length in range(min(len(data), 120)):
        if name.startswith("GIF") and length >= 13 + 768 + 9:
            break  # the whole header is there, and a decoder will find out
        with pytest.raises(InvalidImage):
            probe(data[:length], CAP)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.split()[0] not in ("GIF", "TIFF", "APNG")])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, -128])
def test_most_cut_files_are_found_out_without_decoding(name: str, kept: float) -> None:
    """B086: the last 128 bytes, or the last 90 %, are missing."""
    data = SAMPLES[name]
    cut = data[: int(kept if kept < 0 else len(data) * kept)]
    with pytest.raises(InvalidImage, match="cut short"):
        probe(cut, CAP)


def test_what_cameras_append_to_a_jpeg_does_no_harm() -> None:
    motion = SAMPLES["JPEG"] + b"\x00\x00\x00\x18ftypmp42" + bytes(5_000)
    assert probe(motion, CAP).format is ImageFormat.JPEG


def test_a_jpeg_whose_end_is_far_away_is_left_to_the_decoder() -> None:
    """Looking for the end in megabytes would hold up everybody else."""
    huge = jpeg_header(100, 100) + bytes(3_000_000)
    assert probe(huge, CAP).width == 100


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xd8\xff\xe0\x00\x04\x00\x00\x12\x34", "expected a marker at byte 8, got 0x12"),
        (b"\xff\xd8\xff\xd9" + bytes(9), "ends before its picture begins"),
        (b"\xff\xd8\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\xff\xd9", "no frame header in front of its pixels"),
        (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND") + bytes(30), "expected an IHDR chunk of 13 bytes first"),
        (png(5, 5, png_chunk(b"IEND")), "the PNG has no pixels"),
        (png(5, 5, png_chunk(b"IDAT"), color=3), "its pixels need a palette (PLTE), and it has none before them"),
        (png(5, 5, png_chunk(b"IDAT"), png_chunk(b"PLTE", bytes(3)), color=3), "has none before them"),
        (png(5, 5, png_chunk(b"IDAT"), bits=3), "no colour type 0 with 3 bits"),
        (png(5, 5, png_chunk(b"IDAT"), bits=4, color=2), "no colour type 2 with 4 bits"),
        (png(5, 5, png_chunk(b"IDAT"), bits=16, color=3), "no colour type 3 with 16 bits"),
        (png(5, 5, png_chunk(b"IDAT"), color=5), "no colour type 5 with 8 bits"),
        (b"RIFF\x16\x00\x00\x00WEBPICCP" + bytes(30), "its first chunk is no picture"),
        (b"GIF89a" + bytes(7) + b"\x3b", "the GIF ends before its first frame"),
        (b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, -5, 5, 1, 24, 0), "its width is -5"),
        (b"\x00\x00\x00\x14ftypavif\x00\x00\x00\x00avif\x00\x00\x00\x04meta", "shorter than its own header"),
        (b"\x00\x00\x00\x14ftypavif\x00\x00\x00\x00avif", "the AVIF header says 0x0"),
    ],
)
def test_a_contradictory_header_is_refused_in_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(InvalidImage, match=re.escape(message)):
        probe(data, CAP)


def hostile_files() -> dict[str, bytes]:
    """Megabytes that a careless reader would loop through, unpack or allocate."""
    megabyte = 1 << 20
    text = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(megabyte)))
    ok_png = png(64, 64, *[text] * 64, png_chunk(b"IDAT", b"x"), png_chunk(b"IEND"))
    many_ifds = bytearray(tiff([(256, 3, 1, 64), (257, 3, 1, 64)]))
    struct.pack_into("<I", many_ifds, len(many_ifds) - 4, 8)  # the next directory is this one
    box = struct.pack(">I4s", 8, b"free")
    avif = b"\x00\x00\x00\x14ftypavif\x00\x00\x00\x00avif"
    return {
        "PNG of bursting text chunks": ok_png,
        "PNG of a million empty chunks": png(64, 64, png_chunk(b"tEXt") * megabyte),
        "PNG of a million pixel chunks": png(64, 64, png_chunk(b"IDAT") * megabyte),
        "JPEG of a million comments": b"\xff\xd8" + b"\xff\xfe\x00\x02" * megabyte,
        "JPEG of padding": b"\xff\xd8" + b"\xff" * (16 * megabyte),
        "JPEG of bare markers": b"\xff\xd8" + b"\xff\xd0" * (8 * megabyte),
        "JPEG without an end": jpeg_header(64, 64) + b"\xff\x00" * (megabyte // 2),
        "GIF of a million comments": b"GIF89a" + bytes(7) + b"\x21\xfe\x01x\x00" * megabyte,
        "GIF of one endless comment": b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\x01x" * (8 * megabyte),
        "GIF of a hundred thousand frames": b"GIF89a"
        + struct.pack("<HHBBB", 64, 64, 0, 0, 0)
        + (struct.pack("<BHHHHB", 0x2C, 0, 0, 64, 64, 0) + b"\x02\x01\x00\x00") * 100_000,
        "TIFF of 65535 tags": b"II*\0\x08\x00\x00\x00\xff\xff" + struct.pack("<HHII", 305, 2, megabyte, 0) * 65_535,
        "TIFF of overlapping tags": tiff(
            [(256, 3, 1, 9), (257, 3, 1, 9)] + [(700 + i, 7, megabyte, 0) for i in range(99)]
        )
        + bytes(megabyte),
        "TIFF of 16 million strips": tiff([(256, 3, 1, 9), (257, 3, 1, 9), (273, 4, 1 << 24, 0)])
        + bytes(64 * megabyte),
        "TIFF whose directories form a ring": bytes(many_ifds),
        "big TIFF of 2**63 tags": b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 1 << 63) + bytes(megabyte),
        "TIFF that points out of the world": b"II+\0\x08\0\0\0" + struct.pack("<Q", (1 << 64) - 1) + bytes(99),
        "AVIF of a million boxes": avif + box * megabyte,
        "AVIF of a million boxes inside": avif + struct.pack(">I4sI", 12 + 8 * megabyte, b"meta", 0) + box * megabyte,
        "AVIF of endless brands": b"\x7f\xff\xff\xfcftypxxxx" + bytes(megabyte),
        "WebP of nothing": b"RIFF" + struct.pack("<I", 16 * megabyte) + b"WEBPVP8X" + bytes(16 * megabyte),
    }


HOSTILE = hostile_files()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_file_holds_up_the_reader(name: str) -> None:
    """T: Image. The reader stands on the event loop: its work is bounded whatever the file says."""
    data = HOSTILE[name]
    started = time.thread_time()
    try:
        header = probe(data, CAP)
    except InvalidImage:
        header = None
    assert time.thread_time() - started < MAX_CPU_SECONDS
    assert header is None or (header.width, header.height) in ((64, 64), (1, 1))


def test_counting_frames_is_not_its_business() -> None:
    frames = [photo("coffee", (16, 16)).rotate(5 * turn) for turn in range(60)]
    animated = io.BytesIO()
    frames[0].save(animated, "GIF", save_all=True, append_images=frames[1:])
    first_kilobyte = animated.getvalue()[:1024]
    assert probe(first_kilobyte, CAP) == ImageHeader(ImageFormat.GIF, 16, 16)
