"""Promises 1, 2 and 3: processes that are killed cost no job, no result and no other job."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from inferq.client import Job
from inferq.stack.process import Process
from inferq.stack.triton import MODELS
from tests.failure.conftest import OpenSite
from tests.failure.fragile_worker import DEADLY
from tests.failure.site import API, MODEL, assert_all_succeed, frozen, holds, load, number, until, values
from tests.support.eventually import eventually
from tests.support.scripted_triton import scripted_model
from tests.support.servers import StartEngine
from workers.triton.shared import FOLDER

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

REDELIVERY_SECONDS = 20
KILLS = 8
FRAGILE_WORKER = (str(Path(__file__).with_name("fragile_worker.py")),)

LETHAL, KILLING = "lethal", 666
LETHAL_MODEL = """
import os, signal
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "x").as_numpy()) for request in requests]

    def answer(self, x):
        if 666 in x:
            os.kill(os.getppid(), signal.SIGKILL)  # the server itself
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", x)])
"""
LETHAL_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""

FILES = scripted_model(
    "files",
    inputs=[("x", "BYTES", (1,))],
    outputs=[("y", "BYTES", (1,))],
    parameter='{"inputs": {"x": {"kind": "bytes"}}}',
)


def write_lethal_model(repository: Path) -> None:
    """A model that echoes numbers and, given one of them, kills the engine."""
    (repository / LETHAL / "1").mkdir(parents=True)
    (repository / LETHAL / "config.pbtxt").write_text(LETHAL_CONFIG)
    (repository / LETHAL / "1" / "model.py").write_text(LETHAL_MODEL)


@asynccontextmanager
async def replaced(processes: list[Process]) -> AsyncIterator[None]:
    """Whatever of these dies is started again, as a supervisor does."""

    async def watch() -> None:
        while True:
            for process in processes:
                process.start()  # does nothing to one that runs
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    try:
        yield
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def test_api_and_worker_killed_at_any_instant_under_load_lose_no_accepted_job(open_site: OpenSite) -> None:
    """B001, B061: every 202 ends as one result that never changes, and none of the kills is counted against a job."""
    async with open_site(lease_seconds=2) as here:
        rng = random.Random(5)
        here.engine.always(MODEL, "slow:0.02")
        workers = [here.worker(f"worker-{n}") for n in (1, 2)]
        clients = [await here.api("api-1"), await here.api("api-2")]
        await here.until_served(*workers)
        apis = [here.processes["api-1"], here.processes["api-2"]]
        async with replaced([*workers, *apis]):
            async with load(clients, per_second=100) as jobs:
                for _ in range(KILLS):
                    await asyncio.sleep(rng.uniform(0.3, 1.2))
                    rng.choice([*workers, *apis]).kill()
            done = await assert_all_succeed(clients[0], jobs)
        assert len(done) > KILLS * 10


async def test_the_jobs_of_a_killed_worker_run_again_within_20_seconds_whatever_their_timeout(
    open_site: OpenSite,
) -> None:
    """B001: with the product's own settings. B016: the dead worker is not taken for a live one meanwhile."""
    async with open_site() as here:
        client = await here.api()
        victim = here.worker("victim")
        await here.until_served(victim)
        here.engine.always(MODEL, "hang")
        jobs = [await client.submit(MODEL, number(n), timeout_seconds=3600) for n in range(3)]
        await until(client, jobs[:1], "in_progress")
        here.engine.always(MODEL, "ok")
        second = here.worker("second")
        await here.until_served(second)
        victim.kill()
        killed_at = time.monotonic()

        async def looks_dead() -> bool:
            return victim.pid not in {beat.pid for beat in await here.workers()}

        done = await asyncio.gather(*(client.wait(job, REDELIVERY_SECONDS) for job in jobs))
        assert time.monotonic() - killed_at < REDELIVERY_SECONDS
        assert [(job.status, job.raw["failures"]) for job in done] == [("succeeded", 0)] * 3
        assert done[0].raw["attempt"] == 2
        await eventually(looks_dead, 15)


async def test_jobs_whose_inputs_a_killed_worker_shared_with_the_engine_get_the_right_answers(
    open_site: OpenSite, start_engine: StartEngine, tmp_path: Path
) -> None:
    """B001: it dies while the engine, which stands still, has yet to read them."""
    shutil.copytree(MODELS / "identity", tmp_path / "repository" / "identity")
    engine = start_engine([tmp_path / "repository"])

    async def regions() -> set[str]:
        async with httpx.AsyncClient(trust_env=False) as http:
            status = (await http.get(f"http://{engine.http_address}/v2/systemsharedmemory/status")).json()
        return {region["name"] for region in status}

    def row(n: int) -> dict[str, Any]:
        return {"input": np.arange(40_000, dtype=np.float32) * 7 + n}

    async with open_site(lease_seconds=2, engine=engine.grpc_address) as here:
        client = await here.api()
        victim = here.worker("victim")
        await here.until_served(victim, model="identity")

        async def is_shared() -> bool:
            await client.wait(await client.submit("identity", row(0)), REDELIVERY_SECONDS)
            return bool(await regions())

        await eventually(is_shared)
        (left,) = await regions()
        with frozen(-engine.process.pid):  # the whole group
            jobs = [await client.submit("identity", row(n)) for n in range(1, 9)]
            await holds(lambda: row(1)["input"].tobytes() in (FOLDER / left).read_bytes(), 20)
            victim.kill()
        second = here.worker("second")
        await here.until_served(second, model="identity")
        for n, job in enumerate(jobs, 1):
            done = await client.wait(job, REDELIVERY_SECONDS)
            assert (done.status, done.raw["failures"]) == ("succeeded", 0)
            assert np.array_equal((await client.result(job))["output"], row(n)["input"])
        second.stop()
        (FOLDER / left).unlink(missing_ok=True)  # whoever needed memory next has done so


