"""T: Body speed, T: Body size: what a connection may cost, and that each answer on it is its request's own."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from api.protocol import Doorman, PatientProtocol, patient_protocol

pytestmark = pytest.mark.anyio

PIECE = bytes(64 * 1024)
PIECES = 400


class Server:
    """Behind the protocol: `/held` answers when it is let go, `/large` in pieces, everything else at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.has_hung_up = asyncio.Event()
        self.pieces = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: dict[str, Callable[[Request, Send], Awaitable[None]]] = {"/held": self._held, "/large": self._large}
        await answer.get(scope["path"], self._small)(Request(scope, receive), send)

    async def _small(self, request: Request, send: Send) -> None:
        await _answer(send, request.url.path.encode() + await request.body())

    async def _held(self, request: Request, send: Send) -> None:
        await request.body()
        self.has_begun.set()
        going = asyncio.create_task(self.go.wait())
        leaving = asyncio.ensure_future(request.receive())
        done, rest = await asyncio.wait((going, leaving), return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        if leaving in done:
            self.has_hung_up.set()
            return
        await _answer(send, b"/held")

    async def _large(self, request: Request, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for self.pieces in range(1, PIECES + 1):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            if await request.is_disconnected():
                self.has_hung_up.set()
                return
        await send({"type": "http.response.body", "body": b""})


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(app: Server, reader_seconds: float = 20.0) -> AsyncIterator[socket.socket]:
    """A connection that reads nothing by itself, and little of which the kernel takes over."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    config.load()
    kind = patient_protocol(10, Doorman(9, 9), reader_seconds)
    loop = asyncio.get_running_loop()

    def protocol() -> PatientProtocol:
        return kind(config=config, server_state=ServerState(), app_state={})

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    async with server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        with client:
            yield client


async def send(client: socket.socket, data: bytes) -> None:
    """All of it."""
    await asyncio.get_running_loop().sock_sendall(client, data)


async def read_to_end(client: socket.socket) -> bytes:
    """Whatever still comes until the connection closes."""
    received = b""
    async with asyncio.timeout(20):
        while data := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
            received += data
    return received


def get(path: str) -> bytes:
    """A whole request."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


BROKEN = {
    "no head": b"garbage\r\n\r\n",
    "a body with a broken chunk": b"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_request_is_not_the_answer_to_those_before_it(broken: str) -> None:
    app = Server()
    async with connected(app) as client:
        await send(client, get("/held") + get("/a") + BROKEN[broken])
        await app.has_begun.wait()
        app.go.set()
        answer = await read_to_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"200", b"400"], answer
    assert answer.index(b"/held") < answer.index(b"/a") < answer.index(b"invalid_request")


async def test_a_body_that_breaks_is_answered_at_once() -> None:
    async with connected(Server()) as client:
        await send(client, BROKEN["a body with a broken chunk"])
        answer = await read_to_end(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_who_hangs_up_with_another_request_in_line_is_waited_for_no_longer() -> None:
    app = Server()
    async with connected(app) as client:
        await send(client, get("/held") + get("/a"))
        await app.has_begun.wait()
        client.close()
        async with asyncio.timeout(20):
            await app.has_hung_up.wait()


HOSTS = {
    "none": b"",
    "two": b"Host: a\r\nHost: b\r\n",
    "the same twice": b"Host: a\r\nHost: a\r\n",
    "no name": b"Host: a b/\\@\r\n",
}


@pytest.mark.parametrize("hosts", HOSTS)
async def test_a_request_without_its_one_host_is_refused(hosts: str) -> None:
    """RFC 9112, 3.2: two servers in a row could take it for requests to different ones."""
    async with connected(Server()) as client:
        await send(client, get("/a") + b"GET /b HTTP/1.1\r\n" + HOSTS[hosts] + b"\r\n" + get("/c"))
        answer = await read_to_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"400"], answer
    assert b"one Host header" in answer


@pytest.mark.parametrize("head", [b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.1\r\nConnection: close\r\nHost:\r\n\r\n"])
async def test_a_host_may_be_empty_and_was_unknown_once(head: bytes) -> None:
    async with connected(Server()) as client:
        await send(client, head)
        assert (await read_to_end(client)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "unfinished", ["", "GET /b HT", "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"]
)
async def test_who_stops_sending_gets_an_answer_to_each_whole_request(unfinished: str) -> None:
    """As `nc -N` and some proxies do; what was not sent to its end is no request."""
    async with connected(Server()) as client:
        await send(client, get("/a") + get("/b") + get("/c") + unfinished.encode())
        client.shutdown(socket.SHUT_WR)
        answer = await read_to_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200"] * 3, answer[-1000:]
    assert answer.endswith(b"/c")
    assert answer.count(b"connection: close") == 1


async def test_who_stops_sending_before_its_request_is_whole_is_waited_for_no_longer() -> None:
    async with connected(Server()) as client:
        await send(client, b"POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
        client.shutdown(socket.SHUT_WR)
        assert await read_to_end(client) == b""


async def test_who_stops_sending_behind_a_broken_request_hears_of_both() -> None:
    app = Server()
    async with connected(app) as client:
        await send(client, get("/a") + BROKEN["no head"])
        client.shutdown(socket.SHUT_WR)
        answer = await read_to_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"400"], answer


async def test_what_nobody_reads_is_not_written_ahead_and_its_reader_is_cut_off() -> None:
    app = Server()
    async with connected(app, reader_seconds=0.2) as client:
        await send(client, get("/large"))
        async with asyncio.timeout(20):
            await app.has_hung_up.wait()
        assert app.pieces < PIECES / 2  # what the kernel's buffers took over, which may be some MB
        assert len(await read_to_end(client)) < PIECES / 2 * len(PIECE)


async def test_a_slow_reader_that_goes_on_reading_gets_everything() -> None:
    app = Server()
    loop = asyncio.get_running_loop()
    async with connected(app, reader_seconds=0.2) as client:
        await send(client, get("/large"))
        received = 0
        async with asyncio.timeout(60):
            for _ in range(20):  # 2 s, in which the kernel asks for nothing more, since it holds megabytes
                received += len(await loop.sock_recv(client, 4096))
                await asyncio.sleep(0.1)
            while received < PIECES * len(PIECE):
                received += len(await loop.sock_recv(client, 1 << 16))
    assert not app.has_hung_up.is_set()
