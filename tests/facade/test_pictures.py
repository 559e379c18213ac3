"""Pictures in every format through the whole product: the class that the model gives to plain Pillow's pixels."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.support import pillow_reference as reference
from tests.support.photos import PHOTOS, encode, exif_with_orientation, photo
from tests.support.raw_pictures import raw_tiff

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.server, pytest.mark.process]

MODEL = "efficientnet_lite0"
SIZE = (480, 360)
TOSS_UP = 0.01
"""Where Pillow's own two best classes are no further apart, one level in a few pixels decides between them."""

CAMERA = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}  # fmt: skip
"""What a camera did to the picture that it gave this orientation."""


@pytest.fixture(scope="module", autouse=True)
def _pillow_reads_heic() -> None:
    from pillow_heif import register_heif_opener

    register_heif_opener()


def forms(picture: Image.Image) -> Iterator[tuple[str, bytes]]:
    """The picture as a file of each form, by media type."""
    grey, clear, palette = picture.convert("L"), picture.convert("RGBA"), picture.quantize(128)
    clear.putalpha(Image.fromarray(np.tile(np.linspace(60, 255, SIZE[0]).astype(np.uint8), (SIZE[1], 1))))
    animated: dict[str, Any] = {"save_all": True, "append_images": [Image.new("RGB", SIZE, "red")]}
    yield "image/jpeg", encode(picture, "JPEG", quality=90)
    yield "image/jpeg", encode(picture, "JPEG", quality=90, progressive=True)
    yield "image/jpeg", encode(grey, "JPEG", quality=90)
    yield "image/jpeg", encode(picture.convert("CMYK"), "JPEG", quality=95)
    for orientation, transposition in CAMERA.items():
        exif = exif_with_orientation(orientation)
        yield "image/jpeg", encode(picture.transpose(transposition), "JPEG", quality=90, exif=exif)
    yield "image/png", encode(picture, "PNG", compress_level=1)
    yield "image/png", encode(palette, "PNG")
    yield "image/png", encode(palette, "PNG", transparency=bytes([255, 0] * 64))
    yield "image/png", encode(clear.convert("LA"), "PNG", compress_level=1)
    yield "image/png", encode(picture.convert("1"), "PNG")
    yield "image/png", encode(picture, "PNG", compress_level=1, **animated)
    yield "image/png", encode(clear, "PNG", compress_level=1)
    yield "image/png", encode(Image.fromarray(np.asarray(grey).astype(np.uint16) * 257), "PNG")
    yield "image/webp", encode(picture, "WEBP", quality=90)
    yield "image/webp", encode(clear, "WEBP", quality=90, **animated)
    yield "image/gif", encode(picture, "GIF")
    yield "image/gif", encode(palette, "GIF", transparency=3, **animated)
    yield "image/bmp", encode(picture, "BMP")
    yield "image/tiff", encode(picture, "TIFF", compression="tiff_lzw")
    yield "image/tiff", raw_tiff(np.asarray(picture), ">")
    yield "image/avif", encode(picture, "AVIF", quality=90, speed=10)
    yield "image/heic", encode(picture, "HEIC", quality=90)


def npy(pixels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The request of finished pixels."""
    file = BytesIO()
    np.save(file, pixels)
    return upload("application/x-npy", file.getvalue())


def upload(media_type: str, data: bytes) -> dict[str, Any]:
    """The request of a file, which waits for the end."""
    return {"params": {"model": MODEL}, "content": data, "headers": {"Content-Type": media_type, "Prefer": "wait=60"}}


def frames(data: bytes) -> int:
    """How many frames a file has."""
    with Image.open(BytesIO(data)) as image:
        return int(getattr(image, "n_frames", 1))


async def best(client: httpx.AsyncClient, **request: Any) -> list[dict[str, Any]]:
    """The classes that the model gives, best first."""
    response = await client.post("/jobs", **request)
    assert response.status_code == 201, response.text
    job = response.json()
    assert job["status"] == "succeeded", job["error"]
    classes: list[dict[str, Any]] = job["output"]["probabilities"]
    return classes


@pytest.mark.parametrize("name", PHOTOS)
async def test_a_picture_gets_the_label_that_pillows_pixels_get(product_url: str, name: str) -> None:
    """B081, B083, B084."""
    files = list(forms(photo(name, SIZE)))
    toss_ups = 0
    async with httpx.AsyncClient(base_url=product_url, timeout=90, trust_env=False) as client:
        for media_type, data in files:
            pixels = reference.resized(reference.decoded(data), 256, (224, 224), "bicubic")
            theirs = await best(client, **npy(pixels))
            ours = await best(client, **upload(media_type, data))
            if theirs[0]["score"] - theirs[1]["score"] > TOSS_UP:
                assert ours[0]["label"] == theirs[0]["label"], f"{name} as {media_type}, {len(data)} bytes"
            else:
                toss_ups += 1
    assert toss_ups < len(files) / 4


async def test_a_truncated_picture_is_refused_or_fails_as_invalid_and_never_gets_a_label(product_url: str) -> None:
    """B086. Where only later frames are missing, the first one is whole."""
    async with httpx.AsyncClient(base_url=product_url, timeout=90, trust_env=False) as client:
        for media_type, data in forms(photo("coffee", SIZE)):
            for cut in (data[:-128], data[: len(data) // 2], data[: len(data) // 10]):
                response = await client.post("/jobs", **upload(media_type, cut))
                said = response.json()
                if response.status_code == 422:
                    assert said["code"] == "invalid_image"
                elif said["status"] == "failed":
                    assert (said["error"]["code"], said["attempt"]) == ("invalid_input", 1)
                else:
                    assert frames(data) > 1, f"{media_type}, {len(cut)} of {len(data)} bytes"
                    assert said["output"]["probabilities"] == await best(client, **upload(media_type, data))
