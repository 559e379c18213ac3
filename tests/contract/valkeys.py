"""Valkeys of a test's own, to be configured, frozen and stopped; and a server that answers what it is told.

Owns their lifetime. Must not touch the session's server.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from inferq.stack import StackEnvironment, ValkeyServer
from inferq.stack.ports import LOOPBACK
from jobs.connection import Connection
from jobs.settings import StoreSettings
from jobs.store import JobStore


class ConfiguredValkey(ValkeyServer):
    """A Valkey with further lines in its configuration; a later line wins over an earlier one."""

    def __init__(self, environment: StackEnvironment, data_dir: Path, *more: str) -> None:
        super().__init__(environment, data_dir)
        self._more = more

    def _config_lines(self) -> list[str]:
        return [*super()._config_lines(), *self._more]


@contextmanager
def configured(environment: StackEnvironment, data_dir: Path, *more: str) -> Iterator[ValkeyServer]:
    """A running Valkey with these lines in its configuration."""
    server = ConfiguredValkey(environment, data_dir, *more)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def frozen(server: ValkeyServer) -> Iterator[None]:
    """The server keeps its sockets and answers nothing, as a host does that hangs."""
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@asynccontextmanager
async def store_at(url: str, **settings: object) -> AsyncIterator[JobStore]:
    """A store on a server, without the checks of `JobStore.open`."""
    chosen = StoreSettings(redis_url=url, **settings)  # type: ignore[arg-type]
    store = JobStore(Connection.from_settings(chosen), chosen)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[str]:
    """The URL of a server that gives this one reply to every command; connecting works as with a real one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while header := await reader.readline():
                parts = []
                for _ in range(int(header[1:])):
                    size = int((await reader.readline())[1:])
                    parts.append((await reader.readexactly(size + 2))[:-2])
                writer.write(b"+OK\r\n" if parts[0] == b"CLIENT" else reply)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield f"redis://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
