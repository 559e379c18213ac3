"""A TCP proxy in front of a real server, and what a network does to a connection: late, lost, cut, or silent.

Owns its sockets. Must not understand what it forwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from inferq.stack.ports import LOOPBACK

_CHUNK_BYTES = 65_536
_DRIP_SECONDS = 0.02

Passes = Callable[[], Awaitable[bool]]


class Proxy:
    """Forwards, until told otherwise.

    `lose_next_reply`: the server has acted, and the client sees a closed socket. `reset`: every connection is cut, in
    mid-word, with a RST. `is_blackhole`: connections stand and nothing passes, either way. `delay_seconds` is what each
    piece of a reply is late by; `drip_bytes` is how much of a reply passes each 20 ms, 0 = all.
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._opens = asyncio.Event()
        self._opens.set()
        self._is_losing = False
        self.delay_seconds = 0.0
        self.drip_bytes = 0
        self.lost = 0

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        assert self._server is not None
        return f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    @property
    def is_blackhole(self) -> bool:
        return not self._opens.is_set()

    @is_blackhole.setter
    def is_blackhole(self, is_blackhole: bool) -> None:
        if is_blackhole:
            self._opens.clear()
        else:
            self._opens.set()

    def lose_next_reply(self) -> None:
        self._is_losing = True

    def lead_to(self, host: str, port: int) -> None:
        """New connections go there."""
        self._upstream = (host, port)

    def reset(self) -> None:
        """Cut every connection now; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, upstream_writer}
        there = asyncio.ensure_future(self._forward(reader, upstream_writer, self._opens.wait))
        try:
            with suppress(asyncio.CancelledError):  # asyncio reports a handler that ends canceled as an error
                await self._forward(upstream_reader, writer, self._let_reply_pass)
        finally:
            there.cancel()
            self._writers -= {writer, upstream_writer}
            upstream_writer.close()
            writer.close()

    async def _let_reply_pass(self) -> bool:
        """Whether the reply reaches the client, once it is time."""
        if self._is_losing:
            self._is_losing = False
            self.lost += 1
            return False
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        return await self._opens.wait()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Passes) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if not await passes():
                    return
                size = self.drip_bytes or len(chunk)
                for start in range(0, len(chunk), size):
                    writer.write(chunk[start : start + size])
                    await writer.drain()
                    if self.drip_bytes:
                        await asyncio.sleep(_DRIP_SECONDS)


class RedisProxy(Proxy):
    """A proxy in front of the server that a Redis URL names; `url` is that database through the proxy."""

    def __init__(self, upstream_url: str) -> None:
        self._parts = urlsplit(upstream_url)
        super().__init__(self._parts.hostname or LOOPBACK, self._parts.port or 6379)

    @property
    def url(self) -> str:
        return f"redis://{self.address}{self._parts.path}"


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[RedisProxy]:
    """A running proxy in front of a Redis."""
    proxy = RedisProxy(url)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
