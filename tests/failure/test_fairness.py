"""A job that is ready is taken at once by whoever is idle, whatever others hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from jobs.record import LOCAL_TENANT
from jobs.store import Inspection, JobStore, Submission, new_job_id
from tests.contract.valkeys import store_at
from tests.failure.conftest import OpenSite
from tests.failure.site import MODEL, number
from tests.support.eventually import eventually
from tests.support.scripted_triton import ScriptedTriton, scripted_model
from tests.support.stores import PAYLOAD, a_request
from workers.budget import ByteBudget, DecodeRoom
from workers.lane import Lane
from workers.settings import WorkerSettings
from workers.tools import Tools
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

CLAIMED = 120
WORKERS = 50
ROUNDS = 10
TAKEN_SECONDS = 2.0


async def test_a_short_job_behind_120_claimed_long_ones_is_taken_within_2_seconds(open_site: OpenSite) -> None:
    """B017."""
    async with open_site([scripted_model(MODEL, max_batch_size=0, instances=CLAIMED)]) as here:
        client = await here.api()
        holder = here.worker("holder")
        await here.until_served(holder)
        here.engine.always(MODEL, "hang")
        for n in range(CLAIMED):
            await client.submit(MODEL, number(n), timeout_seconds=600)
        await here.engine.until(lambda: here.engine.in_flight == CLAIMED, 60)
        idle = here.worker("idle")
        await here.until_served(idle)
        here.engine.always(MODEL, "ok")
        started = time.monotonic()
        short = await client.wait(await client.submit(MODEL, number(1)), 10)
        assert short.succeeded
        assert time.monotonic() - started < TAKEN_SECONDS


@asynccontextmanager
async def lanes(url: str, engine: ScriptedTriton) -> AsyncIterator[list[Lane]]:
    """Fifty workers' lanes, each with a store, a channel and bookkeeping of its own."""
    settings = WorkerSettings(redis_url=url, engine=(engine.address,))
    async with AsyncExitStack() as stack:
        opened: list[Lane] = []
        for number_of_worker in range(WORKERS):
            store = await stack.enter_async_context(store_at(url, redis_pool_size=8))
            client = await stack.enter_async_context(TritonClient(EngineOptions(addresses=settings.engine)))
            threads = stack.enter_context(ThreadPoolExecutor(1))
            budget, decoders = ByteBudget(settings.inflight_bytes), DecodeRoom(settings.decode_bytes)
            tools = Tools(f"w-{number_of_worker}", settings, store, client, threads, budget, decoders)
            opened.append(Lane(tools, await client.describe(MODEL, "", 5)))
        tasks = [asyncio.create_task(lane.run()) for lane in opened]
        try:
            yield opened
        finally:
            await asyncio.gather(*(lane.stop(time.monotonic() + 5) for lane in opened))
            await asyncio.gather(*tasks)


async def test_no_idle_worker_of_fifty_waits_while_a_job_is_ready(redis_url: str) -> None:
    """B017: 50 workers, ten jobs for each; every job starts within 2 seconds of becoming ready, and all work."""
    async with (
        ScriptedTriton([scripted_model(MODEL, max_batch_size=0)]) as engine,
        store_at(redis_url) as store,
        lanes(redis_url, engine),
    ):
        engine.always(MODEL, "slow:0.3")
        for _ in range(ROUNDS):
            ids = await _submitted(store, WORKERS)
            waits = await _waits(store, ids)
            assert max(waits) < TAKEN_SECONDS, sorted(waits)[-5:]
        assert len(engine.peers) >= WORKERS * 0.8


async def _submitted(store: JobStore, count: int) -> list[str]:
    submissions = [Submission(new_job_id(), LOCAL_TENANT, a_request(MODEL), PAYLOAD) for _ in range(count)]
    return [reply.job_id for reply in await store.submit_many(submissions)]


async def _waits(store: JobStore, ids: list[str]) -> list[float]:
    """How long each job waited for its start, in seconds, once all are done."""
    found: list[Inspection] = []

    async def are_done() -> bool:
        found[:] = [inspection for job_id in ids if (inspection := await store.get(job_id, LOCAL_TENANT)) is not None]
        return all(inspection.job.state.is_terminal for inspection in found)

    await eventually(are_done, 20)
    assert {inspection.job.state for inspection in found} == {"succeeded"}
    return [(inspection.job.started_ms - inspection.job.due_ms) / 1000 for inspection in found]
