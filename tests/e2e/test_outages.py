"""Parts die, stop and come back while jobs flow: each accepted job ends as it should, and nothing else goes down."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from inferq.client import Job
from inferq.stack.process import Process, Program
from tests.e2e.deployment import Deployment
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server, pytest.mark.slow]

REDELIVERY_SECONDS = 20
"""What the product promises for `kill -9` of a worker."""
ENGINE_OUTAGE_SECONDS = 15
STORE_OUTAGE_SECONDS = 3


@asynccontextmanager
async def load(deployment: Deployment, per_second: float = 20) -> AsyncIterator[list[Job]]:
    """Small jobs, one after the other in turns through the apis, for as long as the context lasts."""
    jobs: list[Job] = []

    async def keep_submitting() -> None:
        while True:
            client = deployment.clients[len(jobs) % len(deployment.clients)]
            jobs.append(await client.submit("identity", {"input": np.array([len(jobs)], dtype=np.float32)}))
            await asyncio.sleep(1 / per_second)

    submitting = asyncio.create_task(keep_submitting())
    try:
        yield jobs
        assert not submitting.done(), "the load broke off"
    finally:
        submitting.cancel()
        await asyncio.wait([submitting])


async def assert_all_finish(deployment: Deployment, jobs: list[Job]) -> None:
    """Each job succeeds with its own value, without a failure counted, and says the same when asked again."""
    ends_at = time.monotonic() + 30
    for number, job in enumerate(jobs):
        done = await deployment.client.wait(job, ends_at - time.monotonic())
        assert (done.status, done.raw["failures"]) == ("succeeded", 0)
        assert done.output == {"output": {"datatype": "FP32", "shape": [1], "data": [float(number)]}}
    again = [await deployment.client.get(job) for job in jobs[:: max(1, len(jobs) // 20)]]
    assert all(job.succeeded for job in again)
    assert await deployment.leased("identity") == []


def deaths(deployment: Deployment) -> list[str]:
    """What the stacks reported of processes that ended."""
    return [event for event in deployment.events if "ended" in event]


async def test_jobs_of_a_worker_killed_in_mid_batch_are_done_by_another_within_20_seconds(
    deployment: Deployment, tmp_path: Path
) -> None:
    """B001."""
    others = [worker.pid for worker in await deployment.workers()]
    victim = slow_worker(deployment, tmp_path / "victim.log")
    victim.start()
    try:
        await eventually(lambda: _is_serving(deployment, victim.pid))
        with paused(others):  # so that the victim takes all jobs
            delay = {"delay_ms": np.array([1000], dtype=np.int32)}
            jobs = [await deployment.client.submit("slow", delay, timeout_seconds=3600) for _ in range(6)]
            await eventually(lambda: _is_in_progress(deployment, jobs[:2]), 10)
            victim.kill()
            killed_at = time.monotonic()
        done = await asyncio.gather(*(deployment.clients[1].wait(job, REDELIVERY_SECONDS) for job in jobs))
    finally:
        victim.kill()
    assert time.monotonic() - killed_at < REDELIVERY_SECONDS
    assert {(job.status, job.raw["failures"]) for job in done} == {("succeeded", 0)}
    assert sum(job.raw["attempt"] == 2 for job in done) >= 2
    for job in done:
        assert (await deployment.client.result(job))["slept_ms"].tolist() == [1000]
        assert (await deployment.client.get(job)).raw == job.raw, "the result has changed"


def slow_worker(deployment: Deployment, log_path: Path) -> Process:
    """A worker for the slow model that nobody supervises."""
    settings = {
        "INFERQ_REDIS_URL": deployment.store.url,
        "INFERQ_ENGINE": deployment.triton.grpc_address,
        "INFERQ_MODELS": "slow",
    }
    command = (sys.executable, "-P", "-m", "workers", "inference")
    return Process(Program("victim", command, {**os.environ, **settings}, log_path))


@contextmanager
def paused(pids: Iterable[int]) -> Iterator[None]:
    """These processes stand still inside the context."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def test_no_job_fails_while_the_engine_is_away_for_15_seconds(deployment: Deployment) -> None:
    """B008, B052."""
    before = deaths(deployment)
    async with load(deployment) as jobs:
        await asyncio.sleep(1)  # so that calls are in flight when it goes
        async with deployment.without(deployment.triton):
            stopped_at = time.monotonic()
            await eventually(lambda: _waits_for(deployment, jobs[-1], "engine"), 10)
            assert not (await deployment.client.model("identity"))["ready"]
            await asyncio.sleep(ENGINE_OUTAGE_SECONDS - (time.monotonic() - stopped_at))
            assert await _waits_for(deployment, jobs[-1], "engine")
        await deployment.settle()
    assert len(jobs) > ENGINE_OUTAGE_SECONDS * 5, "submitting went on meanwhile"
    await assert_all_finish(deployment, jobs)
    assert deaths(deployment) == before


