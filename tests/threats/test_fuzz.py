"""T: Multipart, T: JSON/msgpack/tensor, T: Image/audio/archive, T: Content-Encoding: no body is answered with 5xx.

Each parser is fed damaged bodies through the whole application for FUZZ_SECONDS (a second by default; `make fuzz` takes
60). The seed stands in the failure, so that it can be run again with FUZZ_SEED.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgpack
import numpy as np
import pytest

from api.formats import npy
from jobs.datatypes import Datatype
from jobs.spec import InputKind, InputSpec, ModelSpec, OutputSpec
from jobs.tensors import Tensor
from tests.api.harness import Api, Backend, identity_spec, running_api
from tests.threats.tenants import a_document

pytestmark = pytest.mark.anyio

SECONDS = float(os.environ.get("FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns()
PHOTO = (Path(__file__).parents[2] / "examples" / "images" / "coffee.jpg").read_bytes()

HOSTILE = (
    b"1" * 400,
    b"1e99999",
    b"-0",
    b"NaN",
    b"[" * 200,
    b'{"a":' * 200,
    b'"\\ud800"',
    b"\xed\xa0\x80",
    b"\xff\xfe",
    b"\x00" * 8,
    b"18446744073709551616",
    b"-1",
    b"\xdf\xff\xff\xff\xff",
    b"\r\n--frontier\r\n",
    b"\r\n\r\n",
    b"; filename*=UTF-8''%2e%2e%2f",
)


def damaged(rng: Random, good: bytes) -> bytes:
    """A body as a broken client, a cut connection or an attacker would send it."""
    body = bytearray(good)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(6):
            case 0:
                del body[at:]
            case 1:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                body[at:at] = rng.choice(HOSTILE)
            case 3:
                body[at : at + rng.randrange(1, 40)] = rng.choice(HOSTILE)
            case 4:
                body[at:at] = body[at : at + rng.randrange(1, 200)]
            case _:
                del body[at : at + rng.randrange(1, 20)]
    return bytes(body)


def _form(rng: Random) -> bytes:
    parts = [(b'name="model"', b"identity"), (b'name="x"', json.dumps([1.0, 2.0]).encode())]
    if rng.random() < 0.5:
        parts.append((b'name="file"; filename="../../etc/passwd"\r\nContent-Type: image/jpeg', PHOTO[:300]))
    lines = [b"--frontier\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + data for head, data in parts]
    return b"\r\n".join([*lines, b"--frontier--", b""])


def _binary(_rng: Random) -> bytes:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}]
    return json.dumps({"inputs": inputs}).encode() + b"\0" * 8


_HEADER_LENGTH = str(len(_binary(Random())) - 8)
_NPY = b"".join(npy.tensor_to_npy(Tensor("x", Datatype.FP32, (2,), np.zeros(2, "<f4").tobytes())))
_TRITON = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}).encode()

Parser = tuple[str, dict[str, str], Callable[[Random], bytes]]

PARSERS: dict[str, Parser] = {
    "json": (
        "/jobs",
        {"Content-Type": "application/json"},
        lambda _: json.dumps(a_document(metadata={"a": [1]})).encode(),
    ),
    "msgpack": ("/jobs", {"Content-Type": "application/msgpack"}, lambda _: bytes(msgpack.packb(a_document()))),
    "multipart": ("/jobs", {"Content-Type": "multipart/form-data; boundary=frontier"}, _form),
    "npy": ("/jobs?model=identity", {"Content-Type": "application/x-npy"}, lambda _: _NPY),
    "image": ("/jobs?model=photo", {"Content-Type": "image/jpeg"}, lambda _: PHOTO[:2000]),
    "binary": (
        "/jobs?model=identity",
        {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": _HEADER_LENGTH},
        _binary,
    ),
    "batch": (
        "/jobs/batch",
        {"Content-Type": "application/x-ndjson"},
        lambda _: b"\n".join([json.dumps(a_document()).encode()] * 3),
    ),
    "triton": (
        "/v2/models/identity/infer",
        {"Content-Type": "application/json", "Prefer": "respond-async"},
        lambda _: _TRITON,
    ),
    "gzip": (
        "/v2/models/identity/infer",
        {"Content-Type": "application/json", "Content-Encoding": "gzip", "Prefer": "respond-async"},
        lambda _: gzip.compress(_TRITON),
    ),
}

PHOTO_SPEC = ModelSpec(
    "photo",
    ("1",),
    8,
    (InputSpec("image", Datatype.UINT8, (224, 224, 3), kind=InputKind.IMAGE),),
    (OutputSpec("y", Datatype.FP32, (10,)),),
)


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("parser", PARSERS)
async def test_a_damaged_body_is_refused_or_taken_and_never_breaks_anything(parser: str) -> None:
    path, headers, make = PARSERS[parser]
    rng = Random(f"{SEED} {parser}")
    seen: set[int] = set()
    async with running_api(Backend(), models=[identity_spec(), PHOTO_SPEC]) as api:
        ends_at = time.monotonic() + SECONDS
        while time.monotonic() < ends_at:
            body = damaged(rng, make(rng))
            answer = await api.client.post(path, content=body, headers=headers)
            assert answer.status_code < 500, f"FUZZ_SEED={SEED}: {answer.text} for {body!r}"
            seen.add(answer.status_code)
            await _forget(api, answer)
    assert min(seen) < 300 or SECONDS < 10
    assert max(seen) > 202 or SECONDS < 10


async def _forget(api: Api, answer: httpx.Response) -> None:
    """Delete what was stored, so that a long run fills nothing."""
    if not answer.is_success:
        return
    shown: dict[str, Any] = answer.json()
    for entry in shown.get("jobs", [{"job": shown}]):
        if "job" in entry:
            deleted = await api.client.delete(f"/jobs/{entry['job']['id']}", params={"force": "true"})
            assert deleted.status_code == 204
