"""Every format and mode becomes the picture that Pillow shows, within two levels; goldens are made here, by Pillow."""

import struct
import zlib
from functools import cache

import numpy as np
import pytest
from PIL import Image

from jobs.datatypes import Datatype
from jobs.errors import InvalidInput
from jobs.spec import ImageOptions, InputKind, InputSpec, Interpolation
from tests.support import pillow_reference as reference
from tests.support.photos import encode, photo, photo_bytes
from tests.support.raw_pictures import Order, deep_png, raw_tiff
from workers.prepare import prepare

CAP = 100_000_000
MAX_DIFFERENCE = 2.0
INTERPOLATIONS: tuple[Interpolation, ...] = ("nearest", "bilinear", "bicubic", "area", "lanczos")


def spec(options: ImageOptions, dims: tuple[int, ...] = (-1, -1, 3)) -> InputSpec:
    return InputSpec("image", Datatype.UINT8, dims, kind=InputKind.IMAGE, image=options)


AS_IT_IS = spec(ImageOptions("HWC"))
USUAL = spec(ImageOptions("HWC", resize=64, crop=(56, 56), interpolation="bicubic"), (56, 56, 3))


def see_through(size: tuple[int, int] = (150, 110)) -> Image.Image:
    """The photo with alpha from none on the left to full on the right."""
    picture = photo("coffee", size).convert("RGBA")
    alpha = np.tile(np.linspace(0, 255, size[0]).astype(np.uint8), (size[1], 1))
    picture.putalpha(Image.fromarray(alpha))
    return picture


def files() -> dict[str, bytes]:
    """The photo in each format and mode that Pillow can write."""
    picture = photo("coffee", (150, 110))
    grey, alpha = picture.convert("L"), see_through()
    palette = picture.quantize(64)
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    other = photo("rocket", (150, 110))
    many = {"save_all": True, "append_images": [other]}
    return {
        "JPEG baseline": encode(picture, "JPEG", quality=90),
        "JPEG progressive": encode(picture, "JPEG", quality=90, progressive=True),
        "JPEG 4:4:4": encode(picture, "JPEG", quality=90, subsampling=0),
        "JPEG stored as RGB": encode(picture, "JPEG", quality=90, keep_rgb=True),
        "JPEG with restarts": encode(picture, "JPEG", quality=90, restart_marker_blocks=2),
        "JPEG grey": encode(grey, "JPEG", quality=90),
        "PNG RGB": encode(picture, "PNG"),
        "PNG grey": encode(grey, "PNG"),
        "PNG 1 bit": encode(picture.convert("1"), "PNG"),
        "PNG 16 bit": encode(deep, "PNG"),
        "PNG grey and alpha": encode(alpha.convert("LA"), "PNG"),
        "PNG RGBA": encode(alpha, "PNG"),
        "PNG palette": encode(palette, "PNG"),
        "PNG 4 bit palette": encode(picture.quantize(16), "PNG", bits=4),
        "PNG palette, one colour transparent": encode(palette, "PNG", transparency=5),
        "PNG palette with alpha": encode(palette, "PNG", transparency=bytes(range(0, 256, 4))),
        "PNG grey, one level transparent": encode(grey, "PNG", transparency=int(np.asarray(grey)[50, 70])),
        "PNG RGB, one colour transparent": encode(picture, "PNG", transparency=(0, 0, 0)),
        "PNG 1 bit, white transparent": encode(picture.convert("1"), "PNG", transparency=1),
        "APNG": encode(picture, "PNG", **many),
        "APNG with alpha": encode(alpha, "PNG", save_all=True, append_images=[other.convert("RGBA")]),
        "WebP": encode(picture, "WEBP", quality=90),
        "WebP lossless": encode(picture, "WEBP", lossless=True),
        "WebP with alpha": encode(alpha, "WEBP", quality=90),
        "WebP animated": encode(picture, "WEBP", **many),
        "WebP animated with alpha": encode(alpha, "WEBP", **many),
        "GIF": encode(picture, "GIF"),
        "GIF interlaced": encode(picture, "GIF", interlace=1),
        "GIF grey": encode(grey, "GIF"),
        "GIF transparent": encode(palette, "GIF", transparency=3),
        "GIF animated": encode(picture, "GIF", **many),
        "BMP": encode(picture, "BMP"),
        "BMP grey": encode(grey, "BMP"),
        "BMP 1 bit": encode(picture.convert("1"), "BMP"),
        "BMP palette": encode(palette, "BMP"),
        "BMP with alpha": encode(alpha, "BMP"),
        "TIFF": encode(picture, "TIFF"),
        "TIFF big": encode(picture, "TIFF", big_tiff=True),
        "TIFF LZW": encode(picture, "TIFF", compression="tiff_lzw"),
        "TIFF deflate": encode(picture, "TIFF", compression="tiff_adobe_deflate"),
        "TIFF JPEG": encode(picture, "TIFF", compression="jpeg"),
        "TIFF fax": encode(picture.convert("1"), "TIFF", compression="group4"),
        "TIFF grey": encode(grey, "TIFF"),
        "TIFF 16 bit": encode(deep, "TIFF"),
        "TIFF 16 bit LZW": encode(deep, "TIFF", compression="tiff_lzw"),
        "TIFF palette": encode(palette, "TIFF"),
        "TIFF RGBA": encode(alpha, "TIFF"),
        "TIFF grey and alpha": encode(alpha.convert("LA"), "TIFF"),
        "TIFF CMYK": encode(picture.convert("CMYK"), "TIFF"),
        "TIFF YCbCr": encode(picture.convert("YCbCr"), "TIFF"),
        "AVIF": encode(picture, "AVIF", quality=90),
        "AVIF with alpha": encode(alpha, "AVIF", quality=90),
        "HEIC": encode(picture, "HEIC", quality=90),
        "HEIC with alpha": encode(alpha, "HEIC", quality=90),
        "HEIC grey": encode(grey, "HEIC", quality=90),
    }


