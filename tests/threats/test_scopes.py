"""T: Auth header: what a scope may not read is in no answer to it, whatever the path."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from api.endpoint import Endpoint
from api.routes import ENDPOINTS, facade
from api.routes.guard import OPEN
from jobs.apikeys import KeyScope
from tests.api.harness import MODEL, floats
from tests.threats.tenants import Tenants, a_document, with_key

pytestmark = pytest.mark.anyio

METADATA, QUERY, OUTPUT, OTHER_MODEL = "said-in-metadata", "said-in-the-query", "12345.5", "other"
SECRET = "whsec_" + "QUFB" * 10
RECEIPT = {"id", "status", "done", "created_at", "run_at", "started_at", "finished_at", "expires_at", "urls"}


async def a_finished_job(tenants: Tenants) -> str:
    """Alice's, with a message, and something of its own wherever a job can hold it."""
    job_id = await tenants.submit(
        tenants.alice,
        metadata={"note": METADATA},
        webhook=f"https://receiver.example/?token={QUERY}",
        webhook_secret=[SECRET],
    )
    await tenants.api.hand.succeed(await tenants.api.hand.take(), floats(float(OUTPUT)))
    return job_id


async def with_scopes(tenants: Tenants, *scopes: KeyScope) -> httpx.AsyncClient:
    """Another of Alice's keys."""
    token = await tenants.keys.create("second", tenant="alice", scopes=frozenset(scopes))
    await tenants.api.services.gate.refresh()
    return with_key(tenants.api, token)


def asked(endpoint: Endpoint, job_id: str) -> tuple[str, Any]:
    """The path, of this job and model, and a body that asks for another model than there is, or for no batch."""
    path = endpoint.path.replace("{job_id}", job_id).replace("{name}", MODEL).replace("{version}", "1")
    body = [{"model": "nonsense", "inputs": []}] if path.endswith("batch") else {"model": "nonsense", "inputs": []}
    return path, body


@pytest.mark.parametrize("scopes", [(KeyScope.CANCEL,), (KeyScope.SUBMIT,), (KeyScope.CANCEL, KeyScope.SUBMIT)])
async def test_no_path_tells_a_key_without_the_scope_what_only_readers_may_know(
    tenants: Tenants, scopes: tuple[KeyScope, ...]
) -> None:
    job_id = await a_finished_job(tenants)
    client = await with_scopes(tenants, *scopes)
    walked = sorted((*ENDPOINTS, *facade.ENDPOINTS), key=lambda endpoint: endpoint.method == "DELETE")
    for endpoint in walked:
        if endpoint.path in OPEN:
            continue
        path, body = asked(endpoint, job_id)
        answer = await client.request(endpoint.method, path, json=body if endpoint.method == "POST" else None)
        told = f"{answer.headers} {answer.text}"
        leaks = [word for word in (METADATA, QUERY, OUTPUT, "succeeded.1.0") if word in told]
        assert not leaks, (endpoint.method, path, told)
        assert f'"{OTHER_MODEL}"' not in told, (endpoint.method, path, told)


async def test_the_canceler_of_a_job_is_told_its_state_and_its_times(tenants: Tenants) -> None:
    job_id = await a_finished_job(tenants)
    client = await with_scopes(tenants, KeyScope.CANCEL)
    answer = await client.post(f"/jobs/{job_id}/cancel")
    told = answer.json()
    assert (answer.status_code, set(told), told["id"], told["status"]) == (200, RECEIPT, job_id, "succeeded")
    assert told["finished_at"]
    assert set(told["urls"]) == {"self", "result", "events", "cancel"}
    queued = await tenants.submit(tenants.alice, metadata={"note": METADATA})
    assert (await client.post(f"/jobs/{queued}/cancel")).json()["status"] == "canceled"


async def test_who_may_read_too_sees_the_whole_job(tenants: Tenants) -> None:
    job_id = await a_finished_job(tenants)
    told = (await tenants.alice.post(f"/jobs/{job_id}/cancel")).json()
    assert (told["metadata"], told["output"]["y"]["data"]) == ({"note": METADATA}, [float(OUTPUT)])


async def test_who_sends_messages_again_is_told_how_many_and_who_reads_sees_them(tenants: Tenants) -> None:
    job_id = await a_finished_job(tenants)
    submitter = await with_scopes(tenants, KeyScope.SUBMIT)
    path = f"/jobs/{job_id}/deliveries/redeliver"
    assert (await submitter.post(path)).json() == {"redelivered": 1, "next_since": None}
    (delivery,) = (await tenants.alice.post(path)).json()["deliveries"]
    assert QUERY in delivery["url"]


async def test_a_submitter_hears_of_its_own_job_and_of_nobody_elses(tenants: Tenants) -> None:
    """The answer to a submit is what was sent, and with `Prefer: wait` what came of it; a repeat is the same submit."""
    client = await with_scopes(tenants, KeyScope.SUBMIT)
    headers = {"Idempotency-Key": "k"}
    first = await client.post("/jobs", json=a_document(metadata={"mine": 1}), headers=headers)
    assert (first.status_code, first.json()["metadata"]) == (202, {"mine": 1})
    await tenants.api.hand.succeed(await tenants.api.hand.take(), floats(7.5))
    again = await client.post("/jobs", json=a_document(metadata={"mine": 1}), headers=headers | {"Prefer": "wait=1"})
    assert (again.status_code, again.json()["output"]["y"]["data"]) == (200, [7.5])
    assert (await client.get(f"/jobs/{first.json()['id']}")).status_code == 403
    other = await client.post("/jobs", json=a_document(metadata={"mine": 2}), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert "7.5" not in json.dumps(other.json())
