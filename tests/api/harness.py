"""The real application over a real or faked Redis, and a hand that plays the worker through the store's contract.

Owns opening and closing; tests speak HTTP, and look at nothing but answers and the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import fakeredis
import httpx
import numpy as np

from api.app import create_app
from api.services import Services
from api.settings import ApiSettings
from jobs import keys
from jobs.connection import Call, Connection
from jobs.datatypes import Datatype
from jobs.errors import ErrorCode, JobError
from jobs.record import LOCAL_TENANT, Job, Outcome, OutputPart, Timings
from jobs.registry import LaneBeat, LaneState, Registry, WorkerBeat
from jobs.settings import StoreSettings
from jobs.spec import InputSpec, ModelSpec, OutputKind, OutputSpec
from jobs.store import Claimed, Fail, JobStore, Release, Retry, Settled, Settlement, Succeed
from jobs.tensors import Tensor, tensor_of_bytes
from tests.support.described import document_of, undescribed

MODEL = "identity"
LEASE_MS = 12_000
INLINE_BYTES = 4096


def identity_spec(name: str = MODEL, **fields: Any) -> ModelSpec:
    """One FP32 input `x` of any width, one output `y`."""
    inputs = (InputSpec("x", Datatype.FP32, (-1,)),)
    outputs = (OutputSpec("y", Datatype.FP32, (-1,)),)
    return ModelSpec(name, ("1", "2"), 8, inputs, outputs, **fields)


def of_two_shapes(name: str = MODEL) -> ModelSpec:
    """Version 1 takes FP32 [2] without batches, version 2 is refused, and version 3 takes FP32 [3]."""
    newest = replace(identity_spec(name, config='{"newest":true}'), inputs=(InputSpec("x", Datatype.FP32, (3,)),))
    oldest = replace(newest, max_batch_size=0, inputs=(InputSpec("x", Datatype.FP32, (2,)),), config='{"oldest":true}')
    variants = (replace(oldest, versions=("1",)), replace(newest, versions=("2",), refusal="It is stateful."))
    return replace(newest, versions=("1", "2", "3"), variants=variants)


def a_worker(state: LaneState = LaneState.READY, *models: str, worker_id: str = "w-1") -> WorkerBeat:
    """What a live worker says of itself."""
    lanes = {model: LaneBeat(state, in_flight=1, credits=2, batch_size=4) for model in models or (MODEL,)}
    return WorkerBeat(worker_id, "host", 1, "0", lanes)


def floats(*values: float, name: str = "y") -> Tensor:
    """An FP32 tensor."""
    return Tensor(name, Datatype.FP32, (len(values),), np.asarray(values, "<f4").tobytes())


def classes(*texts: str, rows: int | None = None, name: str = "label") -> Tensor:
    """A classification as the engine gives it."""
    shape = (len(texts),) if rows is None else (rows, len(texts) // rows)
    return tensor_of_bytes(name, shape, [text.encode() for text in texts])


@dataclass
class Backend:
    """One Redis that several applications may share: a real one where there is a URL, else a fake."""

    url: str = ""
    fake: fakeredis.FakeServer = field(default_factory=fakeredis.FakeServer)

    def connect(self, settings: StoreSettings) -> Connection:
        """A connection of its own."""
        if self.url:
            return Connection.from_settings(settings)
        return Connection(fakeredis.FakeAsyncRedis(server=self.fake), settings.redis_timeout_seconds)


class Hand:
    """Plays the worker."""

    def __init__(self, store: JobStore) -> None:
        self.store = store

    async def claim(self, limit: int = 1, model: str = MODEL) -> list[Claimed]:
        """Take up to `limit` jobs."""
        claim = await self.store.claim(model, limit, worker="w-1", lease_ms=LEASE_MS)
        return claim.jobs

    async def take(self, model: str = MODEL) -> Claimed:
        """The one job that is ready."""
        (claimed,) = await self.claim(1, model)
        return claimed

    async def settle(self, settlement: Settlement) -> None:
        """Record an end; it must count."""
        assert (await self.store.settle([settlement]))[settlement.lease] is Settled.OK

    async def succeed(self, claimed: Claimed, *tensors: Tensor, is_inline: bool = False) -> None:
        """End a job with these outputs; BYTES outputs called `label` are classifications."""
        parts = tuple(_part(tensor) for tensor in tensors)
        payload = b"".join(bytes(tensor.data) for tensor in tensors)
        outcome = Outcome(
            outputs=parts,
            inline=payload if is_inline else None,
            model_version="2",
            timings=Timings(1.5, 0.25, 3.0),
            batch_size=4,
            batch_id="b-1",
        )
        await self.settle(Succeed(claimed.lease, outcome, None if is_inline else payload))

    async def fail(self, claimed: Claimed, code: ErrorCode, detail: str = "It broke.") -> None:
        """End a job with an error."""
        await self.settle(Fail(claimed.lease, Outcome(error=JobError(code, detail))))

    async def retry(self, claimed: Claimed, delay_ms: int = 0) -> None:
        """Count a failure and put the job back."""
        error = JobError(ErrorCode.ENGINE_ERROR, "It may work next time.")
        await self.settle(Retry(claimed.lease, Outcome(error=error), delay_ms))

    async def release(self, claimed: Claimed, delay_ms: int = 0) -> None:
        """Put the job back."""
        await self.settle(Release(claimed.lease, delay_ms))


def _part(tensor: Tensor) -> OutputPart:
    kind = OutputKind.CLASSIFICATION if tensor.name == "label" else OutputKind.TENSOR
    return OutputPart(tensor.name, tensor.datatype, tensor.shape, tensor.nbytes, kind)


@dataclass
class Api:
    """One running application."""

    client: httpx.AsyncClient
    services: Services
    registry: Registry
    hand: Hand

    @property
    def store(self) -> JobStore:
        return self.services.store

    async def post(self, *values: float, **options: Any) -> httpx.Response:
        """Submit a job for the identity model."""
        headers = options.pop("headers", {})
        document = {"model": options.pop("model", MODEL), **options, "inputs": [fp32_input(values or (1.0, 2.0))]}
        return await self.client.post("/jobs", json=document, headers=headers)

    async def submit(self, *values: float, **options: Any) -> str:
        """The id of a new job."""
        response = await self.post(*values, **options)
        assert response.status_code == 202, response.text
        job_id: str = response.json()["id"]
        return job_id

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """GET."""
        return await self.client.get(path, **options)

    async def job(self, job_id: str) -> dict[str, Any]:
        """The job object of a job that must exist."""
        response = await self.client.get(f"/jobs/{job_id}")
        assert response.status_code == 200, response.text
        shown: dict[str, Any] = response.json()
        return shown

    async def record(self, job_id: str) -> Job:
        """The stored record of a job that must exist."""
        found = await self.store.get(job_id, LOCAL_TENANT)
        assert found is not None
        return found.job

    async def damage(self, job_id: str, request: bytes = b"\xc1") -> None:
        """Make a record unreadable."""
        await self.store.connection.run(Call("HSET", keys.job_key(job_id), "request", request))

    async def beat(self, *beats: WorkerBeat) -> None:
        """Let these workers be alive, and the application know it."""
        for beat in beats:
            await self.registry.beat(beat)
        await self.services.catalog.refresh()


def fp32_input(values: Sequence[float], name: str = "x") -> dict[str, Any]:
    """An input in Open Inference Protocol words."""
    return {"name": name, "datatype": "FP32", "shape": [len(values)], "data": list(values)}


def api_settings(backend: Backend, **settings: Any) -> ApiSettings:
    """Settings for tests, with nothing from the environment."""
    defaults: dict[str, Any] = {
        "redis_url": backend.url or "redis://nowhere",
        "redis_pool_size": 16,
        "inline_output_bytes": INLINE_BYTES,
        "access_log": False,
    }
    return ApiSettings(_env_prefix="NOWHERE_", **(defaults | settings))


@asynccontextmanager
async def open_hand(backend: Backend) -> AsyncIterator[Hand]:
    """A worker on this backend, which has registered the identity model."""
    settings = api_settings(backend)
    store = JobStore(backend.connect(settings), settings)
    try:
        await Registry(store.connection).publish_models([identity_spec()])
        yield Hand(store)
    finally:
        await store.close()


@asynccontextmanager
async def running_api(
    backend: Backend, *, clock_ms: Any = lambda: 0, models: Sequence[ModelSpec] = (), **settings: Any
) -> AsyncIterator[Api]:
    """An application on this backend that knows these models."""
    merged = api_settings(backend, **settings)
    app = create_app(merged, JobStore(backend.connect(merged), merged, clock_ms))
    services: Services = app.state.services
    registry = Registry(services.store.connection)
    if models:
        await registry.publish_models(models)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False),
        base_url="http://api",
        timeout=30,
        event_hooks={"response": [_held_against(document_of(app))]},
    )
    async with services.running(), client:
        if models:
            await services.catalog.refresh()
        yield Api(client, services, registry, Hand(services.store))


def _held_against(document: Mapping[str, Any]) -> Callable[[httpx.Response], Awaitable[None]]:
    """What looks whether the document is silent about anything of an answer, whichever test asked for it."""

    async def check(response: httpx.Response) -> None:
        method, path = response.request.method, response.request.url.path
        missing = undescribed(document, method, path, response.status_code, response.headers)
        assert not missing, f"the document of {method} {path} lacks {', '.join(missing)} (of a {response.status_code})"

    return check


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Let others run until the condition holds."""
    async with asyncio.timeout(10):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0)