FILES = files()


@pytest.fixture(scope="module", autouse=True)
def _pillow_reads_heic() -> None:
    """The reference reads HEIC through Pillow, which must be told once."""
    from pillow_heif import register_heif_opener

    register_heif_opener()


@pytest.mark.parametrize("name", FILES)
def test_a_picture_that_is_kept_as_it_is_has_the_pixels_that_pillow_shows(name: str) -> None:
    expected = np.asarray(reference.decoded(FILES[name]))
    assert reference.difference(prepare(FILES[name], AS_IT_IS, CAP).array(), expected) < 0.6


@pytest.mark.parametrize("name", FILES)
def test_a_resized_and_cropped_picture_is_within_two_levels_of_pillows(name: str) -> None:
    expected = reference.resized(reference.decoded(FILES[name]), 64, (56, 56), "bicubic")
    assert reference.difference(prepare(FILES[name], USUAL, CAP).array(), expected) < MAX_DIFFERENCE


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("kind", ["JPEG", "BMP"])
@pytest.mark.parametrize("size", [(600, 400), (451, 300), (301, 977), (2000, 1333), (123, 99)])
def test_every_filter_is_within_two_levels_at_every_scale(
    size: tuple[int, int], kind: str, interpolation: Interpolation
) -> None:
    """Small steps and large ones, up and down, with sides that divide by nothing."""
    data = encode(photo("chelsea", size), kind, **({"quality": 92} if kind == "JPEG" else {}))
    wanted = spec(ImageOptions("HWC", resize=256, crop=(224, 224), interpolation=interpolation), (224, 224, 3))
    expected = reference.resized(reference.decoded(data), 256, (224, 224), interpolation)
    assert reference.difference(prepare(data, wanted, CAP).array(), expected) < MAX_DIFFERENCE


