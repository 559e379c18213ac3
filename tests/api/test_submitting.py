"""Submitting: what is answered when, and that nothing is answered before it is stored."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from inferq.stack.ports import free_port
from jobs.record import LOCAL_TENANT
from jobs.registry import LaneState
from tests.api.harness import (
    MODEL,
    Api,
    Backend,
    Hand,
    a_worker,
    floats,
    fp32_input,
    identity_spec,
    running_api,
    until,
)

pytestmark = pytest.mark.anyio


async def finish_next(hand: Hand) -> None:
    """Play a worker for one job."""
    while not (claimed := await hand.claim()):
        await hand.store.wait_for_work(MODEL, 5)
    await hand.succeed(claimed[0], floats(7))


async def test_a_submitted_job_is_stored_with_its_input(api: Api) -> None:
    job_id = await api.submit(1.5, 2.5)
    record = await api.record(job_id)
    assert record.request.inputs[0].shape == (2,)
    assert (await api.store.load([job_id]))[0] == floats(1.5, 2.5).data


async def test_the_first_answer_tells_the_time_that_the_record_has(backend: Backend) -> None:
    """All times are Redis' own; its clock is an hour off here."""
    hour_ms = 3_600_000
    async with running_api(
        backend, models=[identity_spec()], clock_ms=lambda: time.time_ns() // 1_000_000 - hour_ms
    ) as api:
        document = {"model": MODEL, "inputs": [fp32_input([1.0])]}
        call = {"inputs": [fp32_input([1.0]) | {"shape": [1, 1]}]}
        jobs = [
            (await api.post()).json(),
            (await api.client.post("/jobs/batch", json=[document])).json()["jobs"][0]["job"],
            (await api.client.post(f"/v2/models/{MODEL}/infer", json=call, headers={"Prefer": "respond-async"})).json(),
        ]
        for job in jobs:
            assert (await api.get(f"/jobs/{job['id']}")).json()["created_at"] == job["created_at"]


async def test_jobs_that_arrive_together_are_stored_each_by_itself(api: Api) -> None:
    good = [{"model": MODEL, "inputs": [fp32_input([i])], "metadata": {"n": i}} for i in range(100)]
    bad: dict[str, Any] = {"model": MODEL, "inputs": [fp32_input([1], name="nope")]}
    responses = await asyncio.gather(*(api.client.post("/jobs", json=each) for each in [*good, bad, bad]))
    assert [response.status_code for response in responses] == [202] * 100 + [422] * 2
    for number, response in enumerate(responses[:100]):
        found = await api.store.get(response.json()["id"], LOCAL_TENANT)
        assert found is not None
        assert found.job.request.metadata == {"n": number}
    assert len((await api.get("/jobs?limit=200")).json()["jobs"]) == 100


async def test_prefer_wait_answers_201_with_the_output_of_a_job_that_is_done_in_time(api: Api) -> None:
    hand = asyncio.create_task(finish_next(api.hand))
    response = await api.post(headers={"Prefer": "wait=10"})
    await hand
    assert response.status_code == 201
    assert response.headers["preference-applied"] == "wait=10"
    assert response.headers["location"] == response.json()["urls"]["self"]
    assert response.json()["output"]["y"]["data"] == [7.0]
    assert "retry-after" not in response.headers


