"""Pixels become the numbers that a model wants: order, layout, normalisation and datatype, against plain formulas."""

import numpy as np
import pytest
from PIL import Image

from jobs.datatypes import Datatype
from jobs.spec import ColorOrder, ImageOptions, InputKind, InputSpec, Layout
from tests.support.photos import encode, photo
from workers.prepare import prepare, prepare_into

CAP = 1_000_000
PHOTO = photo("coffee", (40, 30))
PNG = encode(PHOTO, "PNG")
PIXELS = np.asarray(PHOTO)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUMBERS = [datatype for datatype in Datatype if datatype not in (Datatype.BOOL, Datatype.BYTES)]


def spec(
    datatype: Datatype = Datatype.UINT8,
    layout: Layout = "HWC",
    color: ColorOrder = "RGB",
    scale: float = 1.0,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> InputSpec:
    channels = 1 if color == "GRAY" else 3
    dims = (30, 40, channels) if layout == "HWC" else (channels, 30, 40)
    options = ImageOptions(layout, color=color, scale=scale, mean=mean, std=std)
    return InputSpec("image", datatype, dims, kind=InputKind.IMAGE, image=options)


def to_bfloat16(
    values: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]",
) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint16]]":
    """The upper half of each float, rounded to the nearest, a tie to the even one: the definition, one by one."""
    words = []
    for word in values.astype("<f4").view("<u4").reshape(-1).tolist():
        upper, lower = word >> 16, word & 0xFFFF
        words.append(upper + (lower > 0x8000 or (lower == 0x8000 and upper & 1)))
    return np.array(words, "<u2").reshape(values.shape)


@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("datatype", NUMBERS)
def test_every_datatype_layout_and_colour_order(datatype: Datatype, layout: Layout, color: ColorOrder) -> None:
    tensor = prepare(PNG, spec(datatype, layout, color), CAP)
    expected = {"RGB": PIXELS, "BGR": PIXELS[..., ::-1], "GRAY": np.asarray(PHOTO.convert("L"))[..., None]}[color]
    if layout == "CHW":
        expected = expected.transpose(2, 0, 1)
    tensor.check()
    assert (tensor.name, tensor.datatype, tensor.shape) == ("image", datatype, expected.shape)
    values = tensor.array()
    if datatype is Datatype.BF16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if datatype is Datatype.INT8:
        expected = np.minimum(expected, 127)
    assert np.array_equal(values.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.FP32, Datatype.FP64, Datatype.BF16])
def test_floats_are_scaled_shifted_and_divided_per_channel(datatype: Datatype, layout: Layout) -> None:
    got = prepare(PNG, spec(datatype, layout, scale=1 / 255, mean=MEAN, std=STD), CAP).array()
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)
    values = (PIXELS.astype(np.float32) * np.float32(1 / 255) - mean) / std
    expected = to_bfloat16(values) if datatype is Datatype.BF16 else values.astype(datatype.numpy)
    assert np.array_equal(got, expected if layout == "HWC" else expected.transpose(2, 0, 1))


def test_mean_and_std_follow_the_models_order_of_channels() -> None:
    got = prepare(PNG, spec(Datatype.FP32, color="BGR", mean=(1.0, 2.0, 3.0)), CAP).array()
    assert np.array_equal(got, PIXELS[..., ::-1].astype(np.float32) - np.array([1, 2, 3], np.float32))


def test_one_mean_serves_all_channels() -> None:
    got = prepare(PNG, spec(Datatype.FP32, mean=(127.5,), std=(127.5,)), CAP).array()
    assert np.array_equal(got, (PIXELS.astype(np.float32) - np.float32(127.5)) / np.float32(127.5))


def test_integers_are_rounded_and_kept_in_range() -> None:
    got = prepare(PNG, spec(Datatype.INT8, mean=(128.0,)), CAP).array()
    assert np.array_equal(got, (PIXELS.astype(int) - 128).astype(np.int8))
    halves = prepare(PNG, spec(Datatype.UINT8, scale=0.5), CAP).array()
    assert np.array_equal(halves, np.rint(PIXELS / 2).astype(np.uint8))


def test_bfloat16_ties_go_to_the_even_word() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    options = ImageOptions("HWC", color="GRAY", scale=1 + 2**-8)
    wanted = InputSpec("image", Datatype.BF16, (16, 16, 1), kind=InputKind.IMAGE, image=options)
    data = encode(Image.fromarray(ramp), "PNG")
    values = ramp.astype(np.float32) * np.float32(1 + 2**-8)
    assert np.array_equal(prepare(data, wanted, CAP).array()[..., 0], to_bfloat16(values))


def test_a_grey_picture_fills_all_channels_of_a_colour_model() -> None:
    grey = PHOTO.convert("L")
    for kind in ("PNG", "BMP"):
        got = prepare(encode(grey, kind), spec(Datatype.FP32, "CHW", mean=(1.0, 2.0, 3.0)), CAP).array()
        for channel in range(3):
            assert np.array_equal(got[channel], np.asarray(grey).astype(np.float32) - (channel + 1))


def test_grey_models_get_the_luma_of_a_colour_jpeg() -> None:
    data = encode(PHOTO, "JPEG", quality=95, subsampling=0)
    got = prepare(data, spec(color="GRAY"), CAP).array()[..., 0].astype(int)
    assert np.abs(got - np.asarray(PHOTO.convert("L"))).mean() < 2


@pytest.mark.parametrize("datatype", [Datatype.UINT8, Datatype.FP16, Datatype.FP32, Datatype.BF16])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_a_picture_is_written_straight_into_its_row_of_a_batch(layout: Layout, datatype: Datatype) -> None:
    wanted = spec(datatype, layout, scale=0.5) if datatype is not Datatype.UINT8 else spec(datatype, layout)
    batch = np.full((3, *wanted.dims), 7, datatype.numpy)
    prepare_into(PNG, wanted, CAP, batch[1])
    assert np.array_equal(batch[1], prepare(PNG, wanted, CAP).array())
    assert (batch[[0, 2]] == 7).all()


def test_a_row_may_have_any_strides() -> None:
    wide = np.zeros((30, 40, 6), np.float32)
    prepare_into(PNG, spec(Datatype.FP32), CAP, wide[..., ::2])
    assert np.array_equal(wide[..., ::2], PIXELS.astype(np.float32))
    assert not wide[..., 1::2].any()


@pytest.mark.parametrize("datatype", [Datatype.BOOL, Datatype.BYTES])
def test_a_datatype_that_holds_no_levels_is_the_callers_mistake(datatype: Datatype) -> None:
    with pytest.raises(ValueError, match=f"a picture can't be given as {datatype}"):
        prepare(PNG, spec(datatype), CAP)
