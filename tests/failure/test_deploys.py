"""Promise 5: stopping and replacing processes costs no job anything, and versions live side by side."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from inferq.stack.process import Process
from jobs import codec, keys
from jobs.connection import Call
from tests.failure.conftest import OpenSite
from tests.failure.site import MODEL, assert_all_succeed, holds, load, number, until, values

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

DEPLOYS = 6
DRAIN_SECONDS = 1
EXIT_SLACK_SECONDS = 5


def _terminate(process: Process) -> None:
    os.kill(process.pid, signal.SIGTERM)


async def _has_left(process: Process, timeout_seconds: float) -> None:
    await holds(lambda: not process.is_running, timeout_seconds)
    assert process.exit_status == 0


async def test_six_deploys_in_the_middle_of_a_job_count_nothing_against_it(open_site: OpenSite) -> None:
    """B003: six SIGTERMs, five failures allowed, and the job succeeds with none counted."""
    async with open_site(drain_seconds=DRAIN_SECONDS) as here:
        client = await here.api()
        worker = here.worker("worker-0")
        await here.until_served(worker)
        here.engine.always(MODEL, "hang")
        job = await client.submit(MODEL, number(3), max_failures=5, timeout_seconds=600)
        for deploy in range(DEPLOYS):
            await here.engine.until(lambda: here.engine.in_flight == 1, 20)
            _terminate(worker)
            await _has_left(worker, DRAIN_SECONDS + EXIT_SLACK_SECONDS)
            found = await client.get(job)
            assert (found.status, found.raw["failures"], found.raw["attempt"]) == ("queued", 0, deploy + 1)
            if deploy == DEPLOYS - 1:
                here.engine.always(MODEL, "ok")
            worker = here.worker(f"worker-{deploy + 1}")
        done = await client.wait(job, 30)
        assert (done.status, done.raw["failures"], values(done)) == ("succeeded", 0, [3])


async def test_a_worker_told_to_stop_finishes_what_it_holds_and_takes_nothing_more(open_site: OpenSite) -> None:
    async with open_site(drain_seconds=30) as here:
        client = await here.api()
        first = here.worker("first")
        await here.until_served(first)
        here.engine.always(MODEL, "slow:2")
        held = await client.submit(MODEL, number(1))
        await until(client, [held], "in_progress")
        _terminate(first)
        await holds(lambda: "draining" in here.log("first"), 5)
        later = await client.submit(MODEL, number(2))
        done = await client.wait(held, 20)
        assert (done.status, done.raw["attempt"], values(done)) == ("succeeded", 1, [1])
        await _has_left(first, EXIT_SLACK_SECONDS)
        assert (await client.get(later)).status == "queued"
        second = here.worker("second")
        await here.until_served(second)
        assert values(await client.wait(later, 20)) == [2]


async def test_replacing_every_process_under_load_is_seen_by_nobody(open_site: OpenSite) -> None:
    """B064: SIGTERM to each worker and api in turn while jobs flow; an api finishes its requests first."""
    async with open_site(drain_seconds=10) as here:
        here.engine.always(MODEL, "slow:0.05")
        workers = [here.worker(f"worker-{n}") for n in (1, 2)]
        clients = [await here.api("api-1"), await here.api("api-2")]
        await here.until_served(*workers)
        async with load(clients, per_second=50) as jobs:
            for name in ("worker-1", "api-1", "worker-2", "api-2"):
                process = here.processes[name]
                await asyncio.sleep(0.5)
                started = time.monotonic()
                _terminate(process)
                await _has_left(process, 15)
                assert time.monotonic() - started < 15
                process.start()
            await here.until_served(*workers)
        done = await assert_all_succeed(clients[0], jobs)
        assert {job.raw["attempt"] for job in done} == {1}


async def test_a_record_of_a_newer_version_is_left_alone_while_older_workers_go_on(open_site: OpenSite) -> None:
    """B021."""
    async with open_site() as here:
        client = await here.api()
        worker = here.worker("first")
        await here.until_served(worker)
        worker.kill()
        newer = await client.submit(MODEL, number(0), metadata={"number": 0})
        await _set_version(here.store.connection.run, newer.id, codec.VERSION + 1)
        jobs = [await client.submit(MODEL, number(n), metadata={"number": n}) for n in range(1, 6)]
        worker = here.worker("second")
        await here.until_served(worker)
        await assert_all_succeed(client, jobs)
        (state,) = await here.store.connection.run(Call("HGET", keys.job_key(newer.id), "state"))
        assert state == b"queued"
        assert worker.is_running
        await _set_version(here.store.connection.run, newer.id, codec.VERSION)  # somebody who reads it has come
        await assert_all_succeed(client, [newer])


async def _set_version(run: object, job_id: str, version: int) -> None:
    assert callable(run)
    await run(Call("HSET", keys.job_key(job_id), "v", version))
