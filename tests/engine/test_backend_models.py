"""The shipped models on a real engine: what they answer, and that the engine itself names the classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inferq.stack import TritonServer
from inferq.stack.environment import PROJECT_ROOT
from tests.support.engine_http import Array, EngineHttp, Raw, array
from tests.support.models import CONFIG_TYPES, identity_name

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

IMAGES = PROJECT_ROOT / "examples" / "images"

ELEMENT_BYTES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2}
ELEMENT_BYTES |= {"UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8}


def prepared(path: Path) -> Array:
    """A photo as the model's `inferq` parameter says: shorter side to 256, bicubic, centre crop of 224."""
    image = Image.open(path).convert("RGB")
    factor = 256 / min(image.size)
    image = image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


@pytest.mark.parametrize(("photo", "label"), [("coffee", "espresso"), ("chelsea", "tiger cat"), ("rocket", "missile")])
async def test_the_engine_names_what_is_on_the_photo(engine: TritonServer, photo: str, label: str) -> None:
    wanted = {"probabilities": {"classification": 3}}
    async with EngineHttp(engine.http_address) as triton:
        answer = await triton.infer("efficientnet_lite0", {"image": prepared(IMAGES / f"{photo}.jpg")[None]}, wanted)
    best = array(answer["probabilities"])[0, 0].decode()
    assert best.split(":")[2] == label


async def test_coffee_is_espresso_beyond_doubt_and_probabilities_sum_to_one(engine: TritonServer) -> None:
    async with EngineHttp(engine.http_address) as triton:
        answer = await triton.infer("efficientnet_lite0", {"image": prepared(IMAGES / "coffee.jpg")[None]})
    probabilities = array(answer["probabilities"])[0]
    assert probabilities[967] >= 0.9
    assert probabilities.sum() == pytest.approx(1, abs=1e-5)


async def test_a_photo_gets_the_same_answer_alone_and_in_a_batch(engine: TritonServer) -> None:
    photos = np.stack([prepared(IMAGES / f"{name}.jpg") for name in ("coffee", "chelsea", "rocket")])
    async with EngineHttp(engine.http_address) as triton:
        together = array((await triton.infer("efficientnet_lite0", {"image": photos}))["probabilities"])
        for photo, probabilities in zip(photos, together, strict=True):
            alone = array((await triton.infer("efficientnet_lite0", {"image": photo[None]}))["probabilities"])
            np.testing.assert_allclose(alone[0], probabilities, atol=1e-5)


@pytest.mark.parametrize("width", [1, 7, 150_528])
async def test_identity_gives_back_every_bit(engine: TritonServer, width: int) -> None:
    bits = np.random.default_rng(width).integers(0, 2**32, (2, width), dtype=np.uint32)
    sent = Raw("FP32", bits.shape, bits.tobytes())
    async with EngineHttp(engine.http_address) as triton:
        assert (await triton.infer("identity", {"input": sent}))["output"] == sent


@pytest.mark.parametrize("batching", [True, False], ids=["batching", "single"])
@pytest.mark.parametrize("datatype", CONFIG_TYPES)
async def test_every_datatype_survives_the_embedded_engine(engine: TritonServer, datatype: str, batching: bool) -> None:
    """B036, B039: NUL bytes in strings and tensors without elements included."""
    rng = np.random.default_rng(1)
    async with EngineHttp(engine.http_address) as triton:
        for width in (5, 1001, 0):
            shape = (2, width) if batching else (width,)
            count = int(np.prod(shape))
            if datatype == "BYTES":
                texts = [rng.bytes(int(rng.integers(0, 9))) + b"\0" for _ in range(count)]
                data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
            elif datatype == "BOOL":
                data = rng.integers(0, 2, count, dtype=np.uint8).tobytes()
            else:
                data = rng.bytes(count * ELEMENT_BYTES[datatype])
            sent = Raw(datatype, shape, data)
            answer = await triton.infer(identity_name(datatype, batching=batching), {"input": sent})
            assert answer["output"] == sent
