"""Bodies over real connections: caps on size and speed, and what a client sees when it breaks them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from api.intake import IntakeLimits
from tests.support.intake import Gateway, document

pytestmark = pytest.mark.anyio

LIMITS = IntakeLimits(max_body_bytes=100_000, max_pixels=1_000_000, max_json_bytes=50_000, body_grace_seconds=0.2)
DATA = b"\0" * 12
RAW = "/jobs?model=fixed"


class Connection:
    """One raw connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def head(self, *headers: str, target: str = RAW) -> None:
        """Send a request line and headers."""
        self.writer.write("\r\n".join([f"POST {target} HTTP/1.1", "Host: t", *headers, "", ""]).encode("latin-1"))

    async def answer(self) -> tuple[int, dict[str, str], dict[str, object]]:
        """The next response: status, headers, JSON."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await asyncio.wait_for(self.reader.readexactly(int(headers.get("content-length", 0))), 20)
        return int(head[0].split()[1]), headers, json.loads(body) if body else {}

    async def is_closed_by_server(self) -> bool:
        """Whether the server ends the connection."""
        return await asyncio.wait_for(self.reader.read(), 20) == b""


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[int]:
    """A real HTTP server round the gateway; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(gateway.app, log_config=None, lifespan="off", http="httptools"))
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Connection]:
    """A connection to a server of its own."""
    async with serving(gateway) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway(LIMITS)


async def test_a_connection_is_kept_for_the_next_request(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        for _ in range(2):
            connection.head("Content-Length: 12")
            connection.writer.write(DATA)
            assert (await connection.answer())[0] == 202


async def test_a_body_that_is_announced_as_too_large_is_refused_before_it_is_sent(gateway: Gateway) -> None:
    """B030"""
    async with connected(gateway) as connection:
        connection.head("Content-Length: 100001", "Expect: 100-continue")
        status, headers, problem = await connection.answer()
        assert (status, problem["code"], problem["max_body_bytes"]) == (413, "payload_too_large", 100_000)
        assert headers["connection"] == "close"


async def test_a_client_that_sends_a_huge_body_anyway_still_reads_the_answer(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        connection.head(f"Content-Length: {70 * 1024 * 1024}")
        for _ in range(70):
            connection.writer.write(bytes(1024 * 1024))
            await connection.writer.drain()
        assert (await connection.answer())[0] == 413
        assert await connection.is_closed_by_server()


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        connection.head("Transfer-Encoding: chunked")
        for _ in range(101):
            connection.writer.write(b"3e8\r\n" + bytes(1000) + b"\r\n")
        status, _, problem = await connection.answer()  # the last chunk was never sent
        assert (status, problem["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize("size", [99_999, 100_000])
async def test_a_body_up_to_the_cap_is_read_whole(gateway: Gateway, size: int) -> None:
    submission = await gateway.accepted(params={"model": "blob"}, content=b"x" * size)
    assert memoryview(submission.payload).nbytes == size


async def test_json_has_a_cap_of_its_own(gateway: Gateway) -> None:
    body = json.dumps(document("any_fp32", "FP32", [10_000], [1.25] * 10_000)).encode()
    assert 50_000 < len(body) < 100_000
    problem = await gateway.refused(content=body, headers={"Content-Type": "application/json"})
    assert (problem["status"], problem["max_body_bytes"]) == (413, 50_000)
    header = {"Inference-Header-Content-Length": str(len(body))}
    assert (await gateway.refused(content=body, headers=header))["status"] == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "x"])
async def test_a_content_encoding_is_refused_with_what_is_accepted(gateway: Gateway, encoding: str) -> None:
    answer = await gateway.post(params={"model": "fixed"}, content=DATA, headers={"Content-Encoding": encoding})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "identity"
    await gateway.accepted(params={"model": "fixed"}, content=DATA, headers={"Content-Encoding": "identity"})


@pytest.mark.parametrize("length", ["-1", "+12", "12, 12", "0x0c", "1" * 19, "١٢"])
async def test_a_length_that_is_no_number_is_refused(gateway: Gateway, length: str) -> None:
    """B068"""
    headers = {"Content-Length": length.encode("utf-8")}
    problem = await gateway.refused(params={"model": "fixed"}, content=DATA, headers=headers)
    assert (problem["status"], problem["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("headers", [["Content-Length: -1"], ["Content-Length: 12", "Content-Length: 13"]])
async def test_a_server_refuses_what_its_parser_can_not_trust(gateway: Gateway, headers: list[str]) -> None:
    """B068"""
    async with connected(gateway) as connection:
        connection.head(*headers)
        assert (await connection.reader.readline()).split()[1] == b"400"
    assert gateway.submissions == []


async def test_a_body_that_ends_early_makes_no_job(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        connection.head("Content-Length: 12")
        connection.writer.write(DATA[:6])
        await connection.writer.drain()
        connection.writer.close()
        await connection.writer.wait_closed()
    assert gateway.submissions == []


async def test_a_body_shorter_than_announced_is_incomplete(gateway: Gateway) -> None:
    problem = await gateway.refused(params={"model": "fixed"}, content=DATA, headers={"Content-Length": "13"})
    assert (problem["status"], problem["code"]) == (400, "incomplete_body")


async def test_a_body_that_trickles_in_is_given_up(gateway: Gateway) -> None:
    """B063"""
    async with connected(gateway) as connection:
        connection.head("Content-Length: 12")
        connection.writer.write(DATA[:6])
        status, headers, problem = await connection.answer()
        assert (status, problem["code"], headers["connection"]) == (408, "body_too_slow", "close")
        assert "Only 6 bytes" in str(problem["detail"])


async def test_a_body_that_keeps_up_the_rate_may_take_longer_than_the_grace(gateway: Gateway) -> None:
    """B063: each kilobyte buys a second."""
    async with connected(gateway) as connection:
        connection.head("Content-Length: 4096", target="/jobs?model=blob")
        connection.writer.write(bytes(4095))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.reader.read(1), 0.5)
        connection.writer.write(b"\0")
        assert (await connection.answer())[0] == 202


async def test_a_model_in_the_query_is_looked_up_before_the_body_is_read(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        connection.head("Content-Length: 12", "Expect: 100-continue", target="/jobs?model=nope")
        status, headers, problem = await connection.answer()
        assert (status, problem["code"], headers["connection"]) == (404, "unknown_model", "close")


async def test_a_refusal_after_the_body_keeps_the_connection(gateway: Gateway) -> None:
    async with connected(gateway) as connection:
        for _ in range(2):
            connection.head("Content-Length: 11")
            connection.writer.write(DATA[:11])
            status, headers, _ = await connection.answer()
            assert (status, headers.get("connection")) == (422, None)


async def test_bodies_in_many_pieces_are_put_together(gateway: Gateway) -> None:
    body = bytes(range(256)) * 300

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7_777):
            yield body[start : start + 7_777]

    submission = await gateway.accepted(params={"model": "blob"}, content=pieces())
    assert bytes(submission.payload) == body