@cache
def patterns() -> dict[str, Image.Image]:
    """Pictures that show every difference between two filters."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:700, :1000]
    stripes = np.repeat((x % 7 < 2)[..., None] * 255, 3, 2)
    board = np.repeat(((x + y) % 2)[..., None] * 255, 3, 2)
    rings = np.repeat((127.5 + 127.5 * np.sin((x**2 + y**2) / 900))[..., None], 3, 2)
    noisy_photo = np.asarray(photo("coffee", (1500, 1000))).astype(int) + rng.integers(-12, 13, (1000, 1500, 3))
    return {
        "noise": Image.fromarray(rng.integers(0, 256, (400, 600, 3), np.uint8)),
        "fine noise": Image.fromarray(rng.integers(0, 256, (1000, 1500, 3), np.uint8)),
        "stripes": Image.fromarray(stripes.astype(np.uint8)),
        "board": Image.fromarray(board.astype(np.uint8)),
        "rings": Image.fromarray(rings.astype(np.uint8)),
        "noisy photo": Image.fromarray(noisy_photo.clip(0, 255).astype(np.uint8)),
    }


@pytest.mark.parametrize("kind", ["JPEG", "BMP"])
@pytest.mark.parametrize("name", ["noise", "fine noise", "stripes", "board", "rings", "noisy photo"])
def test_pictures_made_to_betray_a_shortcut_are_within_two_levels_too(name: str, kind: str) -> None:
    data = encode(patterns()[name], kind, **({"quality": 92} if kind == "JPEG" else {}))
    decoded = reference.decoded(data)
    for interpolation in INTERPOLATIONS:
        wanted = spec(ImageOptions("HWC", resize=256, crop=(224, 224), interpolation=interpolation), (224, 224, 3))
        expected = reference.resized(decoded, 256, (224, 224), interpolation)
        got = prepare(data, wanted, CAP).array()
        assert reference.difference(got, expected) < MAX_DIFFERENCE, interpolation


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [(224, 224), (640, 100), (90, 800), (1, 1), (1, 700), (700, 1)])
def test_without_resize_or_crop_the_picture_is_stretched(size: tuple[int, int], interpolation: Interpolation) -> None:
    data = encode(photo("rocket", size), "PNG")
    expected = reference.stretched(reference.decoded(data), 160, 320, interpolation)
    wanted = spec(ImageOptions("HWC", interpolation=interpolation), (160, 320, 3))
    assert reference.difference(prepare(data, wanted, CAP).array(), expected) < MAX_DIFFERENCE


def test_a_12_megapixel_photo_is_within_two_levels() -> None:
    rng = np.random.default_rng(0)
    large = np.asarray(photo("coffee").resize((4000, 3000), Image.Resampling.BICUBIC)).astype(int)
    noisy = Image.fromarray((large + rng.integers(-6, 7, large.shape)).clip(0, 255).astype(np.uint8))
    data = encode(noisy, "JPEG", quality=90)
    wanted = spec(ImageOptions("HWC", resize=256, crop=(224, 224), interpolation="bicubic"), (224, 224, 3))
    expected = reference.resized(reference.decoded(data), 256, (224, 224), "bicubic")
    assert reference.difference(prepare(data, wanted, CAP).array(), expected) < 1.0


@pytest.mark.parametrize("kind", ["Adobe CMYK", "plain CMYK", "YCCK"])
@pytest.mark.parametrize("side", [64, 16])
def test_four_inks_come_out_in_the_right_colours(kind: str, side: int) -> None:
    """B083: inverted inks, with and without Adobe's marker, plain and as YCCK; at full size and decoded smaller."""
    data = encode(photo("coffee", (150, 110)).convert("CMYK"), "JPEG", quality=95)
    marker = data.index(b"\xff\xee\x00\x0eAdobe")
    if kind == "plain CMYK":
        data = data[:marker] + data[marker + 16 :]
    elif kind == "YCCK":
        data = data[: marker + 15] + b"\x02" + data[marker + 16 :]
    expected = reference.decoded(data)
    assert reference.difference(prepare(data, AS_IT_IS, CAP).array(), np.asarray(expected)) < 0.6
    wanted = spec(ImageOptions("HWC", resize=side), (side, side, 3))
    got = prepare(data, wanted, CAP).array()
    assert reference.difference(got, reference.resized(expected, side, (side, side), "bilinear")) < MAX_DIFFERENCE
    if kind != "YCCK":  # there the inks mean other colours, by the change made above
        assert reference.difference(prepare(data, AS_IT_IS, CAP).array(), np.asarray(photo("coffee", (150, 110)))) < 8


