"""Looking at jobs, canceling, deleting and listing them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest

from jobs import codec, keys
from jobs.errors import ErrorCode
from jobs.registry import LaneState
from jobs.state import State
from tests.api.harness import MODEL, Api, Backend, a_worker, classes, floats, identity_spec, running_api

pytestmark = pytest.mark.anyio

JOB_FIELDS = [
    *("id", "status", "done", "model", "model_version", "created_at", "run_at", "started_at", "finished_at"),
    *(
        "expires_at",
        "attempt",
        "failures",
        "priority",
        "queue",
        "output",
        "output_omitted",
        "error",
        "timings",
        "batch",
    ),
    *("webhook", "metadata", "urls"),
]
UNKNOWN_ID = "0" * 32
IN_AN_HOUR = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


async def test_a_new_job_is_shown_as_it_was_stored(api: Api) -> None:
    response = await api.post(1.0, 2.0, metadata={"camera": 7}, priority="high", model_version="2")
    assert response.status_code == 202
    shown = response.json()
    assert list(shown) == JOB_FIELDS
    assert response.headers["location"] == shown["urls"]["self"] == f"/jobs/{shown['id']}"
    assert keys.is_job_id(shown["id"])
    later = await api.job(shown["id"])
    assert list(later) == JOB_FIELDS
    moving = ("created_at", "queue")
    assert {k: v for k, v in later.items() if k not in moving} == {k: v for k, v in shown.items() if k not in moving}
    assert later["status"] == "queued"
    assert later["metadata"] == {"camera": 7}
    assert later["priority"] == "high"
    assert later["model_version"] == "2"
    assert later["queue"] == {"position": 1, "depth": 1, "waiting_for": "no_worker"}


async def test_a_finished_job_shows_output_times_and_batch(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), floats(1.5, float("nan")), classes("0.9:7:cat", "0.1:3"))
    shown = await api.job(job_id)
    assert shown["status"] == "succeeded"
    assert shown["done"] is True
    assert shown["output"] == {
        "y": {"datatype": "FP32", "shape": [2], "data": [1.5, None]},
        "label": [{"label": "cat", "index": 7, "score": 0.9}, {"label": None, "index": 3, "score": 0.1}],
    }
    assert shown["output_omitted"] is False
    assert shown["model_version"] == "2"
    assert shown["batch"] == {"size": 4, "id": "b-1"}
    timings = shown["timings"]
    assert (timings["prepare_seconds"], timings["batch_wait_seconds"], timings["inference_seconds"]) == (
        0.0015,
        0.00025,
        0.003,
    )
    assert timings["queue_seconds"] >= 0
    assert timings["total_seconds"] >= timings["queue_seconds"]
    assert shown["queue"] == {"position": None, "depth": None, "waiting_for": None}
    assert shown["error"] is None
    assert shown["created_at"] <= shown["started_at"] <= shown["finished_at"] < shown["expires_at"]
    assert shown["finished_at"].endswith("Z")


async def test_rows_of_classes_are_nested_lists(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), classes("0.9:0:a", "0.1:1:b", "0.8:1:b", "0.2:0:a", rows=2))
    rows = (await api.job(job_id))["output"]["label"]
    assert [[best["label"] for best in row] for row in rows] == [["a", "b"], ["b", "a"]]


async def test_a_failed_job_says_why_and_whether_trying_again_can_help(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.fail(await api.hand.take(), ErrorCode.MODEL_REJECTED, "The model wants other numbers.")
    shown = await api.job(job_id)
    assert shown["status"] == "failed"
    assert shown["error"] == {
        "code": "model_rejected",
        "title": "The model rejected the input",
        "detail": "The model wants other numbers.",
        "retryable": False,
    }
    assert shown["output"] is None


async def test_a_retried_job_shows_no_error_before_its_end(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.retry(await api.hand.take())
    shown = await api.job(job_id)
    assert (shown["status"], shown["failures"], shown["attempt"], shown["error"]) == ("queued", 1, 1, None)
    assert shown["batch"] is None
    assert shown["timings"]["inference_seconds"] is None


async def test_canceling_after_a_retry_shows_the_cancel_and_not_the_old_error(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.retry(await api.hand.take())
    response = await api.client.post(f"/jobs/{job_id}/cancel")
    assert response.status_code == 200
    assert response.json()["status"] == "canceled"
    assert response.json()["error"]["code"] == "canceled"


async def test_a_large_output_is_left_out_and_never_read_for_a_poll(api: Api) -> None:
    """B073: what a poll costs does not depend on the result."""
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), floats(*range(5000)))
    await api.store.connection.client.delete(keys.output_key(job_id, 1))  # a poll that read it would notice
    response = await api.get(f"/jobs/{job_id}")
    assert response.json()["output"] is None
    assert response.json()["output_omitted"] is True
    assert len(response.content) < 2000


async def test_an_output_that_turns_out_too_long_as_json_is_left_out(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), floats(*([0.123456789] * 1000)))
    shown = await api.job(job_id)
    assert (shown["output"], shown["output_omitted"]) == (None, True)
    assert (await api.get(shown["urls"]["result"])).status_code == 200


@pytest.mark.parametrize(
    "job_id",
    [
        UNKNOWN_ID,
        "0" * 31,
        "0" * 33,
        "A" * 32,
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "0" * 31 + "%0a",
        "%00" * 32,
        "0" * 32 + "%0d%0aX-Evil:1",
        "*",
        "%D9%A0" * 32,  # digits of another script
        "f" * 60_000,
    ],
    ids=lambda job_id: job_id[:40],
)
@pytest.mark.parametrize(
    ("method", "form"),
    [("GET", "/jobs/{}"), ("GET", "/jobs/{}/result"), ("POST", "/jobs/{}/cancel"), ("DELETE", "/jobs/{}")],
)
async def test_an_id_that_nobody_has_is_a_plain_404_whatever_its_form(
    api: Api, job_id: str, method: str, form: str
) -> None:
    """T: GET /jobs/{id}."""
    response = await api.client.request(method, form.format(job_id))
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] in ("unknown_job", "not_found")
    assert response.headers["cache-control"] == "no-store"
    assert len(response.content) < 500
    assert "X-Evil" not in response.headers


@pytest.mark.parametrize("settle", [True, False])
async def test_canceling_is_200_for_queued_and_ended_jobs_and_changes_no_end(api: Api, settle: bool) -> None:
    """B011."""
    job_id = await api.submit()
    if settle:
        await api.hand.succeed(await api.hand.take(), floats(1))
    for _ in range(2):
        response = await api.client.post(f"/jobs/{job_id}/cancel")
        assert response.status_code == 200
        assert response.json()["status"] == ("succeeded" if settle else "canceled")


async def test_canceling_a_running_job_is_202_and_what_its_worker_makes_is_dropped(api: Api) -> None:
    """B011."""
    job_id = await api.submit()
    claimed = await api.hand.take()
    response = await api.client.post(f"/jobs/{job_id}/cancel")
    assert response.status_code == 202
    with pytest.raises(AssertionError):
        await api.hand.succeed(claimed, floats(1))
    shown = await api.job(job_id)
    assert (shown["status"], shown["output"]) == ("canceled", None)


async def test_a_job_is_canceled_through_another_api_process(backend: Backend, api: Api) -> None:
    """B070."""
    async with running_api(backend) as other:
        job_id = await api.submit()
        assert (await other.job(job_id))["status"] == "queued"
        assert (await other.client.post(f"/jobs/{job_id}/cancel")).status_code == 200
        assert (await api.job(job_id))["status"] == "canceled"


async def test_deleting_leaves_nothing_behind(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), floats(1))
    response = await api.client.delete(f"/jobs/{job_id}")
    assert (response.status_code, response.content) == (204, b"")
    assert (await api.get(f"/jobs/{job_id}")).status_code == 404
    left = [key async for key in api.store.connection.client.scan_iter(f"*{job_id}*")]
    assert left == []
    assert (await api.client.delete(f"/jobs/{job_id}")).status_code == 404


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_job_that_is_not_done_is_deleted_only_by_force(api: Api, is_running: bool) -> None:
    job_id = await api.submit()
    if is_running:
        await api.hand.take()
    response = await api.client.delete(f"/jobs/{job_id}?force=false")
    assert (response.status_code, response.json()["code"]) == (409, "not_done")
    assert (await api.client.delete(f"/jobs/{job_id}?force=true")).status_code == 204
    assert (await api.get(f"/jobs/{job_id}")).status_code == 404


@pytest.mark.parametrize(
    ("prepare", "beats", "waits_for"),
    [
        ({}, [], "no_worker"),
        ({}, [a_worker(LaneState.READY, "another")], "no_worker"),
        ({}, [a_worker(LaneState.READY)], "backlog"),
        ({}, [a_worker(LaneState.ENGINE)], "engine"),
        ({}, [a_worker(LaneState.ENGINE), a_worker(LaneState.READY, worker_id="w-2")], "backlog"),
        ({"run_at": IN_AN_HOUR}, [a_worker(LaneState.READY)], "schedule"),
        ({"run_at": IN_AN_HOUR}, [], "schedule"),
    ],
)
async def test_a_queued_job_says_what_it_waits_for(
    api: Api, prepare: dict[str, Any], beats: list[Any], waits_for: str
) -> None:
    await api.beat(*beats)
    response = await api.post(**prepare)
    assert response.json()["queue"]["waiting_for"] == waits_for
    assert (await api.job(response.json()["id"]))["queue"]["waiting_for"] == waits_for


async def test_a_job_says_from_when_on_it_may_run(api: Api) -> None:
    instant = datetime.now(UTC).replace(microsecond=678_000) + timedelta(hours=1)
    in_utc = instant.isoformat().replace("000+00:00", "Z")
    elsewhere = instant.astimezone(timezone(timedelta(hours=5))).isoformat()
    for options, shown in (({"run_at": elsewhere}, in_utc), ({}, None)):
        stored = (await api.post(**options)).json()
        assert stored["run_at"] == shown
        assert (await api.job(stored["id"]))["run_at"] == shown
    assert [job["run_at"] for job in (await api.get("/jobs")).json()["jobs"]] == [None, in_utc]


@pytest.mark.parametrize(
    ("state", "waits_for"), [(LaneState.READY, "backoff"), (LaneState.ENGINE, "engine"), (None, "no_worker")]
)
async def test_a_job_in_backoff_says_so_unless_nobody_could_run_it_anyway(
    api: Api, state: LaneState | None, waits_for: str
) -> None:
    await api.beat(*([a_worker(state)] if state else []))
    job_id = await api.submit()
    await api.hand.retry(await api.hand.take(), delay_ms=60_000)
    shown = await api.job(job_id)
    assert shown["queue"] == {"position": None, "depth": 1, "waiting_for": waits_for}


async def test_positions_count_from_one_in_the_order_of_priority(api: Api) -> None:
    low, normal, high = [await api.submit(priority=priority) for priority in ("low", "normal", "high")]
    positions = [(await api.job(job_id))["queue"] for job_id in (high, normal, low)]
    assert [queue["position"] for queue in positions] == [1, 2, 3]
    assert {queue["depth"] for queue in positions} == {3}


async def test_a_job_past_its_queue_time_is_expired_when_it_is_looked_at(backend: Backend) -> None:
    now = [1_700_000_000_000]
    async with running_api(backend, clock_ms=lambda: now[0], models=[identity_spec()]) as api:
        job_id = await api.submit(queue_ttl_seconds=10)
        now[0] += 10_001
        shown = await api.job(job_id)
    assert (shown["status"], shown["error"]["code"], shown["error"]["retryable"]) == ("expired", "expired", True)


async def test_a_list_shows_the_newest_first_page_by_page(api: Api) -> None:
    submitted = [await api.submit() for _ in range(7)]
    seen: list[str] = []
    path: str | None = "/jobs?limit=3"
    pages = 0
    while path:
        response = await api.get(path)
        assert response.status_code == 200
        body = response.json()
        seen += [job["id"] for job in body["jobs"]]
        path = response.links["next"]["url"] if "next" in response.links else None
        assert (path is None) == (body["next_cursor"] is None)
        pages += 1
    assert len(seen) == len(set(seen)) == 7
    assert set(seen) == set(submitted)
    assert pages >= 3
    created = [(await api.record(job_id)).created_ms for job_id in seen]
    assert created == sorted(created, reverse=True)


async def test_a_list_has_no_outputs_and_can_be_filtered(api: Api) -> None:
    await api.registry.publish_models([identity_spec("other")])
    done = await api.submit()
    await api.hand.succeed(await api.hand.take(), floats(1))
    queued = await api.submit()
    elsewhere = await api.submit(model="other")
    everything = (await api.get("/jobs")).json()["jobs"]
    assert {job["id"] for job in everything} == {done, queued, elsewhere}
    assert "output" not in everything[0]
    assert set(everything[0]) == set(JOB_FIELDS) - {"queue", "output", "output_omitted"}
    by_status = (await api.get("/jobs?status=succeeded")).json()["jobs"]
    assert [job["id"] for job in by_status] == [done]
    by_both = (await api.get(f"/jobs?status=queued&model={MODEL}")).json()["jobs"]
    assert [job["id"] for job in by_both] == [queued]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("status=done", "status"),
        ("status=", "status"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=1.5", "limit"),
        ("limit=-1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=%D9%A1", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "A" * 5000, "cursor"),
    ],
)
async def test_a_list_refuses_what_it_does_not_understand(api: Api, query: str, parameter: str) -> None:
    response = await api.get(f"/jobs?{query}")
    assert response.status_code == 422
    assert response.json()["code"] == "invalid_parameter"
    assert response.json()["parameter"] == parameter


async def test_a_record_whose_input_has_expired_does_not_break_the_list(api: Api) -> None:
    """B019."""
    kept, broken = await api.submit(), await api.submit()
    await api.store.connection.client.delete(keys.input_key(broken))
    await api.damage(broken)
    response = await api.get("/jobs")
    assert response.status_code == 200
    assert [job["id"] for job in response.json()["jobs"]] == [kept]


async def test_a_record_of_a_newer_version_is_for_newer_processes_to_read(api: Api) -> None:
    """B021: during a roll-out an old process answers that another should be asked."""
    job_id = await api.submit()
    await api.damage(job_id, msgpack.packb([codec.VERSION + 1, {}]))
    response = await api.get(f"/jobs/{job_id}")
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")


@pytest.mark.parametrize("query", ["force=yes", "force=true&force=true"])
async def test_force_is_true_or_false(api: Api, query: str) -> None:
    response = await api.client.delete(f"/jobs/{await api.submit()}?{query}")
    assert response.status_code == 422


async def test_every_state_has_its_own_etag_and_is_unchanged_until_it_changes(api: Api) -> None:
    tags: list[str] = []
    job_id = await api.submit()

    async def look() -> None:
        first = await api.get(f"/jobs/{job_id}")
        tags.append(first.headers["etag"])
        again = await api.get(f"/jobs/{job_id}", headers={"If-None-Match": f'"other", {tags[-1]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tags[-1]
        changed = await api.get(f"/jobs/{job_id}", headers={"If-None-Match": '"other"'})
        assert changed.status_code == 200

    await look()
    claimed = await api.hand.take()
    await look()
    await api.hand.release(claimed)
    await look()
    await api.hand.retry(await api.hand.take())
    await look()
    await api.hand.succeed(await api.hand.take(), floats(1))
    await look()
    assert len(set(tags)) == 5


async def test_retry_after_is_there_until_the_job_is_done(api: Api) -> None:
    job_id = await api.submit()
    assert (await api.get(f"/jobs/{job_id}")).headers["retry-after"] == "1"
    await api.hand.succeed(await api.hand.take(), floats(1))
    assert "retry-after" not in (await api.get(f"/jobs/{job_id}")).headers


async def test_the_states_of_the_api_are_those_of_the_contract() -> None:
    assert [state.value for state in State] == [
        "queued",
        "in_progress",
        "succeeded",
        "failed",
        "canceled",
        "expired",
    ]


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("GET", "/jobs", ["status", "model", "limit", "cursor"]),
        ("GET", "/jobs/{id}", ["wait"]),
        ("DELETE", "/jobs/{id}", ["force"]),
        ("GET", "/jobs/{id}/result", ["output"]),
        ("GET", "/jobs/{id}/events", []),
        ("GET", "/jobs/{id}/deliveries", []),
        ("POST", "/jobs/{id}/cancel", []),
        ("POST", "/jobs/{id}/deliveries/redeliver", []),
        ("POST", "/deliveries/redeliver", ["since", "status"]),
        ("GET", "/models", []),
        ("GET", f"/models/{MODEL}", []),
    ],
)
async def test_a_query_parameter_that_a_path_does_not_take_is_refused_with_those_that_it_takes(
    api: Api, method: str, path: str, known: list[str]
) -> None:
    job_id = await api.submit()
    response = await api.client.request(method, path.format(id=job_id), params={"statsu": "queued"})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_parameter")
    assert (response.json()["parameter"], response.json()["known"]) == ("statsu", known)
    for name in [*known, "'statsu'"]:
        assert name in response.json()["detail"]
    assert (await api.job(job_id))["status"] == "queued"


async def test_the_document_says_what_each_reason_to_wait_means(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).json()["components"]["schemas"]
    (waiting_for,) = [
        schema["properties"]["queue"]["properties"]["waiting_for"]
        for schema in schemas.values()
        if "queue" in schema.get("properties", {})
    ]
    reasons = {reason for reason in waiting_for["enum"] if reason}
    assert reasons == set(re.findall("`([a-z_]+)`:", waiting_for["description"]))
