"""A job store on fakeredis and on a real Valkey, with a clock that a test moves.

Owns the `rig` fixture: store, registry, raw client, short verbs. Must not assert anything, nor patch the product.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fakeredis
import pytest

from jobs import keys
from jobs.connection import Connection
from jobs.datatypes import Datatype
from jobs.errors import ErrorCode, JobError
from jobs.record import (
    LOCAL_TENANT,
    InputPart,
    InputSource,
    Job,
    JobRequest,
    Outcome,
    OutputPart,
    RequestedOutput,
)
from jobs.registry import Registry
from jobs.settings import StoreSettings
from jobs.state import State
from jobs.store import Claimed, JobStore, Lease, Submission, SubmitReply, Suspects, new_job_id
from tests.support.databases import Database

MODEL = "resnet"
PAYLOAD = bytes(range(64))
LEASE_MS = 12_000
START_MS = 1_700_000_000_000


@dataclass
class Clock:
    """Redis' clock as the store sees it: it stands still until a test moves it."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


def a_request(model: str = MODEL, **options: Any) -> JobRequest:
    """A small valid request: one FP32 input of 16 elements, one output."""
    part = InputPart("x", InputSource.TENSOR, len(PAYLOAD), Datatype.FP32, (16,))
    return JobRequest(model, (part,), (RequestedOutput("y"),), **options)


def a_submission(model: str = MODEL, *, tenant: str = LOCAL_TENANT, **options: Any) -> Submission:
    """A new job; `idempotency_key`, `fingerprint` and `payload` go to the submission, the rest to the request."""
    own = {name: options.pop(name) for name in ("idempotency_key", "fingerprint") if name in options}
    payload = options.pop("payload", PAYLOAD)
    return Submission(new_job_id(), tenant, a_request(model, **options), payload, **own)


def a_result(text: str = "answer") -> Outcome:
    """A success whose result is stored inline."""
    data = text.encode()
    return Outcome(outputs=(OutputPart("y", Datatype.UINT8, (len(data),), len(data)),), inline=data)


def an_error(code: ErrorCode = ErrorCode.ENGINE_ERROR, detail: str = "It broke.") -> Outcome:
    """A failure."""
    return Outcome(error=JobError(code, detail))


Snapshot = dict[bytes, tuple[object, bool]]
"""Key → (its whole value, whether it has a TTL)."""


@dataclass
class Rig:
    """A store on an empty server, and what a test needs round it."""

    store: JobStore
    registry: Registry
    redis: Any  # the raw client, whose type hints are those of its synchronous twin
    clock: Clock
    settings: StoreSettings

    @property
    def connection(self) -> Connection:
        return self.store.connection

    @property
    def is_real(self) -> bool:
        """Whether this is a server of its own; fakeredis runs Lua too slowly for large numbers."""
        return not isinstance(self.redis, fakeredis.FakeAsyncRedis)

    def another(self, **settings: Any) -> JobStore:
        """A second store on the same server and clock, with other settings."""
        merged = StoreSettings(**(self.settings.model_dump() | settings))
        return JobStore(self.connection, merged, self.clock)

    async def submit(self, model: str = MODEL, **options: Any) -> str:
        """The id of a new job."""
        return (await self.submit_reply(model, **options)).job_id

    async def submit_reply(self, model: str = MODEL, **options: Any) -> SubmitReply:
        """What became of a submission."""
        return await self.store.submit(a_submission(model, **options))

    async def claim(
        self, limit: int = 1, *, model: str = MODEL, lease_ms: int = LEASE_MS, suspects: Suspects = Suspects.TAKE
    ) -> list[Claimed]:
        """The jobs that a claim gave."""
        claim = await self.store.claim(model, limit, worker="w-1", lease_ms=lease_ms, suspects=suspects)
        return claim.jobs

    async def lease(self, model: str = MODEL) -> Lease:
        """The lease of the one job that a claim gave."""
        (claimed,) = await self.claim(model=model)
        return claimed.lease

    async def job(self, job_id: str) -> Job:
        """The record of a job that must exist."""
        inspection = await self.store.get(job_id, LOCAL_TENANT)
        if inspection is None:
            raise LookupError(job_id)
        return inspection.job

    async def state(self, job_id: str) -> State | None:
        """The state of a job, None where it is unknown, without the side effects of looking."""
        raw = await self.redis.hget(keys.job_key(job_id), "state")
        return State(raw.decode()) if raw else None

    async def snapshot(self) -> Snapshot:
        """Everything in the database."""
        names = [key async for key in self.redis.scan_iter(count=1000)]
        facts = self.redis.pipeline(transaction=False)
        for name in names:
            facts.type(name).pttl(name)
        replies = await facts.execute()
        values = self.redis.pipeline(transaction=False)
        for name, kind in zip(names, replies[::2], strict=True):
            _read(values, name, kind)
        return {
            name: (value, ttl_ms >= 0)
            for name, value, ttl_ms in zip(names, await values.execute(), replies[1::2], strict=True)
        }

    async def keys(self) -> set[str]:
        """The names of everything in the database, but for the sums, which outlive all jobs."""
        return {key.decode() async for key in self.redis.scan_iter()} - {keys.LOAD_KEY}


def _read(pipeline: Any, key: bytes, kind: bytes) -> None:
    """Ask for the whole value of a key."""
    match kind:
        case b"string":
            pipeline.get(key)
        case b"hash":
            pipeline.hgetall(key)
        case b"list":
            pipeline.lrange(key, 0, -1)
        case _:
            pipeline.zrange(key, 0, -1, withscores=True)


@pytest.fixture(
    params=["fakeredis", pytest.param("valkey", marks=pytest.mark.server)],
)
def store_url(request: pytest.FixtureRequest) -> str:
    """Where the store of this test lives; empty for fakeredis."""
    if request.param == "fakeredis":
        return ""
    url: str = request.getfixturevalue("valkey_url")
    return Database.STORES.at(url)


@pytest.fixture
async def rig(store_url: str) -> AsyncIterator[Rig]:
    """A store on each kind of server, in an empty database."""
    async with open_rig(store_url) as opened:
        yield opened


def connect(url: str, settings: StoreSettings) -> Connection:
    """A connection to a real server, or to a fakeredis of its own where there is no URL."""
    if url:
        return Connection.from_settings(settings)
    return Connection(fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer()), settings.redis_timeout_seconds)


@asynccontextmanager
async def open_rig(url: str, clock: Clock | None = None, **options: Any) -> AsyncIterator[Rig]:
    """A rig on an empty database, for tests that need several in a row or other settings."""
    settings = StoreSettings(redis_url=url or "redis://nowhere", redis_pool_size=16, **options)
    connection = connect(url, settings)
    clock = clock or Clock()
    try:
        await connection.client.flushdb()
        store = JobStore(connection, settings, clock)
        yield Rig(store, Registry(connection, clock), connection.client, clock, settings)
    finally:
        await connection.close()
