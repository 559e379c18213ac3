"""T: Quotas, T: Redis, T: Body size: who is refused when the service, or a tenant's share of it, is full."""

from __future__ import annotations

import asyncio
import re
from time import monotonic
from typing import Any

import httpx
import pytest

from api.budget import Budget, too_many_uploads
from api.pressure import Limit, Pressure, seconds_until_room
from api.problems import Problem
from api.protocol import Doorman
from jobs.load import MEMORY_SHARE, Load
from jobs.settings import StoreSettings
from jobs.store import Standing
from tests.api.harness import Api, Backend, floats, identity_spec, running_api, until
from tests.threats.tenants import Tenants, a_document, open_tenants, with_key

pytestmark = pytest.mark.anyio

FULL = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
ROWS = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
QUOTA = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def _refused(answer: httpx.Response, status: int, code: str, kind: str) -> dict[str, Any]:
    """The problem, which has what a client must know to come back in time."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"], problem["type"]) == (status, code, kind)
    assert 1 <= int(answer.headers["retry-after"]) <= 300
    assert ";r=0;t=" in answer.headers["ratelimit"]
    assert ";q=" in answer.headers["ratelimit-policy"]
    return problem


@pytest.mark.parametrize(
    ("limit", "policy"),
    [({"tenant_max_open": 1}, "jobs"), ({"tenant_max_open_bytes": 400}, "bytes"), ({"tenant_rate": 0.1}, "rate")],
)
async def test_a_tenant_at_its_quota_is_told_so_and_others_go_on(
    backend: Backend, limit: dict[str, Any], policy: str
) -> None:
    async with running_api(backend, models=[identity_spec()], **limit) as api, open_tenants(api) as tenants:
        await tenants.submit(tenants.alice)
        problem = _refused(await tenants.alice.post("/jobs", json=a_document()), 429, "quota_exceeded", QUOTA)
        assert problem["violated-policies"] == [policy]
        await tenants.submit(tenants.bob)


@pytest.mark.parametrize("limit", ["max_queued", "max_open"])
async def test_a_full_service_is_told_from_a_quota(backend: Backend, limit: str) -> None:
    async with running_api(backend, models=[identity_spec()], **{limit: 1}) as api:
        await api.submit()
        _refused(await api.post(), 503, "queue_full", FULL)
        batch = await api.client.post("/jobs/batch", json=[a_document()])
        assert batch.json()["jobs"][0]["problem"]["code"] == "queue_full"
        triton = await api.client.post("/v2/models/identity/infer", json={"inputs": [ROWS]})
        assert (triton.status_code, triton.json()["code"]) == (503, "queue_full")
        await api.hand.succeed(await api.hand.take(), floats(1.0))
        assert (await api.post()).status_code == 202


async def test_what_is_left_of_a_quota_stands_in_the_answer(tenants: Tenants) -> None:
    answer = await tenants.alice.post("/jobs", json=a_document())
    assert answer.headers["ratelimit-policy"].startswith('"jobs";q=500000, "bytes";q=')
    assert answer.headers["ratelimit"].startswith('"jobs";r=')


def _left(answer: httpx.Response) -> dict[str, int]:
    """What the headers say is left, by policy."""
    return {name: int(left) for name, left in re.findall(r'"(\w+)";r=(\d+);t=', answer.headers["ratelimit"])}


async def test_what_is_left_is_true_at_each_job(backend: Backend) -> None:
    """However fast they come, through whichever process, and within a batch."""
    async with (
        running_api(backend, models=[identity_spec()], tenant_max_open=8) as api,
        running_api(backend, models=[identity_spec()], tenant_max_open=8) as other,
        open_tenants(api) as tenants,
        with_key(other, tenants.tokens["alice"]) as elsewhere,
    ):
        await other.services.gate.refresh()
        first, *more = [await client.post("/jobs", json=a_document()) for client in (tenants.alice, elsewhere) * 3]
        assert [_left(answer)["jobs"] for answer in (first, *more)] == [7, 6, 5, 4, 3, 2]
        each = _left(first)["bytes"] - _left(more[0])["bytes"]
        assert 0 < each == _left(more[0])["bytes"] - _left(more[1])["bytes"]
        batch = await tenants.alice.post("/jobs/batch", json=[a_document()] * 5)
        assert (batch.status_code, batch.json()["accepted"], _left(batch)["jobs"]) == (207, 2, 0)
        assert _left(await tenants.alice.post("/jobs", json={"model": "nothing"}))["jobs"] == 0
        await api.hand.succeed(await api.hand.take(), floats(1.0))
        assert _left(await tenants.alice.post("/jobs", json=a_document()))["jobs"] == 0


async def test_what_is_left_of_a_rate_is_told_with_its_window(backend: Backend) -> None:
    async with running_api(backend, models=[identity_spec()], tenant_rate=0.2) as api, open_tenants(api) as tenants:
        answers = [await tenants.alice.post("/jobs", json=a_document()) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [202, 202, 429]
        assert [_left(answer)["rate"] for answer in answers] == [1, 0, 0]
        assert {answer.headers["ratelimit-policy"].split(", ")[-1] for answer in answers} == {'"rate";q=2;w=10'}
        assert _left(await tenants.bob.post("/jobs", json=a_document()))["rate"] == 1
        api.services.pressure.note(Load(), monotonic())
        assert _left(await tenants.alice.post("/jobs", json={"model": "nothing"}))["rate"] == 0


def test_a_rates_burst_comes_back_with_time() -> None:
    pressure = _pressure((0.0, Load()), tenant_rate=2.0)
    assert '"rate";r=20;t=1' in pressure.standing("a", 0.0)["RateLimit"]
    pressure.learn("a", Standing(1, 10, 5_000), 1.0)
    assert '"rate";r=10;' in pressure.standing("a", 1.0)["RateLimit"]
    pressure.note(Load(), 2.0)
    assert '"rate";r=12;' in pressure.standing("a", 2.0)["RateLimit"]
    assert '"rate";r=20;' in pressure.standing("a", 60.0)["RateLimit"]


def test_a_look_that_began_before_a_submit_does_not_undo_what_that_has_told() -> None:
    pressure = _pressure((0.0, Load()), tenant_max_open=10)
    pressure.learn("a", Standing(3, 10, 0), 2.0)
    pressure.note(Load(), 1.0)
    assert pressure.standing("a", 3.0)["RateLimit"].startswith('"jobs";r=7;')
    pressure.note(Load(sums={"jobs:tenant:a": 1}), 2.5)
    assert pressure.standing("a", 3.0)["RateLimit"].startswith('"jobs";r=9;')


async def test_every_answer_to_what_makes_jobs_tells_what_is_left(tenants: Tenants) -> None:
    """Whether it is stored or refused, for whatever reason; and nothing else does."""
    infer = "/v2/models/identity/infer"
    answers = [
        await tenants.alice.post("/jobs/batch", json=[a_document(), {"model": "nothing"}]),
        await tenants.alice.post(infer, json={"inputs": [ROWS]}, headers={"Prefer": "respond-async"}),
        await tenants.alice.post("/jobs", json={"model": "nothing"}),
        await tenants.alice.post("/jobs/batch", content=b"{", headers={"Content-Type": "application/json"}),
        await tenants.alice.post(infer, content=b"{"),
        await tenants.alice.post("/v2/models/identity/versions/1/infer", content=b"{"),
    ]
    assert [answer.status_code for answer in answers] == [207, 202, 404, 400, 400, 400]
    for answer in answers:
        assert answer.headers["ratelimit"].startswith('"jobs";r='), answer.text
        assert answer.headers["ratelimit-policy"].startswith('"jobs";q=')
    for answer in (await tenants.alice.get("/jobs"), await tenants.nobody.post("/jobs")):
        assert "ratelimit" not in answer.headers


async def test_a_job_is_refused_before_redis_is_full(api: Api) -> None:
    """Before the body is read, and only while it lasts; polls are answered."""
    job_id = await api.submit()
    most = 100_000_000
    api.services.pressure.note(Load(used_memory_bytes=int(most * MEMORY_SHARE), max_memory_bytes=most), 1e9)
    answer = await api.post()
    _refused(answer, 503, "store_full", FULL)
    assert answer.headers["connection"] == "close"
    assert (await api.get(f"/jobs/{job_id}")).status_code == 200
    api.services.pressure.note(Load(used_memory_bytes=most // 2, max_memory_bytes=most), 1e9 + 1)
    assert (await api.post()).status_code == 202


def _pressure(*loads: tuple[float, Load], **settings: Any) -> Pressure:
    pressure = Pressure(None, StoreSettings(_env_prefix="NOWHERE_", **settings))  # type: ignore[arg-type]  # not asked
    for now, load in loads:
        pressure.note(load, now)
    return pressure


def test_no_body_is_read_for_which_there_was_no_memory_a_moment_ago() -> None:
    pressure = _pressure((0.0, Load(used_memory_bytes=79, max_memory_bytes=100)))
    pressure.refuse_if_full()
    pressure.note(Load(used_memory_bytes=80, max_memory_bytes=100), 1.0)
    with pytest.raises(Problem, match="store_full"):
        pressure.refuse_if_full()


def test_the_pause_follows_the_measured_drain_rate() -> None:
    """A hundredth of the limit is awaited, at the rate at which jobs have ended in the last half minute."""
    pressure = _pressure(
        (0.0, Load(sums={"ended": 0})), (10.0, Load(sums={"ended": 100})), (40.0, Load(sums={"ended": 1600}))
    )
    assert pressure._rate("ended") == 50
    assert seconds_until_room(Limit("queue", 10_000, 0, 50)) == 2
    assert seconds_until_room(Limit("queue", 1_000_000, 0, 1)) == 300
    assert seconds_until_room(Limit("queue", 10, 0, 1_000)) == 1
    assert seconds_until_room(Limit("queue", 10, 0, 0)) == 30
    assert seconds_until_room(Limit("rate", 5, 0, 0.5)) == 2


def test_a_process_holds_a_bounded_number_of_uploaded_bytes() -> None:
    """B059, B075: what was announced and not sent counts for nothing; one alone may always go on."""
    budget = Budget(100, too_many_uploads)
    with budget.open() as large:
        large.add(1000)
        with pytest.raises(Problem, match="too_many_uploads") as refused, budget.open() as other:
            other.add(1)
        assert refused.value.close
    assert budget.used_bytes == 0
    with budget.open() as first, budget.open() as second:
        first.add(50)
        second.add(50)
    assert budget.used_bytes == 0


async def test_uploads_beyond_the_budget_are_refused_and_the_rest_is_stored(backend: Backend) -> None:
    async with running_api(backend, models=[identity_spec()], upload_bytes=2000) as api:
        body = b'{"model": "identity", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}'
        gate = asyncio.Event()

        async def slow() -> Any:
            yield body + b" " * 1500
            await gate.wait()

        headers = {"Content-Type": "application/json"}
        first = asyncio.create_task(api.client.post("/jobs", content=slow(), headers=headers))
        await until(lambda: api.services.uploads.used_bytes > 0)
        refused = await api.client.post("/jobs", content=body + b" " * 1500, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_uploads")
        gate.set()
        assert (await first).status_code == 202
        assert api.services.uploads.used_bytes == 0


def test_connections_are_capped_in_all_and_by_address() -> None:
    """T: Body speed: per-IP cap."""
    doorman = Doorman(5, 2, ["10.0.0.0/8"])
    assert [doorman.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert [doorman.enter("10.1.2.3") for _ in range(4)] == [True, True, True, False]
    doorman.leave("192.0.2.1")
    assert doorman.enter("192.0.2.2")
    for address in ("192.0.2.1", "192.0.2.2", "10.1.2.3", "10.1.2.3", "10.1.2.3"):
        doorman.leave(address)
    assert doorman.connections == len(doorman._by_address) == 0
