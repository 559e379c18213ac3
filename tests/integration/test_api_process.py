"""The api as a process: how it starts, is refused, drains, shares a socket and survives without Redis."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from inferq.stack.ports import free_port
from tests.api.conftest import emptied
from tests.api.harness import MODEL, Backend, Hand, floats, fp32_input, open_hand
from tests.api.processes import api_process, connect, environment, run_api
from tests.support.processes import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server]

SECRET = f"whsec_{'A' * 32}"
JOB = {"model": MODEL, "inputs": [fp32_input([1.0])]}


@pytest.fixture
async def backend(valkey_url: str) -> Backend:
    """An empty database that knows the identity model."""
    return await emptied(valkey_url)


@pytest.fixture
async def hand(backend: Backend) -> AsyncIterator[Hand]:
    """A worker on the same database."""
    async with open_hand(backend) as opened:
        yield opened


def post_head(length: int, *headers: str) -> bytes:
    """The head of a request that posts so many bytes of JSON."""
    own = ("Host: x", "Content-Type: application/json", f"Content-Length: {length}")
    return "\r\n".join(["POST /jobs HTTP/1.1", *own, *headers, "\r\n"]).encode()


@asynccontextmanager
async def dialogue(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection to a server."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answers(client: httpx.AsyncClient, path: str, status: int) -> None:
    """Return once this path answers with this status."""
    async with asyncio.timeout(10):
        while (await client.get(path)).status_code != status:  # noqa: ASYNC110 - of another process there is no event
            await asyncio.sleep(0.05)


async def test_a_job_goes_through_a_real_process(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        async with httpx.AsyncClient(base_url=process.url) as client:
            posted = await client.post("/jobs", json=JOB, headers={"X-Request-Id": "mine"})
            assert (posted.status_code, posted.headers["x-request-id"]) == (202, "mine")
            waiting = asyncio.create_task(client.get(posted.headers["location"], params={"wait": 30}))
            await hand.succeed(await hand.take(), floats(7))
            assert (await waiting).json()["output"]["y"]["data"] == [7.0]
            form = {"model": MODEL}
            files = {"x": ("x.npy", npy(), "application/x-npy")}
            assert (await client.post("/jobs", data=form, files=files)).status_code == 202
        process.terminate()
        assert process.ended(10) == 0
    lines = process.lines()
    assert [line["event"] for line in lines if line["logger"] == "api.server"] == ["listening", "stopping", "stopped"]
    mine = next(line for line in lines if line.get("request_id") == "mine")
    assert (mine["method"], mine["path"], mine["status"]) == ("POST", "/jobs", 202)


def npy() -> bytes:
    """One FP32 number as an `.npy` file."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(4)


