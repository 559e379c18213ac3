"""T: `GET /jobs/{id}`, T: List/cancel/replay, T: Idempotency-Key: nothing of one tenant is there for another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.app import create_app
from api.routes.facade import REST
from api.routes.guard import OPEN, scope_of
from jobs.apikeys import KeyScope
from jobs.connection import Connection
from jobs.store import JobStore
from tests.api.harness import Backend, api_settings, floats
from tests.threats.tenants import Tenants, a_document

pytestmark = pytest.mark.anyio

NO_JOB = "0" * 32
VALUES = {"name": "identity", "version": "1", "rest": "repository/models/identity/load"}


def _routes() -> Iterator[tuple[str, str]]:
    """Every method of every path of the application, whoever adds to it."""
    backend = Backend()
    settings = api_settings(backend)
    app = create_app(settings, JobStore(Connection(None, 1.0), settings))  # type: ignore[arg-type]  # never used
    for route in app.router.routes:
        for method in sorted(getattr(route, "methods", None) or ()):
            if method != "HEAD":
                yield method, getattr(route, "path", "")


def _filled(path: str, job_id: str) -> str:
    return path.replace("{rest:path}", "{rest}").format(**VALUES, job_id=job_id)


ROUTES = sorted(set(_routes()))
OF_A_JOB = [route for route in ROUTES if "{job_id}" in route[1]]
GUARDED = [route for route in ROUTES if route[1] not in OPEN]


def test_the_open_paths_are_few_and_tell_nothing_of_jobs() -> None:
    assert {path for _, path in ROUTES} >= OPEN - {"/openapi.json"}
    assert not [path for path in OPEN if "{job_id}" in path or "{name}" in path]


@pytest.mark.parametrize("route", GUARDED, ids=" ".join)
async def test_every_route_refuses_who_shows_no_key(tenants: Tenants, route: tuple[str, str]) -> None:
    method, path = route
    answer = await tenants.nobody.request(method, _filled(path, NO_JOB))
    assert answer.status_code == 401
    assert "www-authenticate" in answer.headers


@pytest.mark.parametrize("route", OF_A_JOB, ids=" ".join)
async def test_every_route_answers_for_anothers_job_as_for_one_that_does_not_exist(
    tenants: Tenants, route: tuple[str, str]
) -> None:
    method, path = route
    waiting = await tenants.submit(tenants.alice)
    ended = await tenants.submit(tenants.alice)
    for claimed in await tenants.api.hand.claim(2):
        if claimed.lease.job_id == ended:
            await tenants.api.hand.succeed(claimed, floats(1.0))
    for job_id in (waiting, ended):
        theirs = await tenants.bob.request(method, _filled(path, job_id))
        none = await tenants.bob.request(method, _filled(path, NO_JOB))
        assert theirs.status_code == none.status_code == 404
        assert _plain(theirs) == _plain(none)
        assert (await tenants.alice.get(f"/jobs/{job_id}")).status_code == 200


def _plain(answer: Any) -> Any:
    headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
    body = answer.json()
    body.pop("request_id", None)
    return headers, body


async def test_a_list_shows_the_callers_own_jobs(tenants: Tenants) -> None:
    theirs, own = await tenants.submit(tenants.alice), await tenants.submit(tenants.bob)
    for client, expected in ((tenants.alice, theirs), (tenants.bob, own)):
        page = (await client.get("/jobs")).json()
        assert [job["id"] for job in page["jobs"]] == [expected]


async def test_a_cursor_of_another_tenant_leads_to_nothing_of_theirs(tenants: Tenants) -> None:
    for _ in range(3):
        await tenants.submit(tenants.alice)
    cursor = (await tenants.alice.get("/jobs", params={"limit": 1})).json()["next_cursor"]
    page = (await tenants.bob.get("/jobs", params={"cursor": cursor})).json()
    assert page["jobs"] == []


async def test_an_idempotency_key_is_its_tenants_own(tenants: Tenants) -> None:
    headers = {"Idempotency-Key": "same"}
    first = await tenants.submit(tenants.alice, headers=headers)
    other = await tenants.bob.post("/jobs", json=a_document(priority="high"), headers=headers)
    assert other.status_code == 202
    assert other.json()["id"] != first
    again = await tenants.alice.post("/jobs", json=a_document(), headers=headers)
    assert (again.json()["id"], again.headers["idempotent-replayed"]) == (first, "true")


async def test_keys_of_one_tenant_see_the_same_jobs(tenants: Tenants) -> None:
    """A key can be replaced without losing what was submitted with it."""
    job_id = await tenants.submit(tenants.alice)
    newer = await tenants.client("alice-2", tenant="alice")
    await tenants.api.services.gate.refresh()
    assert (await newer.get(f"/jobs/{job_id}")).status_code == 200


def test_a_path_that_nobody_named_is_guarded() -> None:
    assert scope_of("GET", "/jobs/{job_id}/whatever") is KeyScope.READ
    assert scope_of("POST", "/whatever") is KeyScope.SUBMIT
    assert scope_of("PATCH", REST) is KeyScope.SUBMIT
