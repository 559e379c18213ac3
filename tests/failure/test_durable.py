"""Promise 1, for Redis itself: what is on disk is there again, and what is not reads 404 and nothing else."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from inferq.client import NotFound
from inferq.stack import ValkeyServer
from tests.failure.site import MODEL, Site, assert_all_succeed, number, site
from tests.support.servers import StartValkey

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

ROUNDS = 3
JOBS = 40


async def _without_worker(here: Site) -> None:
    """The model is known, and nobody takes its jobs."""
    worker = here.worker()
    await here.until_served(worker)
    worker.kill()


async def test_a_durable_202_outlives_a_kill_of_valkey_right_after_it(
    start_valkey: StartValkey, tmp_path: Path
) -> None:
    server = start_valkey()
    async with site(server.url, tmp_path, durable=1) as here:
        client = await here.api()
        await _without_worker(here)
        jobs = []
        for n in range(ROUNDS):
            jobs.append(await client.submit(MODEL, number(n), metadata={"number": n}))
            server.process.kill()
            server.start()
            assert (await client.get(jobs[-1])).status == "queued"
        worker = here.worker()
        await here.until_served(worker)
        await assert_all_succeed(client, jobs)


async def test_what_a_crash_took_from_the_log_reads_404_and_all_the_rest_is_done(
    start_valkey: StartValkey, tmp_path: Path
) -> None:
    """A machine's crash takes the tail that was not on disk yet, in the middle of a word."""
    server = start_valkey()
    async with site(server.url, tmp_path) as here:
        client = await here.api()
        await _without_worker(here)
        kept = [await client.submit(MODEL, number(n), metadata={"number": n}) for n in range(JOBS)]
        size = _log(server).stat().st_size
        at_risk = [await client.submit(MODEL, number(n), metadata={"number": n}) for n in range(JOBS)]
        server.process.kill()
        with _log(server).open("r+b") as log:
            log.truncate(size + (_log(server).stat().st_size - size) // 2)
        server.start()
        found, lost = [], []
        for job in at_risk:
            try:
                found.append(await client.get(job))
            except NotFound:
                lost.append(job)
        assert found
        assert lost
        worker = here.worker()
        await here.until_served(worker)
        await assert_all_succeed(client, kept + found)
        async with here.raw() as raw:
            for job in lost:
                assert (await raw.get(f"/jobs/{job.id}")).status_code == httpx.codes.NOT_FOUND
            assert len((await raw.get("/jobs?limit=200")).json()["jobs"]) == len(kept + found)


def _log(server: ValkeyServer) -> Path:
    """The part of the append-only file that is being written."""
    (path,) = (server.data_dir / "appendonlydir").glob("*.incr.aof")
    return path
