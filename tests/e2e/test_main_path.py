"""From an upload to an answer, with everything real: photos, tensors, and what the engine saw of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from inferq.client import AsyncClient, Job, RequestRefused
from tests.e2e.deployment import Deployment
from tests.support.engine_http import EngineHttp
from tests.support.eventually import eventually
from tests.support.photos import PHOTOS, Upload, mixed_photos

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server]

PHOTO_COUNT = 200
CLASSIFIER = "efficientnet_lite0"
BEST = {"coffee": {"espresso"}, "chelsea": {"tiger cat", "Egyptian cat", "tabby"}, "rocket": {"missile", "projectile"}}
WIDTHS = (1, 7, 150_528)


def classes(job: Job) -> list[dict[str, Any]]:
    assert job.output is not None
    found: list[dict[str, Any]] = job.output["probabilities"]
    return found


async def classify_at_once(clients: Sequence[AsyncClient], uploads: Sequence[Upload]) -> list[Job]:
    """Post all photos before any answer is asked for, spread over the apis; the jobs in order."""
    turns = [clients[index % len(clients)] for index in range(len(uploads))]
    posts = (client.submit(CLASSIFIER, upload.data) for client, upload in zip(turns, uploads, strict=True))
    jobs = await asyncio.gather(*posts)
    return await asyncio.gather(*(client.wait(job, 90) for client, job in zip(turns, jobs, strict=True)))


@pytest.mark.slow
async def test_200_photos_at_once_get_the_answers_they_get_alone_in_fewer_engine_calls(deployment: Deployment) -> None:
    uploads = mixed_photos(PHOTO_COUNT)
    async with EngineHttp(deployment.triton.http_address) as engine:
        before = await engine.calls(CLASSIFIER)
        together = await classify_at_once(deployment.clients, uploads)
        after = await engine.calls(CLASSIFIER)
    assert {job.status for job in together} == {"succeeded"}
    assert sum(job.batch_size > 1 for job in together) > PHOTO_COUNT / 2
    assert after[1] - before[1] < PHOTO_COUNT, "the engine ran as often as there were photos"
    for index, upload in enumerate(uploads):
        alone = await deployment.client.wait(await deployment.client.submit(CLASSIFIER, upload.data), 30)
        assert alone.batch_size == 1
        assert_same_answer(classes(together[index]), classes(alone))


def assert_same_answer(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Scores may differ in the last digits, since other batch sizes add up in another order; nothing else may."""
    scores = {item["index"]: item["score"] for item in other}
    assert one[0]["label"] == other[0]["label"]
    assert [item["score"] for item in one] == pytest.approx([scores.get(item["index"], 0.0) for item in one], abs=1e-4)


async def test_every_photo_is_recognised(deployment: Deployment) -> None:
    jobs = await classify_at_once(deployment.clients, mixed_photos(len(PHOTOS), seed=5))
    for photo, job in zip(PHOTOS, jobs, strict=True):
        assert classes(job)[0]["label"] in BEST[photo]


async def test_raw_floats_come_back_bit_equal_alone_and_mixed_in_a_burst(deployment: Deployment) -> None:
    rng = np.random.default_rng(1)

    def tensor(width: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Any bits: subnormals, infinities and NaNs with all their payloads included."""
        return rng.integers(0, 2**32, width, dtype=np.uint32).view(np.float32)

    async def echo(array: np.ndarray[Any, Any], client: AsyncClient) -> bytes:
        job = await client.wait(await client.submit("identity", {"input": array}), 60)
        assert job.status == "succeeded"
        data: bytes = (await client.result(job))["output"].tobytes()
        return data

    for width in WIDTHS:
        array = tensor(width)
        assert await echo(array, deployment.client) == array.tobytes()
    burst = [tensor(width) for width in WIDTHS * 20]
    echoed = await asyncio.gather(*(echo(array, deployment.clients[i % 2]) for i, array in enumerate(burst)))
    assert echoed == [array.tobytes() for array in burst]


async def test_jobs_by_the_thousand_are_answered_in_order_and_made_once_however_often_they_are_sent(
    deployment: Deployment,
) -> None:
    """B007."""
    here, there = deployment.clients
    items = [
        {"input": np.array([number], np.uint32).view(np.float32)} for number in range(0x7FC00000, 0x7FC00000 + 1500)
    ]
    items[700] = {"nobody": np.zeros(1, np.float32)}
    entries = await here.submit_many("identity", items, priority="low", idempotency_key="many")
    again = await there.submit_many("identity", items, priority="low", idempotency_key="many")
    refused = entries[700]
    assert isinstance(refused, RequestRefused)
    assert refused.code == "unknown_input"
    jobs = [entry for entry in entries if isinstance(entry, Job)]
    assert [job.id for job in jobs] == [entry.id for entry in again if isinstance(entry, Job)]
    assert len(jobs) == len(items) - 1
    done = await there.wait_many(jobs, 90)
    assert {job.status for job in done} == {"succeeded"}
    for place in (0, 999, 1498):
        item = items[place if place < 700 else place + 1]
        assert (await here.result(done[place]))["output"].tobytes() == item["input"].tobytes()


async def test_a_job_is_seen_waited_for_and_canceled_through_the_other_api(deployment: Deployment) -> None:
    """B070."""
    here, there = deployment.clients
    job = await here.submit("slow", {"delay_ms": np.array([400], dtype=np.int32)})
    assert (await there.get(job)).model == "slow"
    done = await there.wait(job, 20)
    assert done.status == "succeeded"
    assert (await there.result(job))["slept_ms"].tolist() == [400]
    assert job.id in [listed.id async for listed in there.list(model="slow")]


async def test_a_cancel_through_the_other_api_ends_a_running_job_and_frees_the_engine(deployment: Deployment) -> None:
    """B011, B070."""
    here, there = deployment.clients
    long = await here.submit("slow", {"delay_ms": np.array([60_000], dtype=np.int32)})

    async def is_running() -> bool:
        return (await here.get(long)).status == "in_progress"

    await eventually(is_running)
    waiting = asyncio.create_task(here.wait(long, 30))
    canceled = await there.cancel(long)
    assert (canceled.status, canceled.done) == ("canceled", True)
    assert (await waiting).status == "canceled"
    short = await here.submit("slow", {"delay_ms": np.array([1], dtype=np.int32)})
    assert (await here.wait(short, 10)).status == "succeeded", "the engine still sleeps for a job that nobody wants"


async def test_a_cancel_of_a_queued_job_is_at_once_and_final(deployment: Deployment) -> None:
    here, there = deployment.clients
    job = await here.submit(
        "identity", {"input": np.zeros(1, np.float32)}, run_at=datetime.now(UTC) + timedelta(hours=1)
    )
    assert (await there.get(job)).waiting_for == "schedule"
    assert (await there.cancel(job)).status == "canceled"
    assert (await here.cancel(job)).status == "canceled"
    assert (await here.wait(job, 5)).error is not None
