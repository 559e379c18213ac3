"""A TCP proxy in front of a real server that loses a reply on demand, as a cut network does.

Owns its sockets. Must not understand what it forwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from inferq.stack.ports import LOOPBACK


class Proxy:
    """Forwards until told to lose the next reply: the server has acted by then, and the client sees a closed socket."""

    def __init__(self, upstream_url: str) -> None:
        parts = urlsplit(upstream_url)
        self._upstream = (parts.hostname or LOOPBACK, parts.port or 6379)
        self._database = parts.path
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._is_losing = False
        self.lost = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}{self._database}"

    def lose_next_reply(self) -> None:
        self._is_losing = True

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
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
        there = asyncio.ensure_future(_copy(reader, upstream_writer))
        try:
            with suppress(OSError, asyncio.CancelledError):  # asyncio reports a handler that ends canceled as an error
                while chunk := await upstream_reader.read(65_536):
                    if self._is_losing:
                        self._is_losing = False
                        self.lost += 1
                        break
                    writer.write(chunk)
                    await writer.drain()
        finally:
            there.cancel()
            upstream_writer.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.CancelledError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[Proxy]:
    """A running proxy."""
    proxy = Proxy(url)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
