"""A receiver of webhooks that does what it is told, good and bad, over plain sockets or TLS.

Owns its socket and what it has seen. Must not judge it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
_PIECE = b"x" * 65_536


@dataclass(frozen=True)
class Seen:
    """One request; header names in lower case."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Which message it is."""
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """Answers each request by a word: a status such as `204`, `301 http://…`, `429 120`, or one of `_misbehave`'s.

    `words` are used up first, then `always` holds.
    """

    tls: ssl.SSLContext | None = None
    always: str = "204"
    words: deque[str] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    host: str = LOOPBACK
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        """The messages in the order in which they came."""
        return [seen.id for seen in self.seen]

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self.tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def got(self, count: int, timeout_seconds: float = 20) -> list[Seen]:
        """What came, once that is so many requests."""
        async with asyncio.timeout(timeout_seconds):
            while len(self.seen) < count:
                self._news.clear()
                await self._news.wait()
        return self.seen

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        if self.always == "greet":  # as a server does that speaks first, and not TLS
            writer.write(b"220 receiver ready\r\n")
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._serve(reader, writer):
                pass
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether another one may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.seen.append(Seen(head[0].split(" ")[1], headers, body))
        self._news.set()
        word, _, rest = (self.words.popleft() if self.words else self.always).partition(" ")
        if word.isdigit():
            extra = {"301": "Location", "302": "Location", "429": "Retry-After", "503": "Retry-After"}.get(word)
            line = f"{extra}: {rest}\r\n" if extra and rest else ""
            writer.write(f"HTTP/1.1 {word} So\r\n{line}Content-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return True
        return await self._misbehave(word, rest, writer)

    async def _misbehave(self, word: str, rest: str, writer: asyncio.StreamWriter) -> bool:
        match word:
            case "raw" | "raw-reset" | "raw-hang":
                await _send(writer, rest.encode("latin-1"))
                if word == "raw-reset":
                    await asyncio.sleep(0)
                    writer.transport.abort()
                elif word == "raw-hang":
                    await asyncio.Event().wait()
            case "raw-split":
                at, _, text = rest.partition(" ")
                await _send(writer, text[: int(at)].encode("latin-1"))
                await asyncio.sleep(0.002)  # a packet of its own
                await _send(writer, text[int(at) :].encode("latin-1"))
            case "leave":
                pass
            case "hang":
                await asyncio.Event().wait()
            case "reset":
                writer.transport.abort()
            case "huge":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
                for _ in range(16_384):
                    await _send(writer, _PIECE)
            case "endless":
                writer.write(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    await _send(writer, _PIECE)
            case "drip":
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
                    await _send(writer, bytes([byte]))
                    await asyncio.sleep(1)
            case "drip-body":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while True:
                    await _send(writer, b"x")
                    await asyncio.sleep(1)
            case "nonsense":
                writer.write(b"\x00\x01\x02 this is not HTTP\r\n\r\n")
            case "bomb":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00")
            case _:
                raise ValueError(word)
        return False


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Raises ConnectionResetError once the other side is gone, which a stream's `drain` may keep to itself."""
    if writer.transport.is_closing():
        raise ConnectionResetError
    writer.write(data)
    await writer.drain()


@asynccontextmanager
async def receiving(
    always: str = "204", *words: str, tls: ssl.SSLContext | None = None, host: str = LOOPBACK
) -> AsyncIterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver(tls=tls, always=always, words=deque(words), host=host)
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()
