"""Cut, garbled and hostile files fail with one clear sentence: no half pictures, no other errors, no wasted hours."""

import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from jobs.datatypes import Datatype
from jobs.errors import ErrorCode, InvalidInput
from jobs.images import ImageFormat, InvalidImage
from jobs.spec import ImageOptions, InputKind, InputSpec
from tests.support.photos import encode, photo
from tests.support.raw_pictures import png, png_chunk, raw_tiff, white_png
from workers.prepare import prepare
from workers.prepare.decode import translated

CAP = 1_000_000
AS_IT_IS = InputSpec("image", Datatype.UINT8, (-1, -1, 3), kind=InputKind.IMAGE, image=ImageOptions("HWC"))
USUAL = InputSpec(
    "image",
    Datatype.UINT8,
    (224, 224, 3),
    kind=InputKind.IMAGE,
    image=ImageOptions("HWC", resize=256, crop=(224, 224), interpolation="bicubic"),
)
MAX_CPU_SECONDS = 2.0


def files() -> dict[str, bytes]:
    picture = photo("coffee", (300, 200))
    return {
        "JPEG": encode(picture, "JPEG", quality=90),
        "JPEG progressive": encode(picture, "JPEG", quality=90, progressive=True),
        "JPEG CMYK": encode(picture.convert("CMYK"), "JPEG", quality=90),
        "PNG": encode(picture, "PNG"),
        "WebP": encode(picture, "WEBP"),
        "GIF": encode(picture, "GIF"),
        "BMP": encode(picture, "BMP"),
        "TIFF": encode(picture, "TIFF"),
        "TIFF LZW": encode(picture, "TIFF", compression="tiff_lzw"),
        "AVIF": encode(picture, "AVIF"),
        "HEIC": encode(picture, "HEIC"),
    }


FILES = files()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [-128, 0.9, 0.5, 0.1])
def test_a_cut_file_is_the_senders_fault(name: str, kept: float) -> None:
    """B086: the last 128 bytes or the last 90 % dropped, or less; never a picture with a grey bottom."""
    cut = FILES[name][: int(kept if kept < 0 else len(FILES[name]) * kept)]
    with pytest.raises(InvalidInput, match=r"^Input `image`: the .*\.$") as caught:
        prepare(cut, USUAL, CAP)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < 200


def test_a_web_page_named_jpg_is_the_senders_fault() -> None:
    """B086."""
    with pytest.raises(InvalidInput, match=r"expected a picture \(JPEG, .*\), got text"):
        prepare(b"<html><body>404</body></html>", USUAL, CAP)