def test_the_first_frame_is_taken_and_see_through_parts_are_white() -> None:
    """B084: transparent GIF, APNG and animated WebP; palette with transparency over white."""
    clear = Image.new("RGBA", (40, 30), (200, 0, 0, 0))
    clear.paste((0, 0, 200, 255), (0, 0, 20, 30))
    second = Image.new("RGBA", (40, 30), (0, 255, 0, 255))
    for kind in ("GIF", "PNG", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        data = encode(clear, kind, save_all=True, append_images=[second], **options)
        pixels = prepare(data, AS_IT_IS, CAP).array()
        assert pixels.shape == (30, 40, 3)
        assert np.abs(pixels[:, :20].astype(int) - (0, 0, 200)).max() <= 2, kind
        assert (pixels[:, 20:] == 255).all(), kind


def test_premultiplied_alpha_is_understood() -> None:
    data = encode(see_through(), "PNG")
    expected = np.asarray(reference.decoded(data))
    premultiplied = encode(see_through().convert("RGBa").convert("RGBA"), "TIFF")
    assert reference.difference(prepare(premultiplied, AS_IT_IS, CAP).array(), expected) < MAX_DIFFERENCE


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bits_in_png_are_scaled_not_clipped(channels: int) -> None:
    levels = np.linspace(0, 65535, 64 * 32 * channels).reshape(32, 64, channels).astype(np.uint16)
    if channels in (2, 4):
        levels[..., -1] = 65535
    got = prepare(deep_png(levels), AS_IT_IS, CAP).array().astype(int)
    expected = np.broadcast_to((levels[..., : 1 if channels < 3 else 3] / 257).round(), got.shape)
    assert np.abs(got - expected).max() <= 1


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_in_tiff_are_scaled_in_both_byte_orders(channels: int, order: Order) -> None:
    levels = np.linspace(0, 65535, 64 * 32 * channels).reshape(32, 64, channels).astype(np.uint16)
    got = prepare(raw_tiff(levels, order), AS_IT_IS, CAP).array().astype(int)
    assert np.abs(got - np.broadcast_to((levels / 257).round(), got.shape)).max() <= 1


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [1, 3])
def test_8_bits_in_tiff_are_exact_in_both_byte_orders(channels: int, order: Order) -> None:
    levels = np.asarray(photo("coffee", (64, 32)))[..., :channels]
    got = prepare(raw_tiff(levels, order), AS_IT_IS, CAP).array()
    assert np.array_equal(got, np.broadcast_to(levels, got.shape))


def test_12_bits_in_tiff_are_scaled_by_their_own_depth() -> None:
    levels = np.linspace(0, 4095, 64 * 32).reshape(32, 64, 1).astype(np.uint16)
    got = prepare(raw_tiff(levels, bits=12), AS_IT_IS, CAP).array().astype(int)
    assert np.abs(got - np.broadcast_to((levels / 4095 * 255).round(), got.shape)).max() <= 1


def test_a_16_bit_tiff_where_zero_is_white_is_not_shown_as_a_negative() -> None:
    levels = np.linspace(0, 65535, 64 * 32).reshape(32, 64, 1).astype(np.uint16)
    got = prepare(raw_tiff(levels, white_is_zero=True), AS_IT_IS, CAP).array().astype(int)
    assert np.abs(got - np.broadcast_to(255 - (levels / 257).round(), got.shape)).max() <= 1


