"""Promises 6 and 4: what is broken harms nobody else, and every job ends."""

from __future__ import annotations

import asyncio
import time

import pytest

from jobs.registry import Registry
from tests.failure.conftest import OpenSite
from tests.failure.site import MODEL, assert_all_succeed, load, number, until
from tests.support.scripted_triton import scripted_model
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

BAD = "bad"
SOON_SECONDS = 2.0


@pytest.mark.parametrize("word", ["hang", "internal", "unavailable", "not_found", "garbage"])
async def test_one_bad_model_never_delays_another(open_site: OpenSite, word: str) -> None:
    """B013, B044: it hangs, breaks, is away or answers nonsense, for as long as the test looks."""
    async with open_site([scripted_model(MODEL), scripted_model(BAD)]) as here:
        client = await here.api()
        worker = here.worker()
        await here.until_served(worker)
        here.engine.always(BAD, word)
        bad = [await client.submit(BAD, number(n), timeout_seconds=30) for n in range(40)]
        await until(client, bad[:1], "in_progress", 5) if word == "hang" else None
        for n in range(20):
            started = time.monotonic()
            job = await client.wait(await client.submit(MODEL, number(n)), 10)
            assert job.succeeded
            assert time.monotonic() - started < SOON_SECONDS
        assert worker.is_running
        for job in bad:
            await client.cancel(job)


async def test_every_job_ends_in_the_time_that_its_options_give_it(open_site: OpenSite) -> None:
    """B013, B018: queue_ttl + attempts × timeout + 60 s, whether nobody takes it or every attempt hangs."""
    async with open_site([scripted_model(MODEL), scripted_model("gone")]) as here:
        client = await here.api()
        worker = here.worker(models=MODEL)
        await here.until_served(worker)
        await _register(here.engine.address, here.redis_url, "gone")
        here.engine.always(MODEL, "hang")
        started = time.monotonic()
        hanging = await client.submit(MODEL, number(1), timeout_seconds=1, max_failures=2, queue_ttl_seconds=30)
        untaken = await client.submit("gone", number(1), queue_ttl_seconds=2)
        failed, expired = await asyncio.gather(client.wait(hanging, 60), client.wait(untaken, 60))
        assert time.monotonic() - started < 30 + 2 * 1
        assert failed.error is not None
        assert (failed.status, failed.error.code, failed.raw["attempt"]) == ("failed", "engine_timeout", 2)
        assert expired.status == "expired"


async def test_a_model_that_no_engine_has_harms_no_worker_and_its_jobs_end(open_site: OpenSite) -> None:
    """V02: what was enqueued for nothing ends as such, and the worker lives."""
    async with open_site([scripted_model(MODEL), scripted_model("fleeting")], reload_grace_seconds=1) as here:
        client = await here.api()
        worker = here.worker()
        await here.until_served(worker, model="fleeting")
        here.engine.always("fleeting", "not_found")
        here.engine.ready("fleeting", False)
        job = await client.wait(await client.submit("fleeting", number(1)), 30)
        assert job.error is not None
        assert (job.status, job.error.code) == ("failed", "model_not_found")
        async with load([client]) as others:
            await asyncio.sleep(0.5)
        await assert_all_succeed(client, others)
        assert worker.is_running


async def test_the_sweeper_keeps_its_interval(open_site: OpenSite) -> None:
    """B018: late jobs end within seconds of their time, again and again, and not once a minute."""
    async with open_site([scripted_model(MODEL), scripted_model("gone")]) as here:
        client = await here.api()
        worker = here.worker(models=MODEL)
        await here.until_served(worker)
        await _register(here.engine.address, here.redis_url, "gone")
        for n in range(5):
            job = await client.submit("gone", number(n), queue_ttl_seconds=1)
            started = time.monotonic()
            async with here.raw() as raw:  # listing shows a job as it is stored and ends nothing by itself
                while True:
                    listed = (await raw.get("/jobs?limit=1")).json()["jobs"][0]
                    assert listed["id"] == job.id
                    if listed["done"]:
                        break
                    assert time.monotonic() - started < 1 + 4
                    await asyncio.sleep(0.05)


async def _register(engine: str, redis_url: str, model: str) -> None:
    """Make a model known as a worker does, without one that serves it."""
    from tests.contract.valkeys import store_at

    async with TritonClient(EngineOptions(addresses=(engine,))) as client, store_at(redis_url) as store:
        await Registry(store.connection).publish_models([await client.describe(model, "", 5)])
