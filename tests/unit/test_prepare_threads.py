"""Many threads prepare at once, as in a worker; each gets what it would have got alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from jobs.datatypes import Datatype
from jobs.errors import InvalidInput
from jobs.spec import ImageOptions, InputKind, InputSpec
from tests.support.photos import encode, mixed_photos, photo
from workers.prepare import prepare, prepare_into

CAP = 10_000_000
THREADS = 16
WANTED = InputSpec(
    "image",
    Datatype.FP32,
    (3, 112, 112),
    kind=InputKind.IMAGE,
    image=ImageOptions("CHW", resize=128, crop=(112, 112), interpolation="bicubic", scale=1 / 255, mean=(0.5,)),
)


def uploads() -> list[bytes]:
    """Photos of all sorts, a few of the rarer formats, and some that fail."""
    some = [upload.data for upload in mixed_photos(16, seed=5)]
    small = photo("chelsea", (200, 150))
    rare = [encode(small, kind) for kind in ("AVIF", "HEIC", "TIFF", "BMP")] + [encode(small.convert("CMYK"), "JPEG")]
    return some + rare + [some[0][:300], b"no picture"]


def outcome(data: bytes) -> bytes | str:
    try:
        return bytes(prepare(data, WANTED, CAP).data)
    except InvalidInput as failure:
        return failure.detail


def test_sixteen_threads_get_what_one_gets() -> None:
    files = uploads()
    alone = [outcome(data) for data in files]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(outcome, files * 3))
    assert together == alone * 3


def test_sixteen_threads_fill_one_batch() -> None:
    files = [upload.data for upload in mixed_photos(THREADS, seed=6)]
    batch = np.zeros((THREADS, *WANTED.dims), np.float32)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda row: prepare_into(files[row], WANTED, CAP, batch[row]), range(THREADS)))
    for row, data in enumerate(files):
        assert np.array_equal(batch[row], prepare(data, WANTED, CAP).array())


def test_a_crowd_of_photos_is_all_different_and_all_readable() -> None:
    crowd = mixed_photos(40, seed=1)
    assert len({upload.data for upload in crowd}) == 40
    assert {upload.format for upload in crowd} == {"JPEG", "PNG", "WEBP", "GIF"}
    assert [upload.data for upload in mixed_photos(40, seed=1)] == [upload.data for upload in crowd]
    for upload in crowd:
        assert upload.media_type.startswith("image/")
        assert prepare(upload.data, WANTED, CAP).shape == (3, 112, 112)
