"""What can't work is refused before there is a job: the right status, a sentence that helps, nothing left in Redis."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from inferq.client.tensors import to_binary
from tests.e2e.deployment import Deployment
from tests.support.photos import photo_bytes

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server]

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Wrong:
    """A request, and the answer that it must get: its status, its code, and words of its sentence."""

    status: int
    code: str
    says: tuple[str, ...]
    query: str = ""
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def tensors(model: str, **fields: Any) -> dict[str, Any]:
    tensor = {"name": "input", "datatype": "FP32", "shape": [3], "data": [1, 2, 3], **fields}
    body = json.dumps({"model": model, "inputs": [tensor]}).encode()
    return {"content": body, "headers": {"Content-Type": "application/json"}}


def upload(data: bytes) -> dict[str, Any]:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    return {
        "query": "?model=efficientnet_lite0",
        "content": head + data + b"\r\n--b--\r\n",
        "headers": {"Content-Type": "multipart/form-data; boundary=b"},
    }


def raw_tensor(array: np.ndarray[Any, Any], cut: int) -> dict[str, Any]:
    """A binary request whose tensor lacks its last bytes, and says so: only the shape disagrees."""
    length, body = to_binary({"input": array}, {"model": "identity"})
    header = json.loads(body[:length])
    header["inputs"][0]["parameters"]["binary_data_size"] = array.nbytes - cut
    text = json.dumps(header).encode()
    return {
        "content": text + body[length:-cut],
        "headers": {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"},
    }


def png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims this size."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + _chunk(b"IDAT", zlib.compress(b"")) + _chunk(b"IEND", b"")


def _chunk(tag: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))


REFUSALS = {
    "an unknown model": Wrong(404, "unknown_model", ("'resnet'",), **tensors("resnet")),
    "a wrong tensor name": Wrong(422, "unknown_input", ("`x`", "`input`"), **tensors("identity", name="x")),
    "a wrong shape": Wrong(422, "invalid_tensor", ("[4]", "[2]"), **tensors("fixed8", shape=[2], data=[1, 2])),
    "a shape that the data does not fill": Wrong(422, "invalid_tensor", ("4", "3"), **tensors("identity", shape=[4])),
    "a wrong datatype": Wrong(422, "invalid_tensor", ("FP32", "INT32"), **tensors("identity", datatype="INT32")),
    "a wrong byte length": Wrong(422, "invalid_tensor", ("12", "8"), **raw_tensor(np.zeros(3, np.float32), cut=4)),
    "doubles sent as floats": Wrong(422, "invalid_tensor", ("FP32", "FP64"), **tensors("identity", datatype="FP64")),
    "a text file named .jpg": Wrong(422, "invalid_image", ("JPEG", "text"), **upload(b"This is a text.\n")),
    "a cut JPEG header": Wrong(422, "invalid_image", ("image",), **upload(photo_bytes("coffee")[:20])),
    "the header of a PNG alone": Wrong(422, "invalid_image", ("PNG",), **upload(png(20_000, 20_000)[:33])),
    "an empty file": Wrong(422, "empty_upload", ("no bytes",), **upload(b"")),
    "an empty body": Wrong(422, "empty_upload", ("no bytes",), query="?model=efficientnet_lite0"),
    "an image of 20,000 x 20,000 pixels": Wrong(
        422, "too_many_pixels", ("20000", "100000000"), **upload(png(20_000, 20_000))
    ),
    "a body of 70 MB": Wrong(413, "payload_too_large", ("67108864",), **upload(bytes(70 * MEBIBYTE))),
}


@pytest.mark.parametrize("wrong", REFUSALS.values(), ids=REFUSALS.keys())
async def test_it_is_refused_with_a_sentence_and_leaves_nothing(deployment: Deployment, wrong: Wrong) -> None:
    """B040, B085, B086."""
    before = await deployment.keys_of_jobs()
    headers = {**wrong.headers, "Idempotency-Key": "k"}
    for raw in deployment.raw:
        answer = await raw.post(f"/jobs{wrong.query}", content=wrong.content, headers=headers)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (wrong.status, wrong.code), problem
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert all(word in problem["detail"] for word in wrong.says), problem["detail"]
        assert problem["detail"].endswith(".")
        assert "Location" not in answer.headers
    assert await deployment.keys_of_jobs() == before


async def test_an_unknown_model_is_answered_with_those_that_there_are(deployment: Deployment) -> None:
    answer = await deployment.raw[0].post("/jobs", **tensors("resnet"))
    assert {"efficientnet_lite0", "identity", "slow"} <= set(answer.json()["models"])


async def test_what_was_refused_is_accepted_once_it_is_right(deployment: Deployment) -> None:
    for raw in deployment.raw:
        answer = await raw.post("/jobs", **tensors("identity"))
        assert answer.status_code == 202
        assert answer.headers["Location"] == f"/jobs/{answer.json()['id']}"