def test_16_bit_grey_with_one_level_transparent_is_white_there() -> None:
    levels = np.full((8, 8), 30_000, np.uint16)
    levels[:, 4:] = 12_345
    pixels = prepare(encode(Image.fromarray(levels), "PNG", transparency=12_345), AS_IT_IS, CAP).array()
    assert (pixels[:, :4] == 30_000 >> 8).all()
    assert (pixels[:, 4:] == 255).all()


@pytest.mark.parametrize(
    ("kind", "channels", "what"),
    [
        ("f4", 1, "got floats of 32 bits, which don't say what white is"),
        ("i2", 1, "got signed integers of 16 bits, which don't say what white is"),
        ("i4", 1, "got signed integers of 32 bits, which don't say what white is"),
        ("u4", 1, "unsigned integers of 32 bits"),
        ("u2", 2, "its pixels have 2 samples, unsigned integers of 16 bits; 8 bits a sample are taken"),
        ("f8", 1, "its pixels have 1 sample, floats of 64 bits; 8 bits a sample are taken"),
        ("f4", 3, "its pixels have 3 samples, floats of 32 bits; 8 bits a sample are taken"),
    ],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_samples_that_are_not_read_are_told_by_what_they_are(kind: str, channels: int, what: str, order: Order) -> None:
    with pytest.raises(InvalidInput, match=what):
        prepare(raw_tiff(np.ones((8, 8, channels), kind), order), AS_IT_IS, CAP)


@pytest.mark.parametrize("order", ["<", ">"])
def test_planes_of_16_bits_are_refused_rather_than_shown_wrong(order: Order) -> None:
    """Pillow reads them as planes of 8 bits."""
    levels = np.linspace(0, 65535, 16 * 8 * 3).reshape(8, 16, 3)
    with pytest.raises(
        InvalidInput, match="the TIFF has uncompressed planes of 16 bits, which are not read here; save"
    ):
        prepare(raw_tiff(levels.astype(np.uint16), order, is_planar=True), AS_IT_IS, CAP)
    shallow = (levels / 257).astype(np.uint8)
    assert np.array_equal(prepare(raw_tiff(shallow, order, is_planar=True), AS_IT_IS, CAP).array(), shallow)


def test_planes_of_16_bits_that_are_compressed_are_scaled() -> None:
    levels = np.linspace(0, 65535, 16 * 8 * 3).reshape(8, 16, 3).astype(np.uint16)
    raw = bytearray(raw_tiff(levels, is_planar=True))
    planes = [zlib.compress(np.ascontiguousarray(levels[..., n]).tobytes()) for n in range(3)]
    pixels_at = len(raw) - levels.nbytes
    starts = [pixels_at, pixels_at + len(planes[0]), pixels_at + len(planes[0]) + len(planes[1])]
    struct.pack_into("<6I", raw, pixels_at - 24, *starts, *map(len, planes))
    struct.pack_into("<HHIHH", raw, raw.index(struct.pack("<HHI", 259, 3, 1)), 259, 3, 1, 8, 0)
    got = prepare(bytes(raw[:pixels_at]) + b"".join(planes), AS_IT_IS, CAP).array().astype(int)
    assert np.abs(got - (levels / 257).round()).max() <= 1


def test_colour_profiles_are_left_as_they_are() -> None:
    from PIL import ImageCms

    picture = photo("coffee", (60, 40))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    with_profile = encode(picture, "PNG", icc_profile=profile)
    assert np.array_equal(prepare(with_profile, AS_IT_IS, CAP).array(), np.asarray(picture))


def test_the_shipped_photos_are_within_one_level() -> None:
    wanted = spec(ImageOptions("HWC", resize=256, crop=(224, 224), interpolation="bicubic"), (224, 224, 3))
    for name in ("chelsea", "coffee", "rocket"):
        expected = reference.resized(photo(name), 256, (224, 224), "bicubic")
        assert reference.difference(prepare(photo_bytes(name), wanted, CAP).array(), expected) < 1.0
