"""`POST /jobs/batch`: many jobs in one request, each stored or refused by itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.api.harness import MODEL, Api, Backend, fp32_input, identity_spec, running_api

pytestmark = pytest.mark.anyio

ITEMS = 1000
BAD = 10


def document(*values: float, **options: Any) -> dict[str, Any]:
    return {"model": MODEL, "inputs": [fp32_input(values or (1.0,))], **options}


def bad(number: int) -> dict[str, Any]:
    """One of ten ways in which a job can't work."""
    wrong: list[dict[str, Any]] = [
        {"model": "nobody", "inputs": []},
        {"model": MODEL, "inputs": []},
        {"model": MODEL, "inputs": [fp32_input([1.0], name="z")]},
        {"model": MODEL, "inputs": [fp32_input([1.0]), fp32_input([1.0])]},
        {"model": MODEL, "inputs": [{**fp32_input([1.0]), "datatype": "INT64"}]},
        {"model": MODEL, "inputs": [{**fp32_input([1.0]), "shape": [2]}]},
        document(priority="urgent"),
        document(nonsense=1),
        document(outputs=[{"name": "nobody"}]),
        {"inputs": [fp32_input([1.0])]},
    ]
    return wrong[number % len(wrong)]


async def test_a_thousand_items_with_ten_bad_ones_make_990_jobs_and_ten_clear_refusals(api: Api) -> None:
    places = {index * 97 + 5: index for index in range(BAD)}
    items = [bad(places[at]) if at in places else document(at) for at in range(ITEMS)]
    response = await api.client.post("/jobs/batch", json=items)
    assert response.status_code == 207
    body = response.json()
    assert (body["accepted"], body["refused"]) == (ITEMS - BAD, BAD)
    refused = {at: entry for at, entry in enumerate(body["jobs"]) if "problem" in entry}
    assert set(refused) == set(places)
    codes = [refused[at]["problem"]["code"] for at in sorted(refused)]
    assert codes == [
        *("unknown_model", "missing_input", "unknown_input", "duplicate_input", "invalid_tensor", "invalid_tensor"),
        *("invalid_option", "invalid_option", "unknown_output", "invalid_option"),
    ]
    assert all(len(entry["problem"]["detail"]) > 20 for entry in refused.values())
    claimed = [job for _ in range(10) for job in await api.hand.claim(100)]
    assert {job.lease.job_id for job in claimed} == {entry["job"]["id"] for entry in body["jobs"] if "job" in entry}
    assert len(claimed) == ITEMS - BAD


async def test_ndjson_is_a_batch_with_a_job_on_each_line(api: Api) -> None:
    lines = [json.dumps(document(1.0)), "", "{not json", json.dumps(document(2.0))]
    response = await api.client.post(
        "/jobs/batch", content="\n".join(lines), headers={"Content-Type": "application/x-ndjson"}
    )
    assert response.status_code == 207
    assert [entry["status"] for entry in response.json()["jobs"]] == [202, 400, 202]


async def test_a_batch_without_a_bad_one_is_202(api: Api) -> None:
    response = await api.client.post("/jobs/batch?priority=high", json=[document(), document()])
    assert response.status_code == 202
    assert "retry-after" not in response.headers
    for entry in response.json()["jobs"]:
        assert (await api.job(entry["job"]["id"]))["priority"] == "high"


@pytest.mark.parametrize("body", ["[]", "{}", "nonsense", "1"])
async def test_what_is_no_batch_is_refused_as_a_whole(api: Api, body: str) -> None:
    response = await api.client.post("/jobs/batch", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_body")


async def test_a_batch_that_is_sent_again_with_its_key_gives_the_same_jobs(api: Api) -> None:
    """B007."""
    items, headers = [document(1.0), document(2.0)], {"Idempotency-Key": "nightly"}
    first = (await api.client.post("/jobs/batch", json=items, headers=headers)).json()
    again = await api.client.post("/jobs/batch", json=items, headers=headers)
    assert again.status_code == 202
    assert [entry["replayed"] for entry in again.json()["jobs"]] == [True, True]
    assert [entry["job"]["id"] for entry in again.json()["jobs"]] == [entry["job"]["id"] for entry in first["jobs"]]
    changed = await api.client.post("/jobs/batch", json=[document(1.0), document(3.0)], headers=headers)
    assert [entry["status"] for entry in changed.json()["jobs"]] == [202, 422]


async def test_a_thousand_posts_with_one_key_at_once_make_one_job(api: Api) -> None:
    """B007."""
    headers = {"Idempotency-Key": "the one"}
    responses = await asyncio.gather(*(api.post(1.0, headers=headers) for _ in range(1000)))
    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert sum("idempotent-replayed" not in response.headers for response in responses) == 1
    assert len(await api.hand.claim(10)) == 1


async def test_a_full_queue_takes_what_it_has_room_for_and_says_so_of_the_rest(backend: Backend) -> None:
    async with running_api(backend, models=[identity_spec()], max_queued=3) as api:
        response = await api.client.post("/jobs/batch", json=[document(at) for at in range(5)])
        assert response.status_code == 207
        assert [entry["status"] for entry in response.json()["jobs"]] == [202, 202, 202, 503, 503]
        assert response.json()["jobs"][4]["problem"]["code"] == "queue_full"
        assert int(response.headers["retry-after"]) > 0


async def test_redis_away_is_503_for_the_batch_and_costs_one_deadline(start_valkey: Any) -> None:
    server = start_valkey()
    async with running_api(Backend(server.url), models=[identity_spec()], redis_timeout_seconds=1) as api:
        await asyncio.to_thread(server.stop)
        items = [document(at) for at in range(ITEMS)]
        response = await asyncio.wait_for(api.client.post("/jobs/batch", json=items), 10)
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert response.headers["retry-after"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_the_path_is_no_jobs_id(api: Api, method: str) -> None:
    response = await api.client.request(method, "/jobs/batch")
    assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")
