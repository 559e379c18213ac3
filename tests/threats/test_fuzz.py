"""T: Multipart, T: JSON/msgpack/tensor, T: Image/audio/archive, T: Content-Encoding, T: List/cancel/replay: no body,
header or cursor is answered with 5xx.

Each parser is fed damaged input through the whole application for FUZZ_SECONDS (a second by default; `make fuzz` takes
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
from urllib.parse import quote

import httpx
import msgpack
import numpy as np
import pytest

from api.formats import npy
from jobs.datatypes import Datatype
from jobs.spec import InputKind, InputSpec, ModelSpec, OutputSpec
from jobs.tensors import Tensor
from tests.api.harness import Api, Backend, floats, identity_spec, running_api
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


Line = tuple[str, str, tuple[bytes, ...], set[int]]
"""A path, the header that is damaged (or `?` and a query parameter), good values of it, and the statuses there are."""

LINES: dict[str, Line] = {
    "last-event-id": ("/jobs/{id}/events", "Last-Event-ID", (b"{event}", b'"{event}"', b"1", b""), {200, 204}),
    "cursor": ("/jobs", "?cursor", (b"{cursor}", b"", b"MTox"), {200, 422}),
    "prefer": (
        "POST /jobs",
        "Prefer",
        (b"wait=1", b'respond-async, wait="1"; a=b', b"wait=1;wait=2, handling=lenient", b"WAIT = 999999999"),
        {201, 202},
    ),
    "accept": (
        "/jobs/{id}/result",
        "Accept",
        (b"application/x-npy;q=0.5, application/json;q=0.1, */*;q=0", b"application/*", b"text/html", b"*/*;q=1.000"),
        {200, 406},
    ),
    "if-none-match": ("/jobs/{id}", "If-None-Match", (b"{etag}", b'W/{etag}, "a,b"', b"*", b'"\\""'), {200, 304}),
    "if-none-match of a result": ("/jobs/{id}/result", "If-None-Match", (b"{result_etag}", b"*", b'"1"'), {200, 304}),
    "range": ("/jobs/{id}/result", "Range", (b"bytes=0-3", b"bytes=-1,2-", b"bytes=5-1", b"items=0-"), {200}),
    "range of a file": ("/docs/swagger-ui.css", "Range", (b"bytes=0-3", b"bytes=-1,2-", b"bytes=5-1"), {200}),
}


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("line", LINES)
async def test_a_damaged_header_or_cursor_is_refused_or_taken_and_never_breaks_anything(line: str) -> None:
    path, name, values, statuses = LINES[line]
    rng = Random(f"{SEED} {line}")
    seen: set[int] = set()
    async with running_api(Backend(), models=[identity_spec()], max_wait_seconds=0.001) as api:
        known = await _a_finished_job(api)
        method, _, target = path.rpartition(" ")
        good = [_filled(value, known) for value in values]
        ends_at = time.monotonic() + SECONDS
        while time.monotonic() < ends_at:
            value = rng.choice(good)
            value = value if rng.random() < 0.2 else _one_line(damaged(rng, value))
            is_header = not name.startswith("?")
            answer = await api.client.request(
                method or "GET",
                _filled(target.encode(), known).decode() + ("" if is_header else f"{name}={quote(value)}"),
                headers=[(name.encode(), value)] if is_header else None,
                json=a_document() if method else None,
            )
            assert answer.status_code in statuses, f"FUZZ_SEED={SEED}: {answer.text} for {value!r}"
            seen.add(answer.status_code)
            if method:
                await _forget(api, answer)
    assert seen == statuses - {201} or SECONDS < 10


async def _a_finished_job(api: Api) -> dict[bytes, bytes]:
    """What clients know of a job that has ended, and of the page behind it, by the names in LINES."""
    _, job_id = await api.submit(), await api.submit()
    for claimed in await api.hand.claim(2):
        await api.hand.succeed(claimed, floats(1.0, 2.0))
    shown, result = await api.get(f"/jobs/{job_id}"), await api.get(f"/jobs/{job_id}/result")
    etag = shown.headers["etag"].removeprefix("W/")
    page = (await api.get("/jobs", params={"limit": 1})).json()
    known = {"id": job_id, "etag": etag, "event": etag.strip('"'), "result_etag": result.headers["etag"]}
    return {key.encode(): value.encode() for key, value in {**known, "cursor": page["next_cursor"]}.items()}


def _filled(text: bytes, known: dict[bytes, bytes]) -> bytes:
    for key, value in known.items():
        text = text.replace(b"{%b}" % key, value)
    return text


def _one_line(value: bytes) -> bytes:
    """As a header's value can arrive: a server parses no other."""
    return bytes(byte for byte in value if byte not in b"\r\n\0").strip()


async def _forget(api: Api, answer: httpx.Response) -> None:
    """Delete what was stored, so that a long run fills nothing."""
    if not answer.is_success:
        return
    shown: dict[str, Any] = answer.json()
    for entry in shown.get("jobs", [{"job": shown}]):
        if "job" in entry:
            deleted = await api.client.delete(f"/jobs/{entry['job']['id']}", params={"force": "true"})
            assert deleted.status_code == 204