@pytest.mark.parametrize("name", ["JPEG", "JPEG progressive", "JPEG CMYK"])
def test_a_cut_jpeg_with_an_end_stuck_on_is_found_out(name: str) -> None:
    """libjpeg paints the rest grey and only warns; Pillow says nothing."""
    data = FILES[name]
    scan = data.rindex(b"\xff\xda")
    cut = data[: (scan + len(data)) // 2].removesuffix(b"\xff") + b"\xff\xd9"
    with pytest.raises(InvalidInput, match=r"the JPEG is damaged: .*premature end"):
        prepare(cut, USUAL, CAP)


def test_a_garbled_jpeg_is_refused() -> None:
    data = bytearray(FILES["JPEG"])
    middle = len(data) // 2
    data[middle : middle + 400] = b"\xaa" * 400
    with pytest.raises(InvalidInput, match="the JPEG is damaged: Corrupt JPEG data"):
        prepare(bytes(data), USUAL, CAP)


def test_harmless_oddities_of_a_jpeg_are_forgiven() -> None:
    expected = prepare(FILES["JPEG"], AS_IT_IS, CAP).array()
    strange = bytearray(FILES["JPEG"])
    strange[strange.index(b"JFIF\0") + 5] = 9  # a revision that nobody knows: libjpeg warns
    assert np.array_equal(prepare(bytes(strange), AS_IT_IS, CAP).array(), expected)
    motion = FILES["JPEG"] + b"\x00\x00\x00\x18ftypmp42" + bytes(2_000)
    assert np.array_equal(prepare(motion, AS_IT_IS, CAP).array(), expected)


def test_bytes_between_scans_are_forgiven_but_not_what_is_missing() -> None:
    data = FILES["JPEG progressive"]
    second = data.index(b"\xff\xc4", data.index(b"\xff\xda"))
    padded = data[:second] + bytes(7) + data[second:]
    assert np.array_equal(prepare(padded, AS_IT_IS, CAP).array(), prepare(data, AS_IT_IS, CAP).array())
    with pytest.raises(InvalidInput, match="JPEG"):
        prepare(padded[: second + 60] + bytes(2_000_000), AS_IT_IS, CAP)


def test_a_file_that_says_two_sizes_is_refused() -> None:
    """A decoder that read another header than the one that was checked would pass the pixel cap by."""
    data = FILES["JPEG"]
    frame = data.index(b"\xff\xc0")
    smaller = bytearray(data[frame : frame + 19])
    struct.pack_into(">HH", smaller, 5, 8, 8)
    with pytest.raises(InvalidInput, match="the JPEG says two sizes: 8x8 and 300x200"):
        prepare(data[:frame] + bytes(smaller) + data[frame:], AS_IT_IS, CAP)


def test_a_tiff_that_lacks_most_of_its_strips_is_not_shown_in_black() -> None:
    levels = np.full((64, 64, 1), 60_000, np.uint16)
    with pytest.raises(InvalidInput, match="cover only a part of it"):
        prepare(raw_tiff(levels, rows=8), AS_IT_IS, CAP)


def test_the_cap_holds_for_what_is_uploaded() -> None:
    """B085."""
    with pytest.raises(InvalidInput, match=r"1001x1000 = 1001000 pixels, more than the 1000000 that"):
        prepare(white_png(1001, 1000), USUAL, CAP)


def test_a_photo_between_pillows_limit_and_ours_is_no_warning() -> None:
    """B085: Pillow warns above 89 megapixels; our cap is a setting, and warnings are errors here."""
    assert (prepare(white_png(9_600, 9_600), USUAL, 100_000_000).array() == 255).all()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("image file is truncated"), "image file is truncated"),
        (AssertionError(), "it is damaged, or of a kind that is not supported"),
        (KeyError("mode"), "it is damaged, or of a kind that is not supported"),
        (SyntaxError(KeyError(7)), "it is damaged, or of a kind that is not supported"),
        (SyntaxError("not identified by this driver"), "it is damaged, or of a kind that is not supported"),
        (struct.error("unpack requires a buffer of 4 bytes"), "it is damaged, or of a kind that is not supported"),
        (MemoryError(), "it is damaged, or of a kind that is not supported"),
    ],
)
def test_what_a_decoder_raises_is_never_told_by_its_name(error: Exception, words: str) -> None:
    with pytest.raises(InvalidImage) as caught, translated(ImageFormat.PNG):
        raise error
    assert str(caught.value) == f"the PNG can't be decoded: {words}"


def hostile_files() -> dict[str, bytes]:
    packed = zlib.compress(bytes(65 * 64), 9)
    text = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 20)))
    bitmap = b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 1024)
    rle = bitmap + struct.pack("<IiiHHIIiiII", 40, 1000, 1000, 1, 8, 1, 0, 0, 0, 256, 0) + bytes(1024)
    return {
        "a million pixel chunks": png(64, 64, png_chunk(b"IDAT", packed), png_chunk(b"IDAT") * (1 << 20)),
        "a million chunks behind the pixels": png(64, 64, png_chunk(b"IDAT", packed), png_chunk(b"tEXt") * (1 << 20)),
        "bursting text": png(64, 64, *[text] * 200, png_chunk(b"IDAT", packed), png_chunk(b"IEND")),
        "millions of runs": rle + b"\x01\x05" * (4 << 20),
        "millions of runs of nothing": rle + b"\x00\x02\x00\x00" * (4 << 20),
    }


@pytest.mark.parametrize("name", hostile_files())
def test_no_file_keeps_a_thread_busy(name: str) -> None:
    """T: Image. Decoders in Python would hold up every other thread of the worker."""
    data = hostile_files()[name]
    started = time.thread_time()
    with pytest.raises(InvalidInput):
        prepare(data, USUAL, CAP)
    assert time.thread_time() - started < MAX_CPU_SECONDS


def test_a_large_picture_needs_little_more_memory_than_its_pixels() -> None:
    """Palette, alpha and turn are dealt with in bands; numpy's arrays are what is counted here."""
    data = encode(Image.new("RGBA", (4_000, 2_000), (9, 9, 9, 99)), "PNG", compress_level=1)
    prepare(data, USUAL, 10_000_000)
    tracemalloc.start()
    try:
        prepare(data, USUAL, 10_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000 * 2_000 * 3