async def test_prefer_wait_answers_202_with_the_job_as_it_is_when_the_time_is_over(api: Api) -> None:
    await api.beat(a_worker(LaneState.READY))
    response = await api.post(headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    assert "preference-applied" not in response.headers
    assert response.json()["queue"] == {"position": 1, "depth": 1, "waiting_for": "backlog"}


@pytest.mark.parametrize(
    "prefer", ["wait", "wait=", "wait=x", "wait=-1", "wait=0", "wait=1.5", "await=5", "respond-async", "wait=5x"]
)
async def test_a_preference_that_makes_no_sense_is_ignored(api: Api, prefer: str) -> None:
    response = await asyncio.wait_for(api.post(headers={"Prefer": prefer}), 5)
    assert response.status_code == 202


@pytest.mark.parametrize(
    "prefer", ["respond-async, wait=30", 'wait="30"', "WAIT=30;x=y", "handling=lenient; wait=3000"]
)
async def test_a_preference_is_found_among_others_and_capped(api: Api, prefer: str) -> None:
    hand = asyncio.create_task(finish_next(api.hand))
    response = await api.post(headers={"Prefer": prefer})
    await hand
    assert response.status_code == 201
    assert response.headers["preference-applied"] in ("wait=30", "wait=60")


async def test_the_same_key_and_body_give_the_first_job_again(api: Api) -> None:
    """B007."""
    key = {"Idempotency-Key": "order-17"}
    first = await api.post(1, 2, headers=key)
    again = await api.post(1, 2, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    assert again.json()["queue"]["depth"] == 1
    await api.hand.succeed(await api.hand.take(), floats(1))
    done = await api.post(1, 2, headers=key)
    assert (done.status_code, done.json()["status"]) == (200, "succeeded")
    assert done.json()["output"]["y"]["data"] == [1.0]


async def test_the_same_key_with_another_body_is_refused_and_names_the_job(api: Api) -> None:
    """B007."""
    key = {"Idempotency-Key": "order-17"}
    first = await api.post(1, 2, headers=key)
    other = await api.post(1, 3, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert other.json()["job_id"] == first.json()["id"]
    assert len((await api.get("/jobs")).json()["jobs"]) == 1


async def test_a_replayed_job_can_be_waited_for(api: Api) -> None:
    key = {"Idempotency-Key": "order-17"}
    first = await api.post(headers=key)
    waiting = asyncio.create_task(api.post(headers=key | {"Prefer": "wait=30"}))
    await until(lambda: len(api.services.waiters) == 1)
    await finish_next(api.hand)
    response = await asyncio.wait_for(waiting, 10)
    assert (response.status_code, response.json()["id"]) == (200, first.json()["id"])
    assert response.headers["idempotent-replayed"] == "true"


async def test_a_full_queue_is_a_503_and_leaves_nothing_behind(backend: Backend) -> None:
    """B075."""
    async with running_api(backend, models=[identity_spec()], max_queued=1) as api:
        await api.submit()
        before = {key async for key in api.store.connection.client.scan_iter()}
        response = await api.post()
        assert (response.status_code, response.json()["code"]) == (503, "queue_full")
        assert int(response.headers["retry-after"]) > 0
        assert {key async for key in api.store.connection.client.scan_iter()} == before
        await api.hand.take()
        assert (await api.post()).status_code == 202


async def test_an_unknown_model_is_a_404_that_lists_the_known_ones(api: Api) -> None:
    response = await api.post(model="resnet")
    assert (response.status_code, response.json()["code"]) == (404, "unknown_model")
    assert response.json()["models"] == [MODEL]


async def test_before_any_worker_registered_a_model_posting_is_a_503(backend: Backend) -> None:
    async with running_api(backend) as api:
        response = await api.post()
        assert (response.status_code, response.json()["code"]) == (503, "no_models_yet")
        assert int(response.headers["retry-after"]) > 0
        await api.registry.publish_models([identity_spec()])
        assert (await api.post()).status_code == 202


async def test_a_model_is_accepted_from_the_moment_of_its_registration(api: Api) -> None:
    await api.registry.publish_models([identity_spec("resnet")])
    assert (await api.post(model="resnet")).status_code == 202


async def test_a_model_stays_accepted_while_workers_are_away(api: Api) -> None:
    await api.beat(a_worker(LaneState.READY))
    await api.registry.leave("w-1")
    await api.services.catalog.refresh()
    response = await api.post()
    assert (response.status_code, response.json()["queue"]["waiting_for"]) == (202, "no_worker")


async def test_a_large_payload_goes_its_own_way_and_holds_nobody_up(real_backend: Backend) -> None:
    async with running_api(real_backend, models=[identity_spec()]) as api:
        large = b"\0" * 4_000_000
        posts = [
            api.client.post(f"/jobs?model={MODEL}", content=body, headers={"content-type": "application/x-npy"})
            for body in (npy(large), npy(b"\0" * 64))
        ]
        responses = await asyncio.gather(*posts)
        assert [response.status_code for response in responses] == [202, 202], responses[0].text
        loaded = await api.store.load([response.json()["id"] for response in responses])
        assert [len(payload or b"") for payload in loaded] == [4_000_000, 64]


def npy(data: bytes) -> bytes:
    """An FP32 vector of these bytes as an `.npy` file."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(data) // 4},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


async def test_a_redis_that_may_drop_jobs_is_refused_until_it_is_mended(start_valkey: Any) -> None:
    """B023."""
    server = start_valkey()
    backend = Backend(server.url)
    async with running_api(backend, models=[identity_spec()]) as api:
        client = api.store.connection.client
        await client.config_set("maxmemory-policy", "allkeys-lru")
        api.services.probe.look_again()
        await until(lambda: api.services.probe.fault is not None)
        response = await api.post()
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        ready = await api.get("/health/ready")
        assert ready.status_code == 503
        assert "maxmemory-policy" in ready.json()["reasons"][0]
        await client.config_set("maxmemory-policy", "noeviction")
        assert await api.services.probe.check()
        assert (await api.post()).status_code == 202


async def test_a_redis_without_room_is_a_503_and_heals_alone(start_valkey: Any) -> None:
    """B022."""
    server = start_valkey()
    async with running_api(Backend(server.url), models=[identity_spec()]) as api:
        client = api.store.connection.client
        job_id = await api.submit()
        await client.config_set("maxmemory", "1")
        refused = await asyncio.gather(api.post(), api.post())
        assert {(response.status_code, response.json()["code"]) for response in refused} == {(503, "store_full")}
        assert (await api.job(job_id))["status"] == "queued"
        await client.config_set("maxmemory", "0")
        assert (await api.post()).status_code == 202


async def test_a_redis_that_is_not_there_is_a_503_within_its_deadline() -> None:
    port = free_port()
    backend = Backend(f"redis://127.0.0.1:{port}/0")
    async with running_api(backend, redis_timeout_seconds=1) as api:
        for path in ("/jobs", f"/jobs/{'0' * 32}", f"/jobs/{'0' * 32}?wait=5", "/models/x"):
            response = await asyncio.wait_for(api.get(path), 5)
            assert (response.status_code, response.json()["code"]) == (503, "store_unavailable"), path
            assert int(response.headers["retry-after"]) > 0
            assert str(port) not in response.text
        assert (await api.post()).status_code == 503
        assert (await api.get("/health/live")).status_code == 200
        assert (await api.get("/health/ready")).status_code == 503
