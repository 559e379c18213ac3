"""Real photos and every kind of file made from them, for tests of all layers.

It must not know what the product makes of them: expectations come from Pillow, in the tests.
"""

import random
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageOps

PHOTOS: Final = ("chelsea", "coffee", "rocket")
"""A cat (451x300), a cup of espresso (600x400), a missile at take-off (640x427)."""

_FOLDER: Final = Path(__file__).parents[2] / "examples" / "images"
_MEDIA_TYPES: Final = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file made from one of the photos."""

    photo: str
    format: str
    data: bytes

    @property
    def media_type(self) -> str:
        """What an honest client would send as Content-Type."""
        return _MEDIA_TYPES[self.format]


@cache
def photo_bytes(name: str) -> bytes:
    """One of the photos as the JPEG file that is shipped."""
    return (_FOLDER / f"{name}.jpg").read_bytes()


def photo(name: str, size: tuple[int, int] | None = None) -> Image.Image:
    """One of the photos in RGB, at its own size or cut and scaled to (width, height)."""
    with Image.open(BytesIO(photo_bytes(name))) as image:
        picture = image.convert("RGB")
    return ImageOps.fit(picture, size, Image.Resampling.BICUBIC) if size else picture


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The picture as a file of a format that Pillow can write, with its options."""
    if kind in ("HEIC", "HEIF"):
        return _encode_heic(image, **options)
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def exif_with_orientation(orientation: int) -> bytes:
    """EXIF data that says nothing but which way up the picture is (1-8)."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def mixed_photos(count: int, seed: int = 0) -> list[Upload]:
    """Uploads of the three photos, no two equal: other cuts, sizes and formats, as a crowd of clients sends them."""
    rng = random.Random(seed)
    return [_variant(PHOTOS[index % len(PHOTOS)], index, rng) for index in range(count)]


def _variant(name: str, index: int, rng: random.Random) -> Upload:
    picture = photo(name)
    width, height = picture.size
    # The middle stays, so that the photo stays what it is; the index in the size keeps any two apart.
    left, top = rng.randrange(width // 12), rng.randrange(height // 12)
    picture = picture.crop((left, top, width - rng.randrange(width // 12), height - rng.randrange(height // 12)))
    scale = rng.uniform(0.6, 1.4)
    picture = picture.resize((round(picture.width * scale) + index // 12, round(picture.height * scale)))
    kind = rng.choices(("JPEG", "PNG", "WEBP", "GIF"), (6, 2, 2, 1))[0]
    options: dict[str, Any] = {"JPEG": {"quality": rng.randrange(80, 96)}, "WEBP": {"quality": 90, "method": 0}}.get(
        kind, {"compress_level": 1} if kind == "PNG" else {}
    )
    return Upload(name, kind, encode(picture, kind, **options))


def _encode_heic(image: Image.Image, **options: Any) -> bytes:
    from pillow_heif import from_pillow

    buffer = BytesIO()
    from_pillow(image).save(buffer, **options)
    return buffer.getvalue()
