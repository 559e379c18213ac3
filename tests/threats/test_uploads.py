"""T: Body size, T: Multipart, T: Filename / Content-Type, T: Results: lies about uploads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.intake.limits import MAX_PARTS
from jobs import keys
from jobs.datatypes import Datatype
from jobs.spec import ImageOptions, InputKind, InputSpec
from tests.api.conftest import emptied
from tests.api.harness import MODEL, Api, Hand, floats, fp32_input, identity_spec, open_hand
from tests.api.processes import ApiProcess, api_process

pytestmark = pytest.mark.anyio

BODY = json.dumps({"model": MODEL, "inputs": [fp32_input([1.0])]}).encode()
FORM = "Content-Type: multipart/form-data; boundary=frontier"
JSON = "Content-Type: application/json"
PART = b'--frontier\r\nContent-Disposition: form-data; name="x"\r\n\r\n[1]\r\n'


@pytest.fixture
async def served(valkey_url: str, tmp_path: Path) -> AsyncIterator[tuple[ApiProcess, Hand]]:
    """A real api process on an empty database."""
    backend = await emptied(valkey_url)
    async with open_hand(backend) as hand:
        with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
            yield process, hand


async def _send(process: ApiProcess, head: list[str], body: bytes) -> bytes:
    """What comes back for these bytes, with nothing sent after them."""
    host, _, port = process.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join([f"POST /jobs?model={MODEL} HTTP/1.1", "Host: x", *head, "\r\n"]).encode() + body)
    writer.write_eof()
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


LIES: dict[str, tuple[list[str], bytes]] = {
    "a body that ends early": ([JSON, f"Content-Length: {len(BODY)}"], BODY[:-5]),
    "a negative length": ([JSON, "Content-Length: -1"], BODY),
    "a length that is no number": ([JSON, "Content-Length: 1e3"], BODY),
    "two lengths": ([JSON, f"Content-Length: {len(BODY)}", "Content-Length: 3"], BODY),
    "length and chunks": ([JSON, f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
    "chunks that end early": ([JSON, "Transfer-Encoding: chunked"], b"40\r\n" + BODY[:10]),
    "a chunk of no size": ([JSON, "Transfer-Encoding: chunked"], b"zz\r\n" + BODY),
    "a form without its end": ([FORM, f"Content-Length: {len(PART)}"], PART),
    "a form cut in a head": ([FORM, "Content-Length: 30"], PART[:30]),
}


@pytest.mark.process
@pytest.mark.server
@pytest.mark.parametrize("lie", LIES)
async def test_a_body_that_is_not_what_it_says_is_400_and_leaves_nothing(
    served: tuple[ApiProcess, Hand], lie: str
) -> None:
    process, hand = served
    answer = await _send(process, *LIES[lie])
    assert answer.startswith(b"HTTP/1.1 400") or answer == b"", answer  # who has hung up may not be answered
    redis = hand.store.connection.client
    left = [key async for key in redis.scan_iter("inferq:*") if not key.startswith(keys.MODELS_KEY.encode())]
    assert left == []


@pytest.mark.process
@pytest.mark.server
@pytest.mark.parametrize("head", [b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
async def test_what_is_no_request_is_a_problem_like_any_other(served: tuple[ApiProcess, Hand], head: bytes) -> None:
    host, _, port = served[0].url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head)
    async with asyncio.timeout(20):
        lines, body = (await reader.read()).split(b"\r\n\r\n")
    writer.close()
    headers = dict(line.lower().split(": ", 1) for line in lines.decode().split("\r\n")[1:])
    problem = json.loads(body)
    assert lines.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert (problem["status"], problem["code"]) == (400, "invalid_request")
    assert problem["request_id"] == headers["x-request-id"]
    assert (headers["content-type"], headers["connection"]) == ("application/problem+json", "close")
    assert (headers["x-content-type-options"], int(headers["content-length"])) == ("nosniff", len(body))


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/x.png", "file:///etc/passwd", "https://example.com/x.png"])
async def test_a_url_as_input_is_never_fetched(api: Api, url: str) -> None:
    """B071: nothing is downloaded for a client, neither in the request handler nor later: an input is its bytes."""
    connections = 0

    async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    photo = InputSpec("image", Datatype.UINT8, (8, 8, 3), kind=InputKind.IMAGE, image=ImageOptions("HWC"))
    model = replace(identity_spec("photo"), inputs=(photo,))
    await api.registry.publish_models([model])
    await api.services.catalog.refresh()
    server = await asyncio.start_server(count, "127.0.0.1", 0)
    async with server:
        url = url.format(port=server.sockets[0].getsockname()[1])
        answers = [
            await api.client.post("/jobs", json={"model": "photo", "inputs": {"image": url}}),
            await api.client.post("/jobs", json={"model": "photo", "inputs": {"image": {"url": url}}}),
            await api.client.post("/jobs?model=photo", content=url, headers={"Content-Type": "image/png"}),
            await api.client.post("/jobs", data={"model": "photo", "image": url}),
            await api.client.post("/jobs", files={"model": (None, "photo"), "image": (None, url)}),
        ]
        assert all(400 <= answer.status_code < 500 for answer in answers), [answer.text for answer in answers]
    assert connections == 0


async def test_a_form_may_have_so_many_parts_and_no_more(api: Api) -> None:
    for part in (b'name="x"', b'name="x"; filename="f"'):
        one = b"--frontier\r\nContent-Disposition: form-data; " + part + b"\r\n\r\n[1]\r\n"
        body = one * (MAX_PARTS + 1) + b"--frontier--\r\n"
        answer = await api.client.post("/jobs", content=body, headers=dict([FORM.split(": ")]))
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 100_000,
        b"\r\n".join(b"X-%d: a" % number for number in range(5_000)),
        b"Content-Disposition: form-data; name=" + b'"' + b"n" * 100_000 + b'"',
    ],
    ids=["long", "many", "name"],
)
async def test_heads_of_parts_are_bounded(api: Api, head: bytes) -> None:
    body = b"--frontier\r\nContent-Disposition: form-data; name=x\r\n" + head + b"\r\n\r\n[1]\r\n--frontier--\r\n"
    answer = await api.client.post(f"/jobs?model={MODEL}", content=body, headers=dict([FORM.split(": ")]))
    assert 400 <= answer.status_code < 500


async def test_a_preamble_is_passed_over_quickly(api: Api) -> None:
    body = b"\r\n" * 4_000_000 + PART + b"--frontier--\r\n"
    async with asyncio.timeout(20):
        answer = await api.client.post(f"/jobs?model={MODEL}", content=body, headers=dict([FORM.split(": ")]))
    assert answer.status_code in (202, 400)


NAMES = ["../../etc/passwd", "C:\\x", "a\r\nX-Evil: 1", "\x00", "é" * 300, "x.html", "%2e%2e%2f"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_file_name_is_used_for_nothing(api: Api, name: str) -> None:
    files = {"x": (name, b"[1.0]", "application/json")}
    answer = await api.client.post("/jobs", data={"model": MODEL}, files=files)
    assert answer.status_code == 202, answer.text
    assert name not in answer.text
    assert "x-evil" not in answer.headers
    record = await api.record(answer.json()["id"])
    assert name not in repr(record.request)


@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream", "application/msgpack", "text/html"])
async def test_a_result_can_not_run_in_a_browser(api: Api, accept: str) -> None:
    """Whatever bytes a model gave: served as a download of a type that is ours to choose."""
    await api.submit()
    claimed = await api.hand.take()
    await api.hand.succeed(claimed, floats(1.0))
    answer = await api.get(f"/jobs/{claimed.lease.job_id}/result", headers={"Accept": accept})
    if accept == "text/html":
        assert answer.status_code == 406
        return
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{claimed.lease.job_id}.')
    expected: dict[str, Any] = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    assert expected.items() <= dict(answer.headers).items()
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_a_type_that_is_a_lie_is_found_by_the_bytes(api: Api) -> None:
    await api.registry.publish_models([identity_spec("bytes")])
    answer = await api.client.post(
        f"/jobs?model={MODEL}", content=b"<html>", headers={"Content-Type": "application/x-npy"}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_tensor")
