"""T: Auth header: guessing, odd headers, keys in queries, scopes, model lists, and the end of a key."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from api.auth import MAX_FAILURES, WINDOW_SECONDS, Failures
from jobs import keys
from jobs.apikeys import ApiKey, ApiKeys, KeyRefused, KeyScope, digest_of, is_token, new_token
from jobs.connection import Call
from tests.api.harness import MODEL, Api, Backend, fp32_input, identity_spec, running_api, until
from tests.threats.tenants import Tenants, a_document, with_key

pytestmark = pytest.mark.anyio

UNKNOWN = new_token()


def test_a_key_is_recognisable_and_random() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(token.startswith("inferq_") and len(token) == 50 and is_token(token.encode()) for token in tokens)


@pytest.mark.parametrize(
    "text",
    ["", "inferq_", UNKNOWN[:-1], UNKNOWN + "a", "x" + UNKNOWN[1:], UNKNOWN[:-1] + "\n"],
    ids=["nothing", "its beginning", "too short", "too long", "another beginning", "a line end"],
)
def test_nothing_else_has_the_form_of_a_key(text: str) -> None:
    assert not is_token(text.encode())


async def test_without_any_key_all_are_one_tenant(api: Api) -> None:
    assert api.services.gate.is_needed is False
    assert await api.submit()
    assert (await api.get("/jobs")).status_code == 200


async def test_the_first_key_ends_that(api: Api, tenants: Tenants) -> None:
    """T: Config: whoever makes a key wants keys to count, whatever else is set."""
    assert (await tenants.nobody.get("/jobs")).status_code == 401
    assert (await tenants.alice.get("/jobs")).status_code == 200


async def test_what_is_stored_is_no_key(tenants: Tenants) -> None:
    (record,) = await tenants.api.store.connection.run(Call("HGETALL", keys.API_KEYS_KEY))
    stored = b"".join(name + value for name, value in record.items())
    for token in tenants.tokens.values():
        assert token.encode() not in stored
        assert token[10:40].encode() not in stored
        assert digest_of(token.encode()) in stored


ODD_HEADERS = {
    "no key": b"Bearer ",
    "no scheme": UNKNOWN.encode(),
    "another scheme": b"Basic " + UNKNOWN.encode(),
    "an unknown key": b"Bearer " + UNKNOWN.encode(),
    "half a key": b"Bearer " + UNKNOWN[:20].encode(),
    "not ASCII": b"Bearer " + b"inferq_" + b"\xc3\xa9" * 21 + b"a",
    "bytes that are no text": b"Bearer \xff\xfe\xfd",
    "a NUL": b"Bearer inferq_\x00" + b"a" * 42,
    "a megabyte": b"Bearer " + b"a" * 1_000_000,
    "two keys": b"Bearer " + UNKNOWN.encode() + b", " + UNKNOWN.encode(),
    "a line break": b"Bearer " + UNKNOWN.encode() + b"\nx",
}


@pytest.mark.parametrize("value", ODD_HEADERS.values(), ids=ODD_HEADERS)
async def test_every_other_header_gets_the_same_401(tenants: Tenants, value: bytes) -> None:
    expected = await tenants.nobody.get("/jobs")
    answer = await tenants.nobody.get("/jobs", headers={b"Authorization": value})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="inferq"'
    assert _shape(answer.json()) == _shape(expected.json())


def _shape(problem: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in problem.items() if name != "request_id"}


async def test_a_key_given_twice_counts_as_none(tenants: Tenants) -> None:
    value = b"Bearer " + tenants.tokens["alice"].encode()
    answer = await tenants.nobody.get("/jobs", headers=[(b"Authorization", value), (b"Authorization", value)])
    assert answer.status_code == 401


@pytest.mark.parametrize("name", ["api_key", "access_token", "key", "Authorization"])
async def test_a_key_in_the_query_is_no_key(tenants: Tenants, name: str) -> None:
    answer = await tenants.nobody.get("/jobs", params={name: tenants.tokens["alice"]})
    assert answer.status_code == 401
    assert tenants.tokens["alice"] not in answer.text


async def test_a_new_key_counts_at_once(tenants: Tenants) -> None:
    carol = await tenants.client("carol")
    await until(lambda: _is_admitted(carol))


async def test_an_api_hears_of_the_first_key_before_it_would_look_again(api: Api) -> None:
    api.services.gate.refresh_seconds = 3600.0
    api.services.gate.changed()
    assert (await api.get("/jobs")).status_code == 200
    await ApiKeys(api.store.connection).create("first")
    await until(lambda: _is_refused(api.client))


async def test_apis_are_told_of_a_key_that_is_made_and_of_one_that_is_revoked(tenants: Tenants) -> None:
    async with tenants.api.store.connection.subscribe(keys.API_KEYS_CHANNEL) as messages:
        await tenants.keys.create("carol")
        assert (await anext(messages))[0] == keys.API_KEYS_CHANNEL
        await tenants.keys.revoke("alice")
        assert (await anext(messages))[0] == keys.API_KEYS_CHANNEL


async def _is_refused(client: httpx.AsyncClient) -> bool:
    await asyncio.sleep(0.01)
    return (await client.get("/jobs")).status_code == 401


async def _is_admitted(client: httpx.AsyncClient) -> bool:
    await asyncio.sleep(0.01)
    return (await client.get("/jobs")).status_code == 200


async def test_a_revoked_key_is_refused_soon_and_its_name_never_used_again(tenants: Tenants) -> None:
    await tenants.keys.revoke("alice")
    await tenants.keys.revoke("alice")
    await tenants.api.services.gate.refresh()
    assert (await tenants.alice.get("/jobs")).status_code == 401
    assert (await tenants.bob.get("/jobs")).status_code == 200
    with pytest.raises(KeyRefused, match="alice"):
        await tenants.keys.create("alice")
    with pytest.raises(KeyRefused, match="nobody"):
        await tenants.keys.revoke("nobody")


async def test_a_revoked_key_ends_what_waits_with_it(tenants: Tenants) -> None:
    """A long-poll and a call are refused; a job that was stored is told of, for it stays."""
    services = tenants.api.services
    job_id = await tenants.submit(tenants.alice)
    waiting = [
        asyncio.create_task(request)
        for request in (
            tenants.alice.get(f"/jobs/{job_id}?wait=60"),
            tenants.alice.post(
                "/v2/models/identity/infer", json={"inputs": [fp32_input((1.0, 2.0)) | {"shape": [1, 2]}]}
            ),
            tenants.alice.post("/jobs", json=a_document(), headers={"Prefer": "wait=60"}),
            tenants.bob.get(f"/jobs/{await tenants.submit(tenants.bob)}?wait=60"),
        )
    ]
    await until(lambda: len(services.waiters) == len(waiting))
    await tenants.keys.revoke("alice")
    async with asyncio.timeout(5):  # a second, and what a busy machine adds
        answers = await asyncio.gather(*waiting[:3])
    assert [answer.status_code for answer in answers] == [401, 401, 202]
    await until(lambda: len(services.waiters) == 1)
    waiting[3].cancel()


async def test_who_waits_without_a_key_is_refused_once_there_is_one(api: Api) -> None:
    waiting = asyncio.create_task(api.get(f"/jobs/{await api.submit()}?wait=60"))
    await until(lambda: len(api.services.waiters) == 1)
    await ApiKeys(api.store.connection).create("first")
    async with asyncio.timeout(5):
        assert (await waiting).status_code == 401


async def test_sending_all_messages_again_takes_an_administrator(tenants: Tenants) -> None:
    path = "/deliveries/redeliver?since=2026-01-01T00:00:00Z"
    refused = await tenants.alice.post(path)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    admin = await tenants.client("root", tenant="alice", scopes=frozenset({KeyScope.ADMIN}))
    await tenants.api.services.gate.refresh()
    assert (await admin.post(path)).status_code == 202


async def test_without_a_live_key_nobody_comes_in(tenants: Tenants) -> None:
    """The last revocation must not open the service."""
    for name in ("alice", "bob"):
        await tenants.keys.revoke(name)
    await tenants.api.services.gate.refresh()
    assert (await tenants.nobody.get("/jobs")).status_code == 401
    await tenants.api.store.connection.run(Call("DEL", keys.API_KEYS_KEY))
    await tenants.api.services.gate.refresh()
    assert (await tenants.nobody.get("/jobs")).status_code == 401


async def test_a_damaged_record_lets_nobody_in(tenants: Tenants) -> None:
    await tenants.api.store.connection.run(Call("HSET", keys.API_KEYS_KEY, "alice", b"\xc1", "bob", b"\xc1"))
    await tenants.api.services.gate.refresh()
    for client in (tenants.alice, tenants.bob, tenants.nobody):
        assert (await client.get("/jobs")).status_code == 401


@pytest.mark.parametrize(
    ("scope", "permitted"),
    [
        (KeyScope.READ, {"list", "read"}),
        (KeyScope.SUBMIT, {"submit"}),
        (KeyScope.CANCEL, {"cancel", "delete"}),
        (KeyScope.ADMIN, {"list", "read", "submit", "cancel", "delete"}),
    ],
)
async def test_a_scope_permits_what_it_says_and_nothing_else(
    tenants: Tenants, scope: KeyScope, permitted: set[str]
) -> None:
    job_id = await tenants.submit(tenants.alice)
    token = await tenants.keys.create("second", tenant="alice", scopes=frozenset({scope}))
    await tenants.api.services.gate.refresh()
    client = with_key(tenants.api, token)
    answers = {
        "list": await client.get("/jobs"),
        "read": await client.get(f"/jobs/{job_id}"),
        "submit": await client.post("/jobs", json=a_document()),
        "cancel": await client.post(f"/jobs/{job_id}/cancel"),
        "delete": await client.delete(f"/jobs/{job_id}"),
    }
    assert {name for name, answer in answers.items() if answer.is_success} == permitted
    refused = {answer.json()["code"] for name, answer in answers.items() if name not in permitted}
    assert refused <= {"forbidden"}


async def test_a_model_that_a_key_does_not_name_does_not_exist(tenants: Tenants) -> None:
    """T: Model name / version: allow-list per key."""
    carol = await tenants.client("carol", models=("other",))
    await tenants.api.services.gate.refresh()
    unlisted = await carol.post("/jobs", json=a_document())
    unknown = await carol.post("/jobs", json=a_document(model="nonsense"))
    assert unlisted.status_code == unknown.status_code == 404
    assert unlisted.text.replace(MODEL, "?").replace(unlisted.json()["request_id"], "") == unknown.text.replace(
        "nonsense", "?"
    ).replace(unknown.json()["request_id"], "")
    assert [model["name"] for model in (await carol.get("/models")).json()["models"]] == ["other"]
    assert (await carol.get(f"/models/{MODEL}")).status_code == 404
    assert (await carol.get(f"/v2/models/{MODEL}")).status_code == 404
    assert [entry["name"] for entry in (await carol.post("/v2/repository/index")).json()] == ["other", "other"]
    assert (await carol.post("/jobs", json=a_document(model="other"))).status_code == 202


async def test_guessing_is_slowed_down_by_address_and_a_valid_key_is_never_locked_out(tenants: Tenants) -> None:
    statuses = [(await tenants.nobody.get("/jobs")).status_code for _ in range(MAX_FAILURES + 2)]
    assert statuses == [401] * MAX_FAILURES + [429] * 2
    locked = await tenants.nobody.get("/jobs")
    assert 0 < int(locked.headers["retry-after"]) <= WINDOW_SECONDS + 1
    assert (await with_key(tenants.api, UNKNOWN).get("/jobs")).status_code == 429
    assert (await tenants.alice.get("/jobs")).status_code == 200  # though it never came from this address before
    carol = await tenants.client("carol")
    await until(lambda: _is_admitted(carol))


def test_the_memory_of_failures_is_bounded_and_ends() -> None:
    failures = Failures()
    for _ in range(MAX_FAILURES):
        failures.failed("a", 0.0)
    assert failures.seconds_locked("a", 1.0) == WINDOW_SECONDS - 1
    assert failures.seconds_locked("b", 1.0) == 0
    assert failures.seconds_locked("a", WINDOW_SECONDS) == 0
    for number in range(20_000):
        failures.failed(str(number), 1.0)
    assert len(failures._failed) == 10_000


async def test_a_server_that_needs_keys_has_no_door_without_them(backend: Backend) -> None:
    async with running_api(backend, models=[identity_spec()]) as api:
        api.services.gate.is_needed = True
        assert (await api.get("/jobs")).status_code == 401
        assert (await api.get("/health/live")).status_code == 200


@pytest.mark.parametrize("name", ["", "a:b", "a b", "-a", "a" * 64, "é", "a\n"])
async def test_names_that_could_pass_for_keys_in_redis_are_refused(api: Api, name: str) -> None:
    api_keys = api.services.gate._api_keys
    with pytest.raises(KeyRefused):
        await api_keys.create(name)
    if name:
        with pytest.raises(KeyRefused):
            await api_keys.create("good", tenant=name)


def test_a_scope_of_a_newer_version_permits_nothing_here() -> None:
    plain = ApiKey("a", "a", frozenset({KeyScope.READ}), (), 1, b"d").to_plain()
    assert ApiKey.from_plain(plain | {"scopes": ["read", "fly"]}).scopes == {KeyScope.READ}
