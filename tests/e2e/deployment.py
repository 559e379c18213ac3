"""What the end-to-end tests hold of the running deployment: clients, a look into Redis, and the servers to stop.

Owns the questions that several tests ask. Must not assert what one test is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import httpx
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError

from inferq.client import AsyncClient
from inferq.stack import TritonServer, ValkeyServer
from jobs.connection import Connection
from jobs.registry import Registry, WorkerBeat, WorkerRole
from jobs.settings import StoreSettings
from tests.support.eventually import eventually

OF_JOBS = ("job:", "in:", "out:", "idem:", "index:", "ready:", "scheduled:", "leased:", "open")
"""The kinds of keys that a job leaves; heartbeats and models come and go without one."""


class Deployment:
    """`clients` and `raw` are for one api each: the product's client, and plain HTTP without second attempts."""

    def __init__(self, store: ValkeyServer, triton: TritonServer, urls: Sequence[str], events: list[str]) -> None:
        self.store = store
        self.triton = triton
        self.urls = urls
        self.events = events
        self.clients = [AsyncClient(url) for url in urls]
        self.raw = [httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) for url in urls]
        self.redis = Redis.from_url(store.url, retry=Retry(ConstantBackoff(0.05), 3), retry_on_error=[ConnectionError])
        self._connection = Connection.from_settings(StoreSettings(redis_url=store.url))
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in self.clients:
            self._closing.push_async_callback(client.close)
        for raw in self.raw:
            self._closing.push_async_callback(raw.aclose)
        self._closing.push_async_callback(self.redis.aclose)
        self._closing.push_async_callback(self._connection.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.aclose()

    @property
    def client(self) -> AsyncClient:
        """A client of the first api, where it does not matter which."""
        return self.clients[0]

    async def workers(self) -> list[WorkerBeat]:
        """The live inference workers, by their heartbeats."""
        beats = await Registry(self._connection).workers()
        return [beat for beat in beats if beat.role is WorkerRole.INFERENCE]

    async def keys_of_jobs(self) -> set[bytes]:
        """Every key that belongs to some job."""
        prefixes = tuple(f"inferq:{kind}".encode() for kind in OF_JOBS)
        return {key async for key in self.redis.scan_iter("inferq:*", count=1000) if key.startswith(prefixes)}

    async def leased(self, model: str) -> list[str]:
        """The ids of a model's jobs that are in progress."""
        return [member.decode() for member in await self.redis.zrange(f"inferq:leased:{model}", 0, -1)]

    @asynccontextmanager
    async def without(self, server: ValkeyServer | TritonServer) -> AsyncIterator[None]:
        """The server is stopped inside the context, and at its end started again, from the main thread, and ready."""
        await asyncio.to_thread(server.stop)

        async def is_ready() -> bool:
            return await asyncio.to_thread(server.is_ready)

        try:
            yield
        finally:
            server.launch()
            await eventually(is_ready, 60)

    async def settle(self) -> None:
        """Return once both workers serve their models again: what a test did to the deployment is over."""

        async def is_serving() -> bool:
            workers = await self.workers()
            ready = [lane.state == "ready" for worker in workers for lane in worker.lanes.values()]
            return len(workers) == len(self.urls) and bool(ready) and all(ready)

        await eventually(is_serving, 30)