async def test_a_worker_that_wakes_up_late_changes_nothing(open_site: OpenSite) -> None:
    """V01: it was frozen longer than its lease, another one ran the job again, and then both settle."""
    async with open_site(lease_seconds=2) as here:
        client = await here.api()
        late = here.worker("late")
        await here.until_served(late)
        here.engine.say(MODEL, "slow:0.5")
        job = await client.submit(MODEL, number(1))
        await here.engine.until(lambda: here.engine.in_flight == 1)
        with frozen(late.pid):
            second = here.worker("second")
            await here.until_served(second)
            done = await client.wait(job, REDELIVERY_SECONDS)
            assert (done.status, done.raw["attempt"]) == ("succeeded", 2)
        await holds(lambda: "came too late" in here.log("late") or "not ours any more" in here.log("late"), 20)
        assert (await client.get(job)).raw == done.raw
        assert late.is_running


async def test_an_input_that_kills_the_process_preparing_it_fails_alone_after_three_redeliveries(
    open_site: OpenSite,
) -> None:
    """A decoder's segmentation fault takes the process along, not the fleet; what ran beside it runs again."""
    async with open_site([FILES, scripted_model(MODEL)], lease_seconds=1) as here:
        client = await here.api()
        workers = [here.worker(f"worker-{n}", FRAGILE_WORKER) for n in (1, 2)]
        await here.until_served(*workers, model="files")
        async with replaced(workers), load([client], per_second=20) as others:
            neighbours = [await client.submit("files", b"harmless %d" % n) for n in range(4)]
            deadly = await client.submit("files", DEADLY)
            neighbours += [await client.submit("files", b"harmless %d" % n) for n in range(4, 8)]
            failed = await client.wait(deadly, 90)
            assert (failed.status, failed.raw["attempt"]) == ("failed", 4)
            assert failed.error is not None
            assert (failed.error.code, failed.raw["failures"]) == ("worker_lost", 0)
        for job in neighbours:
            assert (await client.wait(job, 30)).succeeded
        await assert_all_succeed(client, others)


async def test_a_long_job_of_another_model_survives_an_input_that_kills_workers(open_site: OpenSite) -> None:
    """With a single worker the innocent dies beside the culprit, but never often enough to be taken for one."""
    async with open_site([FILES, scripted_model(MODEL)], lease_seconds=2) as here:
        client = await here.api()
        worker = here.worker("worker", FRAGILE_WORKER)
        await here.until_served(worker, model="files")
        here.engine.always(MODEL, "slow:8")  # longer than a worker lives beside the other job
        async with replaced([worker]):
            innocent = await client.submit(MODEL, number(7))
            await until(client, [innocent], "in_progress")
            deadly = await client.submit("files", DEADLY)
            failed = await client.wait(deadly, 60)
            assert failed.error is not None
            assert failed.error.code == "worker_lost"
            done = await client.wait(innocent, 60)
            assert (done.status, values(done)) == ("succeeded", [7])


async def test_an_input_that_kills_the_engine_fails_alone_and_the_queue_behind_it_flows_on(
    open_site: OpenSite, start_engine: StartEngine, tmp_path: Path
) -> None:
    """B001, B074: it stands at the head of the queue whenever the engine is back, until it has killed four of them."""
    repository = tmp_path / "repository"
    write_lethal_model(repository)
    engine = start_engine([repository])
    async with open_site([], lease_seconds=2, engine=engine.grpc_address) as here:
        client = await here.api()
        workers = [here.worker(f"worker-{n}") for n in (1, 2)]
        await here.until_served(*workers, model=LETHAL)

        async def submit(value: int) -> Job:
            return await client.submit(LETHAL, {"x": np.array([value], np.int32)})

        async with replaced([engine.process]):
            before = [await submit(n) for n in range(20)]
            lethal = await submit(KILLING)
            after = [await submit(n) for n in range(20)]
            failed = await client.wait(lethal, 90)
            assert (failed.status, failed.raw["attempt"]) == ("failed", 4)
            assert failed.error is not None
            assert failed.error.code == "engine_error"
            assert "died 4 times" in failed.error.detail
            for number_sent, job in enumerate([*before, *after]):
                done = await client.wait(job, 30)
                assert (done.status, done.raw["failures"]) == ("succeeded", 0)
                assert done.output is not None
                assert done.output["y"]["data"] == [number_sent % 20]
        assert all(worker.is_running for worker in workers)


async def test_a_connection_handed_to_the_survivor_is_answered_while_an_api_is_killed(open_site: OpenSite) -> None:
    """Two api processes accept on one socket, as `inferq up` starts them: killing one refuses nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with open_site() as here:
            fd = listening.fileno()
            port = listening.getsockname()[1]
            for name in ("api-1", "api-2"):
                here.process(name, API, listen_fd=fd)
            worker = here.worker()
            await here.until_served(worker)
            here.urls.append(f"http://127.0.0.1:{port}")
            async with here.raw() as raw:
                assert (await raw.get("/health/live")).status_code == 200
            here.processes["api-1"].kill()
            for _ in range(20):
                async with here.raw() as raw:
                    assert (await raw.get("/health/live")).status_code == 200
