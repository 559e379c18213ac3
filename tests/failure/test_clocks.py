"""Promise 9: a worker whose clock is an hour off harms nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.failure.conftest import OpenSite
from tests.failure.site import MODEL, WORKER, assert_all_succeed, load, number, until
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

SKEWED_WORKER = str(Path(__file__).with_name("skewed_worker.py"))
HOUR_SECONDS = 3600


@pytest.mark.parametrize("skew_seconds", [HOUR_SECONDS, -HOUR_SECONDS], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_an_hour_off_harms_nothing(open_site: OpenSite, skew_seconds: int) -> None:
    """Leases of others are not reaped, nothing expires or starts early, and its own jobs are redelivered in time."""
    async with open_site(lease_seconds=3) as here:
        client = await here.api()
        right = here.worker("right", WORKER)
        wrong = here.worker("wrong", (SKEWED_WORKER, str(skew_seconds)))
        await here.until_served(right, wrong)
        here.engine.always(MODEL, "slow:0.05")
        later = await client.submit(MODEL, number(0), run_at=datetime.now(UTC) + timedelta(seconds=HOUR_SECONDS / 2))
        async with load([client], per_second=40, queue_ttl_seconds=60) as jobs:

            async def is_enough() -> bool:
                return len(jobs) >= 80

            await eventually(is_enough, 30)
        done = await assert_all_succeed(client, jobs)
        assert {job.raw["attempt"] for job in done} == {1}
        now = datetime.now(UTC)
        assert all(abs(datetime.fromisoformat(job.raw["finished_at"]) - now) < timedelta(minutes=1) for job in done)
        assert (await client.get(later)).status == "queued"
        assert len(await here.workers()) == 2

        right.kill()  # what the wrong one holds alone, and loses
        here.engine.always(MODEL, "hang")
        held = await client.submit(MODEL, number(7), metadata={"number": 7})
        await until(client, [held], "in_progress")
        here.engine.always(MODEL, "ok")
        right.start()
        await here.until_served(right)
        wrong.kill()
        await assert_all_succeed(client, [held], within_seconds=20)