async def test_what_is_logged_holds_no_query_and_no_payload(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    """T: Errors/logs."""
    with api_process(tmp_path / "api.log", redis_url=backend.url, log_level="DEBUG") as process:
        async with httpx.AsyncClient(base_url=process.url) as client:
            secret = "pa55word"
            await client.post(f"/jobs?model={secret}", content=secret, headers={"Authorization": secret})
            await client.post("/jobs", json=JOB | {"metadata": {"note": secret}})
            await client.get("/jobs/%0d%0a" + "x" * 5000)
        process.terminate()
        process.ended(10)
        text = process.log_path.read_text()
    assert secret not in text
    assert all(len(line) < 1000 for line in text.splitlines())
    assert len([line for line in process.lines() if line["event"] == "request"]) == 3


async def test_sigterm_lets_uploads_and_polls_finish(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    """B064."""
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        async with (
            httpx.AsyncClient(base_url=process.url, timeout=30) as client,
            dialogue(process.url) as (reader, writer),
        ):
            job_id = (await client.post("/jobs", json=JOB)).json()["id"]
            poll = asyncio.create_task(client.get(f"/jobs/{job_id}?wait=30"))
            body = httpx.Request("POST", "http://x", json=JOB).content
            head = (
                f"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            )
            writer.write(head.encode() + b"Expect: 100-continue\r\n\r\n")
            assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")  # it reads the body now
            writer.write(body[:10])
            await writer.drain()
            process.terminate()
            answer = await asyncio.wait_for(poll, 10)
            assert (answer.status_code, answer.json()["status"]) == (200, "queued")
            assert process.popen.poll() is None
            writer.write(body[10:])
            assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 202")
        assert process.ended(10) == 0
    assert len(await hand.claim(10)) == 2


async def test_a_request_that_does_not_end_is_given_up_after_the_drain_time(
    backend: Backend, hand: Hand, tmp_path: Path
) -> None:
    with api_process(tmp_path / "api.log", redis_url=backend.url, drain_seconds=1) as process:
        async with dialogue(process.url) as (reader, writer):
            writer.write(post_head(1000, "Expect: 100-continue"))
            await reader.readuntil(b"\r\n\r\n")
            process.terminate()
            assert process.ended(10) == 0
    assert await hand.claim(10) == []


async def test_a_client_that_hangs_up_is_not_waited_for(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        async with httpx.AsyncClient(base_url=process.url) as client:
            job_id = (await client.post("/jobs", json=JOB)).json()["id"]
        with connect(process.url) as connection:
            connection.sendall(f"GET /jobs/{job_id}?wait=60 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await asyncio.to_thread(wait_for_requests, process, 2)
        finished = [line for line in process.lines() if line["event"] == "request" and line["method"] == "GET"]
        assert finished[0]["seconds"] < 20


async def test_a_client_that_only_stops_sending_is_answered_and_waited_for_no_longer(
    backend: Backend, hand: Hand, tmp_path: Path
) -> None:
    """From here it looks as if it were gone: a long-poll ends with the job as it is, and a call of /v2 is canceled."""
    infer = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        stored = await half_closed(process.url, "POST", "/jobs", JOB, "Prefer: wait=60\r\n")
        assert stored.startswith("HTTP/1.1 202 ")
        job_id = re.findall(r'"id":"([0-9a-f]{32})"', stored)[0]
        polled = await half_closed(process.url, "GET", f"/jobs/{job_id}?wait=60")
        assert (polled[:13], '"status":"queued"' in polled) == ("HTTP/1.1 200 ", True)
        events = await half_closed(process.url, "GET", f"/jobs/{job_id}/events")
        assert "event: snapshot" in events
        called = await half_closed(process.url, "POST", f"/v2/models/{MODEL}/infer", infer)
        assert (called[:13], '"code":"canceled"' in called) == ("HTTP/1.1 499 ", True)
        (claimed,) = await hand.claim(10)
        assert claimed.lease.job_id == job_id
        await hand.succeed(claimed, floats(*[0.0] * 500_000))
        result = await half_closed(process.url, "GET", f"/jobs/{job_id}/result")
        assert result.startswith("HTTP/1.1 200 ")
        assert result.count("0.0") == 500_000


async def half_closed(url: str, method: str, path: str, document: Any = None, headers: str = "") -> str:
    """All that comes after a request whose client sends nothing more."""
    body = "" if document is None else json.dumps(document)
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""

    def exchange() -> bytes:
        with connect(url) as connection:
            connection.settimeout(20)
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}\r\n{body}".encode())
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    return (await asyncio.to_thread(exchange)).decode()


def wait_for_requests(process: Any, count: int) -> None:
    """Return once so many requests have ended."""
    while len([line for line in process.lines() if line["event"] == "request"]) < count:
        assert process.popen.poll() is None
        time.sleep(0.02)


async def test_jobs_are_stored_although_the_client_hangs_up_right_after_the_headers(
    backend: Backend, hand: Hand, tmp_path: Path
) -> None:
    """B061: what was answered with 202 exists; what was not may, and nothing breaks."""
    body = httpx.Request("POST", "http://x", json=JOB).content
    request = post_head(len(body)) + body
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        locations = [answered_and_gone(process.url, request) for _ in range(100)]
        async with httpx.AsyncClient(base_url=process.url) as client:
            for location in locations:
                assert (await client.get(location)).status_code == 200


def answered_and_gone(url: str, request: bytes) -> str:
    """The Location of an answer whose body is not waited for."""
    with connect(url) as connection:
        connection.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(256)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
    (location,) = [line for line in head.split(b"\r\n") if line.lower().startswith(b"location:")]
    return location.partition(b": ")[2].decode()


async def test_an_id_of_a_megabyte_is_a_404(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    """T: GET /jobs/{id}."""
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process, connect(process.url) as connection:
        connection.sendall(b"GET /jobs/" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 404")


async def test_a_head_without_end_is_refused(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process, connect(process.url) as connection:
        connection.sendall(b"GET /jobs HTTP/1.1\r\nHost: x\r\n")
        with suppress(ConnectionError):  # it is closed while this is still being sent
            for number in range(100):
                connection.sendall(b"X-%d: " % number + b"a" * 65_000 + b"\r\n")
        with suppress(ConnectionError):
            assert connection.recv(100).startswith((b"HTTP/1.1 400", b""))
        async with httpx.AsyncClient(base_url=process.url) as client:
            assert (await client.get("/health/live")).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /jobs HTTP/1.1\r\nX-Endless: "])
async def test_a_head_that_does_not_come_is_not_waited_for(
    backend: Backend, hand: Hand, tmp_path: Path, sent: bytes
) -> None:
    """B063."""
    with api_process(tmp_path / "api.log", redis_url=backend.url, head_seconds=1) as process:
        async with dialogue(process.url) as (reader, writer):
            trickle = asyncio.create_task(send_slowly(writer, sent))
            assert await asyncio.wait_for(reader.read(1), 20) == b""
            trickle.cancel()


async def send_slowly(writer: asyncio.StreamWriter, head: bytes) -> None:
    """The head, and then a byte now and then for ever; nothing where there is no head."""
    writer.write(head)
    while head:
        await asyncio.sleep(0.1)
        writer.write(b"a")


async def test_two_processes_share_an_inherited_socket(backend: Backend, hand: Hand, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as shared:
        shared.set_inheritable(True)
        options = {"redis_url": backend.url, "listen_fd": shared.fileno(), "pass_fds": (shared.fileno(),)}
        with (
            api_process(tmp_path / "1.log", **options) as one,  # type: ignore[arg-type]
            api_process(tmp_path / "2.log", **options) as two,  # type: ignore[arg-type]
        ):
            assert one.url == two.url == f"http://127.0.0.1:{shared.getsockname()[1]}"
            one.terminate()
            assert one.ended(10) == 0
            async with httpx.AsyncClient(base_url=two.url) as client:
                assert (await client.post("/jobs", json=JOB)).status_code == 202


async def test_it_starts_without_redis_and_works_once_redis_is_there(start_valkey: Any, tmp_path: Path) -> None:
    server = start_valkey()
    async with open_hand(Backend(server.url)):
        await asyncio.to_thread(server.stop)
    with api_process(tmp_path / "api.log", redis_url=server.url) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
            assert (await client.get("/health/live")).status_code == 200
            ready = await client.get("/health/ready")
            assert (ready.status_code, ready.json()["reasons"][0]) == (503, "Redis does not answer")
            refused = await client.post("/jobs", json=JOB)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
            await asyncio.to_thread(server.start)
            await answers(client, "/health/ready", 200)
            posted = await client.post("/jobs", json=JOB)
            assert posted.status_code == 202
            # A restart in the middle of a wait: the subscription is lost, and what happened meanwhile is seen after it.
            waiting = asyncio.create_task(client.get(posted.headers["location"], params={"wait": 30}))
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            async with open_hand(Backend(server.url)) as hand:
                await hand.succeed(await hand.take(), floats(7))
            assert (await asyncio.wait_for(waiting, 25)).json()["status"] == "succeeded"


async def test_a_redis_that_hangs_costs_a_call_no_more_than_its_deadline(start_valkey: Any, tmp_path: Path) -> None:
    """B026."""
    server = start_valkey()
    options = {"redis_url": server.url, "redis_timeout_seconds": 1}
    with api_process(tmp_path / "api.log", **options) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=10) as client:
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                polls = [client.get(f"/jobs/{i:032x}") for i in range(200)]
                responses = await asyncio.wait_for(asyncio.gather(*polls), 20)
                assert {response.status_code for response in responses} == {503}
                assert (await client.get("/health/live")).elapsed.total_seconds() < 1
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            await answers(client, f"/jobs/{'0' * 32}", 404)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_listening_for_strangers_without_a_key_is_refused_in_one_line(backend: Backend, host: str) -> None:
    """T: Config."""
    ended = run_api(host=host, port=0, redis_url=backend.url)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "inferq keys create" in line
    assert "INFERQ_ALLOW_UNAUTHENTICATED" in line


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_an_api_without_a_key_warns_at_its_start(backend: Backend, tmp_path: Path, host: str) -> None:
    """T: Config."""
    with api_process(tmp_path / "log", redis_url=backend.url, host=host, allow_unauthenticated=1) as server:
        wait_for(lambda: any("there is no API key" in line["event"] for line in server.lines()))
        async with httpx.AsyncClient(base_url=server.url) as client:
            await answers(client, "/jobs", 200)
    (line,) = [line for line in server.lines() if "there is no API key" in line["event"]]
    assert line["level"] == "warning"


async def test_an_inherited_socket_for_strangers_is_refused_too(backend: Backend) -> None:
    with socket.create_server(("0.0.0.0", 0)) as shared:
        shared.set_inheritable(True)
        ended = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "api"),
            env=environment({"listen_fd": shared.fileno(), "redis_url": backend.url}),
            pass_fds=(shared.fileno(),),
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await ended.communicate()
    assert ended.returncode == 2
    assert b"INFERQ_ALLOW_UNAUTHENTICATED" in complaint


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"port": "http"}, "INFERQ_PORT"),
        ({"port": 70_000}, "INFERQ_PORT"),
        ({"listen_fd": 99}, "INFERQ_LISTEN_FD"),
        ({"host": "no such host"}, "INFERQ_HOST"),
        ({"redis_url": "http://x"}, "INFERQ_REDIS_URL"),
        ({"max_body_bytes": 0}, "INFERQ_MAX_BODY_BYTES"),
        (
            {"allow_origins": "https://a.example,evil"},
            "INFERQ_ALLOW_ORIGINS='https://a.example,evil': 'evil' is no origin",
        ),
        ({"allow_origins": "https://app.example/"}, "INFERQ_ALLOW_ORIGINS"),
        (
            {"webhook_secret": f"te nant={SECRET}"},
            "INFERQ_WEBHOOK_SECRET=…: before the = of entry 1 stands no tenant's",
        ),
        ({"webhook_secret": f"{SECRET},team="}, "INFERQ_WEBHOOK_SECRET=…: entry 2 has a tenant's name and no secret"),
    ],
)
async def test_a_wrong_setting_is_named_in_one_line(settings: dict[str, object], named: str) -> None:
    ended = run_api(**({"port": 0} | settings))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert named in ended.stderr.splitlines()[-1]
    assert SECRET not in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run_api(port=taken.getsockname()[1])
    assert ended.returncode == 2
    assert "INFERQ_PORT" in ended.stderr


async def test_a_redis_that_may_drop_jobs_is_refused_at_the_start(start_valkey: Any) -> None:
    """B023."""
    server = start_valkey()
    async with open_hand(Backend(server.url)) as hand:
        await hand.store.connection.client.config_set("maxmemory-policy", "volatile-ttl")
    ended = await asyncio.to_thread(run_api, redis_url=server.url, port=0)
    assert ended.returncode == 1
    assert "maxmemory-policy" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


async def test_the_check_tells_by_its_exit_status_whether_the_api_answers(backend: Backend, tmp_path: Path) -> None:
    port = free_port()
    away = await asyncio.to_thread(run_api, "check", port=port)
    assert (away.returncode, len(away.stderr.splitlines())) == (1, 1)
    with api_process(tmp_path / "api.log", redis_url=backend.url, port=port):
        assert (await asyncio.to_thread(run_api, "check", port=port)).returncode == 0
    assert (await asyncio.to_thread(run_api, "chekc")).returncode == 2


async def test_a_variable_that_nothing_reads_is_told_by_name_and_never_by_value(
    backend: Backend, tmp_path: Path
) -> None:
    with api_process(tmp_path / "api.log", redis_url=backend.url, webhok_secret="pa55word") as process:
        process.terminate()
        process.ended(10)
        text = process.log_path.read_text()
    assert "INFERQ_WEBHOK_SECRET is set, and nothing reads it; INFERQ_WEBHOOK_SECRET may be meant." in text
    assert "pa55word" not in text


@pytest.mark.parametrize("body", [json.dumps(JOB).encode(), b""], ids=["a job", "nothing"])
async def test_an_offer_to_speak_http2_costs_no_body_and_no_request_behind_it(
    hand: Hand, backend: Backend, tmp_path: Path, body: bytes
) -> None:
    """Java's client and `curl --http2` make it with their first request."""
    offer = post_head(len(body), "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARA")
    last = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        async with dialogue(process.url) as (reader, writer):
            writer.write(offer + body + offer)
            await writer.drain()
            writer.write(body + last)
            answers = await asyncio.wait_for(reader.read(), 20)
    statuses = re.findall(rb"HTTP/1.1 (\d+) ", answers)
    assert statuses == ([b"202", b"202", b"200"] if body else [b"400", b"400", b"200"])
    assert b"Unsupported upgrade" not in process.log_path.read_bytes()
