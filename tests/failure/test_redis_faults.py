"""Promise 8: whatever Redis or the network to it does, calls end, processes stay, and work goes on within 10 seconds.

One site for all faults, one after the other: the same processes go through all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest
from redis.asyncio import Redis

from inferq.client import AsyncClient
from inferq.stack import StackEnvironment, ValkeyServer
from jobs import keys
from tests.contract.valkeys import answering
from tests.failure.site import MODEL, Site, assert_all_succeed, frozen, holds, load, number, site, until
from tests.support.eventually import eventually
from tests.support.proxy import RedisProxy, proxy_to

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

DEADLINE_SECONDS = 2 * 5.0
"""Of a request: what arrives while a call to Redis is on its way waits for its end, and then makes its own."""
SLACK_SECONDS = 3.0
RESUME_SECONDS = 10.0
FAULT_SECONDS = 8.0
SHORT_SECONDS = 3.0
POLLS = 2000
CONNECTIONS = 200
MEBIBYTE = 1024 * 1024


class Faulty:
    """The site and what stands between it and its Valkey."""

    def __init__(self, here: Site, client: AsyncClient, server: ValkeyServer, proxy: RedisProxy) -> None:
        self.here = here
        self.client = client
        self.server = server
        self.proxy = proxy
        self.redis = Redis.from_url(server.url)

    async def answers(self) -> tuple[int, int, int, int, int]:
        """The statuses of every kind of call, each of which must end by its deadline."""
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [7]}
        async with self.here.raw() as raw:

            async def timed(method: str, path: str, **arguments: object) -> int:
                started = time.monotonic()
                answer = await raw.request(method, path, **arguments)  # type: ignore[arg-type]
                assert time.monotonic() - started < DEADLINE_SECONDS + SLACK_SECONDS, path
                if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                    assert int(answer.headers["Retry-After"]) > 0
                return answer.status_code

            return await asyncio.gather(
                timed("POST", "/jobs", json={"model": MODEL, "inputs": [tensor]}),
                timed("GET", f"/jobs/{'0' * 32}"),
                timed("GET", "/jobs"),
                timed("POST", f"/jobs/{'0' * 32}/cancel"),
                timed("GET", "/health/live"),
            )


@pytest.fixture(scope="module")
async def faulty(
    stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Faulty]:
    """One api and one worker behind a proxy."""
    folder = tmp_path_factory.mktemp("faulty")
    server = ValkeyServer(stack_environment, folder / "valkey")
    server.start()
    try:
        async with proxy_to(server.url) as proxy, site(proxy.url, folder) as here:
            client = await here.api()
            await here.until_served(here.worker())
            opened = Faulty(here, client, server, proxy)
            yield opened
            await opened.redis.aclose()
    finally:
        server.stop()


Fault = Callable[[Faulty], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def frozen_valkey(faulty: Faulty) -> AsyncIterator[None]:
    with frozen(faulty.server.process.pid):
        yield


@asynccontextmanager
async def restarted(faulty: Faulty) -> AsyncIterator[None]:
    await asyncio.to_thread(faulty.server.stop)
    try:
        yield
    finally:
        faulty.server.start()


@asynccontextmanager
async def read_only(faulty: Faulty) -> AsyncIterator[None]:
    """As after a failover that the address did not follow: a replica answers READONLY to what writes."""
    await faulty.redis.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        await faulty.redis.replicaof("NO", "ONE")


@asynccontextmanager
async def loading(faulty: Faulty) -> AsyncIterator[None]:
    async with answering(b"-LOADING Redis is loading the dataset in memory\r\n") as url:
        faulty.proxy.lead_to("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))
        faulty.proxy.reset()
        try:
            yield
        finally:
            faulty.proxy.lead_to("127.0.0.1", faulty.server.port)
            faulty.proxy.reset()


@asynccontextmanager
async def blackhole(faulty: Faulty) -> AsyncIterator[None]:
    faulty.proxy.is_blackhole = True
    try:
        yield
    finally:
        faulty.proxy.is_blackhole = False


@asynccontextmanager
async def resets(faulty: Faulty) -> AsyncIterator[None]:
    async def cut() -> None:
        while True:
            faulty.proxy.reset()
            await asyncio.sleep(0.3)

    cutting = asyncio.create_task(cut())
    try:
        yield
    finally:
        cutting.cancel()
        await asyncio.wait([cutting])


@asynccontextmanager
async def latency(faulty: Faulty) -> AsyncIterator[None]:
    faulty.proxy.delay_seconds = 0.2
    try:
        yield
    finally:
        faulty.proxy.delay_seconds = 0


@asynccontextmanager
async def slow_drip(faulty: Faulty) -> AsyncIterator[None]:
    faulty.proxy.drip_bytes = 16
    try:
        yield
    finally:
        faulty.proxy.drip_bytes = 0


AWAY: list[tuple[Fault, float]] = [
    (frozen_valkey, FAULT_SECONDS),
    (restarted, SHORT_SECONDS),
    (read_only, SHORT_SECONDS),
    (loading, SHORT_SECONDS),
    (blackhole, FAULT_SECONDS),
]
BAD: list[tuple[Fault, float]] = [(resets, SHORT_SECONDS), (latency, SHORT_SECONDS), (slow_drip, SHORT_SECONDS)]


@pytest.mark.parametrize(("fault", "seconds"), AWAY, ids=[fault.__name__ for fault, _ in AWAY])
async def test_while_redis_is_away_every_call_ends_and_then_work_goes_on(
    faulty: Faulty, fault: Fault, seconds: float
) -> None:
    """B008, B026: while jobs run, wait and end; `Retry-After` with each 503, and every accepted job is done."""
    pids = {name: process.pid for name, process in faulty.here.processes.items()}
    faulty.here.engine.always(MODEL, "slow:0.05")
    async with load([faulty.client], per_second=30) as jobs:
        await asyncio.sleep(0.5)
        async with fault(faulty):
            started = time.monotonic()
            post, get, listing, cancel, live = await faulty.answers()
            assert (post, live) == (503, 200)
            assert {get, listing, cancel} <= {503, 404, 200}
            await asyncio.sleep(max(0.0, seconds - (time.monotonic() - started)))
        assert await holds(lambda: _works(faulty), RESUME_SECONDS) < RESUME_SECONDS
    await assert_all_succeed(faulty.client, jobs)
    assert all(process.is_running for process in faulty.here.processes.values())
    assert {name: process.pid for name, process in faulty.here.processes.items()} == pids


@pytest.mark.parametrize(("fault", "seconds"), BAD, ids=[fault.__name__ for fault, _ in BAD])
async def test_a_bad_network_slows_work_down_and_loses_nothing(faulty: Faulty, fault: Fault, seconds: float) -> None:
    """B008, B026."""
    async with load([faulty.client], per_second=30) as jobs, fault(faulty):
        await asyncio.sleep(seconds)
    await assert_all_succeed(faulty.client, jobs)
    assert all(process.is_running for process in faulty.here.processes.values())


async def _works(faulty: Faulty) -> bool:
    """Whether a new job is taken and done."""
    async with faulty.here.raw() as raw:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [7]}
        headers = {"Prefer": f"wait={RESUME_SECONDS:g}"}
        answer = await raw.post("/jobs", json={"model": MODEL, "inputs": [tensor]}, headers=headers)
        return answer.status_code == httpx.codes.CREATED


async def test_a_full_redis_refuses_new_jobs_finishes_the_running_ones_and_heals(faulty: Faulty) -> None:
    """B022."""
    faulty.here.engine.always(MODEL, "slow:1.5")
    running = [await faulty.client.submit(MODEL, number(n), metadata={"number": n}) for n in range(4)]
    await until(faulty.client, running[:1], "in_progress")
    await faulty.redis.config_set("maxmemory", MEBIBYTE // 4)
    try:
        post, *_, live = await faulty.answers()
        assert (post, live) == (503, 200)
        await assert_all_succeed(faulty.client, running)
    finally:
        await faulty.redis.config_set("maxmemory", 0)
    faulty.here.engine.always(MODEL, "ok")
    assert await holds(lambda: _works(faulty), RESUME_SECONDS) < RESUME_SECONDS


async def test_a_redis_that_lost_everything_is_told_the_models_again(faulty: Faulty) -> None:
    async def is_told() -> bool:
        return bool(await faulty.redis.hexists(keys.MODELS_KEY, MODEL))

    await faulty.redis.flushall()
    await eventually(is_told, RESUME_SECONDS)
    assert await holds(lambda: _works(faulty), RESUME_SECONDS) < RESUME_SECONDS


async def test_two_thousand_polls_over_two_hundred_connections_wait_their_turn_or_are_told_to_come_back(
    faulty: Faulty,
) -> None:
    """B027: none is answered with an error of the pool."""
    job = await faulty.client.submit(MODEL, number(1), metadata={"number": 1})
    turns = asyncio.Semaphore(CONNECTIONS)  # the client's own queue would be the slowest part

    async def poll(raw: httpx.AsyncClient) -> int:
        async with turns:
            return (await raw.get(f"/jobs/{job.id}")).status_code

    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx.AsyncClient(base_url=faulty.here.urls[0], limits=limits, timeout=60, trust_env=False) as raw:
        statuses = await asyncio.gather(*(poll(raw) for _ in range(POLLS)))
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) > POLLS * 0.9


async def test_a_worker_that_was_killed_looks_dead_within_30_seconds(faulty: Faulty) -> None:
    """B016."""
    worker = faulty.here.processes["worker"]
    worker.kill()

    async def is_missed() -> bool:
        async with faulty.here.raw() as raw:
            found = (await raw.get("/health/ready")).json()
            return bool(found.get("workers") == 0)

    await eventually(is_missed, 30)
    worker.start()
    await faulty.here.until_served(worker)
