"""A cheap load generator: keep-alive connections that write prepared bytes and look only at what they must.

It owns connections and clocks; it must not know what the requests mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, cast

LONGEST_SECONDS: Final = 120.0
HEAD_END: Final = b"\r\n\r\n"
LENGTH: Final = b"\r\ncontent-length: "


class LoadError(Exception):
    """The server did not answer as it should."""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer, as it came."""

    status: int
    head: bytes
    body: bytes
    seconds: float

    @property
    def id(self) -> str:
        """The value of the body's first member `"id"`."""
        start = self.body.find(b'"id":"') + 6
        return self.body[start : self.body.find(b'"', start)].decode()


def request_bytes(method: str, path: str, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A whole request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in headers)]
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _content_length(head: bytes | bytearray) -> int:
    """The length that a head in lower case names, 0 where it names none."""
    start = head.find(LENGTH)
    return int(head[start + len(LENGTH) : head.find(b"\r\n", start + len(LENGTH))]) if start >= 0 else 0


class _Connection(asyncio.Protocol):
    """Sends the next request when the last one is answered."""

    def __init__(self, requests: Iterator[bytes], on_response: Callable[[Response], None]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._on_response = on_response
        self._received = bytearray()
        self._wanted = 0
        self._body_start = 0
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one, but does not inherit from it
        self._send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(LoadError(f"the server closed a connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self._wanted:
            head_end = received.find(HEAD_END)
            if head_end < 0:
                return
            self._body_start = head_end + len(HEAD_END)
            self._wanted = self._body_start + _content_length(received[:head_end].lower() + b"\r\n")
        if len(received) >= self._wanted:
            self._answered()

    def _answered(self) -> None:
        seconds = time.perf_counter() - self._sent_at
        received = bytes(self._received)
        self._received.clear()
        self._wanted = 0
        head, body = received[: self._body_start], received[self._body_start :]
        try:
            self._on_response(Response(int(head[9:12]), head, body, seconds))
        except Exception as exc:  # it belongs to whoever waits for this connection
            if not self.ended.done():
                self.ended.set_exception(exc)
            self._transport.close()
            return
        self._send_next()

    def _send_next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            if not self.ended.done():
                self.ended.set_result(None)
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(request)


async def drive(
    port: int, requests: Iterable[bytes], connections: int, on_response: Callable[[Response], None]
) -> None:
    """Send every request over this many connections, one at a time on each.

    Raises what `on_response` raises, and TimeoutError where the answers don't come in two minutes.
    """
    loop = asyncio.get_running_loop()
    shared = iter(requests)
    opened = [
        (await loop.create_connection(lambda: _Connection(shared, on_response), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    async with asyncio.timeout(LONGEST_SECONDS):
        await asyncio.gather(*(connection.ended for connection in opened))


class Client:
    """One keep-alive connection for requests that depend on each other: `async with Client(port) as client`."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._writer.close()

    async def ask(self, request: bytes) -> Response:
        """The answer to one request; raises TimeoutError after two minutes."""
        started = time.perf_counter()
        self._writer.write(request)
        async with asyncio.timeout(LONGEST_SECONDS):
            head = await self._reader.readuntil(HEAD_END)
            length = _content_length(head.lower())
            body = await self._reader.readexactly(length) if length else b""
        return Response(int(head[9:12]), head, body, time.perf_counter() - started)