async def test_a_restart_of_the_store_is_answered_with_503_and_costs_no_job_and_no_process(
    deployment: Deployment,
) -> None:
    """B008."""
    before = deaths(deployment)
    pids = {worker.pid for worker in await deployment.workers()}
    async with load(deployment, per_second=50) as jobs:
        await asyncio.sleep(1)
        async with deployment.without(deployment.store):
            stopped_at = time.monotonic()
            for raw in deployment.raw:
                await assert_says_try_later(raw, jobs[0])
            await asyncio.sleep(STORE_OUTAGE_SECONDS - (time.monotonic() - stopped_at))
        accepted = len(jobs)
        await eventually(lambda: _has_grown(jobs, accepted + 20), 10)
        await deployment.settle()
    await assert_all_finish(deployment, jobs)
    assert deaths(deployment) == before
    assert {worker.pid for worker in await deployment.workers()} == pids


async def test_a_process_that_dies_is_started_again(deployment: Deployment) -> None:
    """The supervised worker of one stack is killed; the stack brings it back, and meanwhile jobs are served."""
    before = {worker.pid for worker in await deployment.workers()}
    os.kill(min(before), signal.SIGKILL)
    job = await deployment.client.submit("identity", {"input": np.zeros(3, np.float32)})
    assert (await deployment.client.wait(job, 20)).succeeded

    async def is_back() -> bool:
        pids = {worker.pid for worker in await deployment.workers()}
        return len(pids - before) == 1 and len(pids & before) == 1

    await eventually(is_back, 30)
    await deployment.settle()
    assert any("worker-1 restarted" in event for event in deployment.events)


async def assert_says_try_later(raw: httpx.AsyncClient, job: Job) -> None:
    """Everything that needs the store is answered 503 with a Retry-After; the process itself is alive."""

    async def is_not_ready() -> bool:
        status: int = (await raw.get("/health/ready")).status_code
        return status == 503

    tensor = {"name": "input", "datatype": "FP32", "shape": [1], "data": [1]}
    for answer in (
        await raw.post("/jobs", json={"model": "identity", "inputs": [tensor]}),
        await raw.get(f"/jobs/{job.id}"),
        await raw.get(f"/jobs/{job.id}?wait=5"),
        await raw.get("/jobs"),
        await raw.post(f"/jobs/{job.id}/cancel"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert int(answer.headers["Retry-After"]) > 0
    await eventually(is_not_ready, 10)
    assert (await raw.get("/health/live")).status_code == 200


async def _waits_for(deployment: Deployment, job: Job, reason: str) -> bool:
    found = await deployment.client.get(job)
    return (found.status, found.waiting_for) == ("queued", reason)


async def _is_serving(deployment: Deployment, pid: int) -> bool:
    return any(worker.pid == pid and "slow" in worker.lanes for worker in await deployment.workers())


async def _is_in_progress(deployment: Deployment, jobs: list[Job]) -> bool:
    return all([(await deployment.client.get(job)).status == "in_progress" for job in jobs])


async def _has_grown(jobs: list[Job], size: int) -> bool:
    return len(jobs) >= size
