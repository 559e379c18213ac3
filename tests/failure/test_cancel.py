"""Promise 7: cancel works in every state, through any api, within 2 s, and frees the engine."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.failure.conftest import OpenSite
from tests.failure.site import MODEL, number, until, values
from tests.support.scripted_triton import scripted_model

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

CANCEL_SECONDS = 2.0
MANY = 100


async def test_each_state_can_be_canceled_through_another_api_and_the_engine_is_freed(open_site: OpenSite) -> None:
    """B011, B042, B070."""
    async with open_site() as here:
        one, other = await here.api("api-1"), await here.api("api-2")
        worker = here.worker()
        await here.until_served(worker)
        here.engine.always(MODEL, "hang")
        running = await one.submit(MODEL, number(1))
        await here.engine.until(lambda: here.engine.in_flight == 1)
        scheduled = await one.submit(MODEL, number(2), run_at=datetime.now(UTC) + timedelta(hours=1))
        for job in (running, scheduled):
            started = time.monotonic()
            assert (await other.cancel(job)).status == "canceled"
            assert time.monotonic() - started < CANCEL_SECONDS
            assert (await one.get(job)).status == "canceled"
        await here.engine.until(lambda: here.engine.in_flight == 0, CANCEL_SECONDS)
        assert here.engine.cancellations == 1
        worker.kill()
        queued = await one.submit(MODEL, number(3))
        assert (await other.cancel(queued)).status == "canceled"
        for job in (running, scheduled, queued):  # and again: an end stands
            assert (await other.cancel(job)).status == "canceled"


async def test_a_batch_goes_on_while_somebody_wants_it(open_site: OpenSite) -> None:
    """B042: the others of the batch get their answers, the canceled one's is dropped."""
    async with open_site() as here:
        client = await here.api()
        worker = here.worker("first")
        await here.until_served(worker)
        worker.kill()
        here.engine.always(MODEL, "slow:3")
        jobs = [await client.submit(MODEL, number(n)) for n in range(3)]
        await here.until_served(here.worker("second"))
        await until(client, jobs, "in_progress")
        assert (await client.cancel(jobs[1])).status == "canceled"
        done = [await client.wait(job, 20) for job in jobs]
        assert [job.status for job in done] == ["succeeded", "canceled", "succeeded"]
        assert (values(done[0]), values(done[2])) == ([0], [2])
        assert here.engine.cancellations == 0
        assert (await client.get(jobs[1])).raw == done[1].raw


async def test_a_hundred_running_jobs_are_canceled_in_the_engine_as_well(open_site: OpenSite) -> None:
    """B042."""
    model = scripted_model(MODEL, max_batch_size=0, instances=MANY)
    async with open_site([model]) as here:
        client = await here.api()
        await here.until_served(here.worker())
        here.engine.always(MODEL, "hang")
        jobs = [await client.submit(MODEL, number(n)) for n in range(MANY)]
        await here.engine.until(lambda: here.engine.in_flight == MANY, 30)
        await asyncio.gather(*(client.cancel(job) for job in jobs))
        await here.engine.until(lambda: here.engine.in_flight == 0, CANCEL_SECONDS + 3)
        assert here.engine.cancellations == MANY
        here.engine.always(MODEL, "ok")
        assert values(await client.wait(await client.submit(MODEL, number(5)), 10)) == [5]
