"""Options: the same names and ranges in a query, in form fields and in documents."""

import json
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest

from jobs.record import JobRequest, Priority
from tests.support.intake import NOW_MS, Gateway, document, field, multipart

pytestmark = pytest.mark.anyio

DATA = b"\0" * 12


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def every_form(gateway: Gateway, options: dict[str, Any]) -> list[JobRequest]:
    """The requests that these options make as query, as fields, and as members of documents."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    fields = [field(name, value.encode()) for name, value in texts.items()]
    body = document("fixed", "FP32", [3], [0, 0, 0], **options)
    return [
        (await gateway.accepted(params={"model": "fixed", **texts}, content=DATA)).request,
        (await gateway.accepted(**multipart(field("model", b"fixed"), *fields, field("x", DATA, "f")))).request,
        (await gateway.accepted(json=body)).request,
        (
            await gateway.accepted(content=msgpack.packb(body), headers={"Content-Type": "application/x-msgpack"})
        ).request,
    ]


async def test_every_option_means_the_same_in_every_form(gateway: Gateway) -> None:
    options = {
        "model_version": "2",
        "priority": "low",
        "queue_ttl_seconds": 60.5,
        "timeout_seconds": 0.25,
        "max_failures": 1,
        "run_at": 1_760_000_600.5,
        "result_ttl_seconds": 10,
        "metadata": {"user": "zoë", "tags": [1, None, True, {"a": 0.5}]},
    }
    first, *others = await every_form(gateway, options)
    assert all(other == first for other in others)
    assert first.model_version == "2"
    assert first.priority is Priority.LOW
    assert (first.queue_ttl_ms, first.timeout_ms, first.max_failures) == (60_500, 250, 1)
    assert (first.run_at_ms, first.result_ttl_ms) == (1_760_000_600_500, 10_000)
    assert first.metadata == options["metadata"]


async def test_without_options_a_request_has_the_documented_defaults(gateway: Gateway) -> None:
    (request, *_) = await every_form(gateway, {})
    assert request.model_version == ""
    assert request.priority is Priority.NORMAL
    assert (request.queue_ttl_ms, request.timeout_ms, request.result_ttl_ms) == (3_600_000, 60_000, 86_400_000)
    assert (request.max_failures, request.run_at_ms, request.metadata) == (3, 0, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", "urgent"),
        ("priority", 1),
        ("priority", ["high"]),
        ("queue_ttl_seconds", 0),
        ("queue_ttl_seconds", -1),
        ("queue_ttl_seconds", 2_592_001),
        ("queue_ttl_seconds", "1e3"),
        ("queue_ttl_seconds", "nan"),
        ("queue_ttl_seconds", "inf"),
        ("queue_ttl_seconds", " 5"),
        ("queue_ttl_seconds", "1_000"),
        ("queue_ttl_seconds", "٣"),
        ("queue_ttl_seconds", ""),
        ("queue_ttl_seconds", True),
        ("queue_ttl_seconds", 1e300),
        ("timeout_seconds", 86_401),
        ("timeout_seconds", 0.0001),
        ("result_ttl_seconds", "9" * 400),
        ("max_failures", 0),
        ("max_failures", 101),
        ("max_failures", 1.5),
        ("max_failures", "many"),
        ("run_at", "tomorrow"),
        ("run_at", "2025-10-09"),
        ("run_at", "2025-10-09T10:00:00"),
        ("run_at", "2025-02-30T10:00:00Z"),
        ("run_at", "2025-10-09T25:00:00Z"),
        ("run_at", "9999-12-31T23:59:59Z"),
        ("run_at", 1_760_000_000 + 31 * 86_400),
        ("run_at", -1),
        ("run_at", [1]),
        ("metadata", "x"),
        ("metadata", [1]),
        ("metadata", {"a": "x" * 4100}),
        ("model_version", 1.5),
        ("model_version", ["1"]),
        ("webhook", "https://example.com/hook"),
        ("webhook_events", ["done"]),
    ],
)
async def test_an_option_out_of_its_range_is_refused_by_its_name(gateway: Gateway, name: str, value: Any) -> None:
    problem = await gateway.bad_tensor("fixed", "FP32", [3], [0, 0, 0], **{name: value})
    assert (problem["status"], problem["code"], problem["option"]) == (422, "invalid_option", name)
    assert f"`{name}`" in problem["detail"]
    if isinstance(value, str):
        problem = await gateway.refused(params={"model": "fixed", name: value}, content=DATA)
        assert (problem["code"], problem["option"]) == ("invalid_option", name)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"raw", {"a": b"raw"}, {"a": float("nan")}])
async def test_what_only_msgpack_can_say_is_no_metadata_and_no_duration(gateway: Gateway, value: Any) -> None:
    for name in ("metadata", "timeout_seconds"):
        body = msgpack.packb(document("fixed", "FP32", [3], [0, 0, 0], **{name: value}))
        problem = await gateway.refused(content=body, headers={"Content-Type": "application/msgpack"})
        assert (problem["code"], problem["option"]) == ("invalid_option", name)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-10-09T10:00:00Z", datetime(2025, 10, 9, 10, tzinfo=UTC)),
        ("2025-10-09t10:00:00.250z", datetime(2025, 10, 9, 10, 0, 0, 250_000, tzinfo=UTC)),
        ("2025-10-09T12:00:00+02:00", datetime(2025, 10, 9, 10, tzinfo=UTC)),
        ("1760004000", datetime(2025, 10, 9, 10, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
async def test_run_at_is_an_instant_with_its_time_zone_or_unix_seconds(
    gateway: Gateway, text: str, instant: datetime
) -> None:
    submission = await gateway.accepted(params={"model": "fixed", "run_at": text}, content=DATA)
    assert submission.request.run_at_ms == instant.timestamp() * 1000


async def test_run_at_may_be_thirty_days_ahead(gateway: Gateway) -> None:
    latest = NOW_MS // 1000 + 30 * 86_400
    await gateway.accepted(params={"model": "fixed", "run_at": str(latest)}, content=DATA)
    assert await gateway.refused(params={"model": "fixed", "run_at": str(latest + 1)}, content=DATA)


@pytest.mark.parametrize("version", ["2", 2])
async def test_a_version_may_be_a_text_or_a_number(gateway: Gateway, version: Any) -> None:
    assert (await gateway.tensor("fixed", "FP32", [3], [0, 0, 0], model_version=version)).request.model_version == "2"


async def test_a_job_is_judged_by_the_version_that_it_asks_for(gateway: Gateway) -> None:
    """An input that fits another version only would be accepted, and fail."""
    for version in ("", "2"):
        await gateway.tensor("versioned", "FP32", [3], [0, 0, 0], model_version=version)
        problem = await gateway.bad_tensor("versioned", "INT64", [2], [0, 0], model_version=version)
        assert problem["detail"].endswith("got INT64 [2]. Version 1 of it would take this.")
    problem = await gateway.bad_tensor("versioned", "INT64", [3], [0, 0, 0])
    assert problem["detail"].endswith("got INT64 [3].")
    submission = await gateway.tensor("versioned", "INT64", [2, 2], [[0, 0], [0, 0]], model_version="1")
    assert (submission.request.rows, submission.request.model_version) == (2, "1")
    problem = await gateway.bad_tensor("versioned", "FP32", [3], [0, 0, 0], model_version="1")
    assert (problem["code"], problem["expected"]) == ("invalid_tensor", {"datatype": "INT64", "shape": [2]})
    assert problem["detail"].endswith("got FP32 [3]. Version 2 of it would take this.")
    problem = await gateway.bad_tensor("versioned", "INT64", [3, 2], [[0, 0]] * 3, model_version="1")
    assert "takes 1 to 2 at a time" in problem["detail"]
    problem = await gateway.bad_tensor("versioned", "INT64", [2], [0, 0], model_version="3")
    assert problem["known_versions"] == ["1", "2"]


@pytest.mark.parametrize("version", ["3", 3, "", "../1", "1 "])
async def test_a_version_that_the_model_lacks_is_404_with_those_that_it_has(gateway: Gateway, version: Any) -> None:
    if version == "":
        await gateway.tensor("fixed", "FP32", [3], [0, 0, 0], model_version=version)
        return
    problem = await gateway.bad_tensor("fixed", "FP32", [3], [0, 0, 0], model_version=version)
    assert (problem["status"], problem["code"], problem["known_versions"]) == (404, "unknown_version", ["1", "2"])


async def test_a_misspelt_option_is_refused_with_the_known_ones(gateway: Gateway) -> None:
    problem = await gateway.refused(params={"model": "fixed", "timeout": "5"}, content=DATA)
    assert (problem["status"], problem["code"], problem["option"]) == (422, "invalid_option", "timeout")
    assert "timeout_seconds" in problem["detail"]


@pytest.mark.parametrize("query", ["model=fixed&model=fixed", "model=fixed&priority=low&priority=low"])
async def test_an_option_twice_in_a_query_is_refused(gateway: Gateway, query: str) -> None:
    problem = await gateway.refused(params=query, content=DATA)
    assert problem["code"] == "invalid_option"


@pytest.mark.parametrize("query", [b"model=%ff", b"%ff", b"&".join([b"a=1"] * 200)])
async def test_a_query_that_is_no_utf8_or_endless_is_refused(gateway: Gateway, query: bytes) -> None:
    answer = await gateway.raw_query(query, DATA)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
