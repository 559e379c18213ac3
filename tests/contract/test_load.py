"""Limits on what the service and each tenant hold, told in the submit itself, and the sums that they are told by."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jobs import keys
from jobs.load import read_load
from jobs.record import LOCAL_TENANT
from jobs.store import Fail, Release, Retry, Settlement, Submitted, Succeed
from tests.support.stores import LEASE_MS, MODEL, PAYLOAD, Rig, a_result, a_submission, an_error

pytestmark = pytest.mark.anyio

SIZE = len(PAYLOAD) + len(a_submission().request.encode())


async def _words(rig: Rig, *tenants: str, model: str = MODEL, **settings: Any) -> list[Submitted]:
    """What becomes of a job of each of these tenants, submitted together under these limits."""
    submissions = [a_submission(model, tenant=tenant) for tenant in tenants]
    return [reply.word for reply in await rig.another(**settings).submit_many(submissions)]


OK, FULL, CROWDED = Submitted.OK, Submitted.FULL, Submitted.CROWDED


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"max_queued": 2}, [OK, OK, FULL]),
        ({"max_queued_bytes": 2 * SIZE}, [OK, OK, FULL]),
        ({"max_open": 2}, [OK, OK, CROWDED]),
        ({"max_open_bytes": 2 * SIZE + 1}, [OK, OK, CROWDED]),
        ({"tenant_max_open": 2}, [OK, OK, Submitted.QUOTA_JOBS]),
        ({"tenant_max_open_bytes": 3 * SIZE - 1}, [OK, OK, Submitted.QUOTA_BYTES]),
        ({"tenant_rate": 0.2}, [OK, OK, Submitted.QUOTA_RATE]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_limit_holds_to_the_job_within_a_block_and_after_it(
    rig: Rig, limit: dict[str, Any], expected: list[Submitted]
) -> None:
    """T: Quotas."""
    assert await _words(rig, "a", "a", "a", **limit) == expected
    assert await _words(rig, "a", **limit) == expected[2:]


@pytest.mark.parametrize("limit", [{"tenant_max_open": 1}, {"tenant_max_open_bytes": SIZE}, {"tenant_rate": 0.1}])
async def test_a_quota_is_one_tenants_own(rig: Rig, limit: dict[str, Any]) -> None:
    """T: Quotas: one key fills nothing of another's."""
    words = await _words(rig, "a", "a", "b", "b", **limit)
    assert [word is OK for word in words] == [True, False, True, False]


async def test_what_is_full_for_one_model_is_not_for_another(rig: Rig) -> None:
    assert await _words(rig, "a", "a", max_queued_bytes=SIZE) == [OK, FULL]
    assert await _words(rig, "a", model="m", max_queued_bytes=2 * SIZE) == [OK]


async def test_what_ends_makes_room(rig: Rig) -> None:
    await _words(rig, "a", tenant_max_open=1)
    lease = await rig.lease()
    assert await _words(rig, "a", tenant_max_open=1) == [Submitted.QUOTA_JOBS]  # a running one counts
    await rig.store.settle([Succeed(lease, a_result())])
    assert await _words(rig, "a", tenant_max_open=1) == [OK]


async def test_a_rate_lets_the_next_job_in_when_its_time_has_come(rig: Rig) -> None:
    limit: dict[str, Any] = {"tenant_rate": 0.5}  # five at once, then one every two seconds
    assert await _words(rig, *"aaaaaa", **limit) == [OK] * 5 + [Submitted.QUOTA_RATE]
    rig.clock.advance(1_999)
    assert await _words(rig, "a", **limit) == [Submitted.QUOTA_RATE]
    rig.clock.advance(1)
    assert await _words(rig, "a", "a", **limit) == [OK, Submitted.QUOTA_RATE]
    assert 0 < await rig.redis.pttl(keys.rate_key("a")) <= 10_000


async def test_a_repeated_request_is_answered_although_the_tenant_is_at_its_limit(rig: Rig) -> None:
    """T: Idempotency-Key: a replay takes no room; a new key is counted like any job."""
    store = rig.another(tenant_max_open=1, tenant_rate=0.1)
    first = await store.submit(a_submission(idempotency_key="k", fingerprint="f"))
    again = await store.submit(a_submission(idempotency_key="k", fingerprint="f"))
    assert again[:2] == (Submitted.REPLAYED, first.job_id)
    assert (await store.submit(a_submission(idempotency_key="l"))).word is Submitted.QUOTA_RATE


async def test_a_submit_tells_how_it_leaves_the_tenants_of_its_block(rig: Rig) -> None:
    """Whether or not a job was stored; one that was there before looks at nothing."""
    size = len(PAYLOAD) + len(a_submission().request.encode())
    store = rig.another(tenant_max_open=2, tenant_rate=1.0)
    block = [a_submission(tenant=tenant) for tenant in "aaab"]
    standings = [reply.standing for reply in await store.submit_many(block)]
    assert standings == [(2, 2 * size, 2000)] * 3 + [(1, size, 1000)]
    rig.clock.advance(1_500)
    refused = await store.submit(a_submission(tenant="a"))
    assert (refused.word, refused.standing, refused.created_ms) == (Submitted.QUOTA_JOBS, (2, 2 * size, 500), 0)
    assert (await store.submit(block[0])).standing is None


async def test_a_refused_job_leaves_nothing(rig: Rig) -> None:
    await _words(rig, "a", tenant_max_open=1)
    before = await rig.snapshot()
    assert await _words(rig, "a", tenant_max_open=1) == [Submitted.QUOTA_JOBS]
    assert await rig.snapshot() == before


async def test_the_sums_are_exact_whatever_happens_to_jobs(rig: Rig) -> None:
    """Every end, a lost record and a call that is repeated: what was added is taken off, once."""
    size = len(PAYLOAD) + len(a_submission(queue_ttl_ms=60_000).request.encode())
    for tenant in ("a", LOCAL_TENANT):
        await rig.store.submit_many([a_submission(tenant=tenant, queue_ttl_ms=60_000) for _ in range(8)])
    repeated = a_submission(queue_ttl_ms=60_000)
    await rig.store.submit(repeated)
    await rig.store.submit(repeated)
    leases = [claimed.lease for claimed in await rig.claim(12)]
    settled: list[Settlement] = [
        Succeed(leases[0], a_result()),
        Fail(leases[1], an_error()),
        Retry(leases[2], an_error(), 500),
        Release(leases[3]),
    ]
    await rig.store.settle(settled)
    await rig.store.settle(settled)
    await rig.redis.delete(keys.job_key(leases[4].job_id))
    load = await read_load(rig.connection)
    assert (load.open_jobs, load.open_bytes, load.ended) == (15, 15 * size, 2)
    assert load.tenant_jobs("a") + load.tenant_jobs(LOCAL_TENANT) == 15
    for _ in range(8):
        rig.clock.advance(LEASE_MS + 1)
        await rig.store.reap([MODEL])
        await rig.store.expire()
    load = await read_load(rig.connection)
    assert load.open_jobs == 0
    assert {field: value for field, value in load.sums.items() if not field.startswith("ended")} == {
        field: 0 for field in load.sums if not field.startswith("ended")
    }
    assert (load.ended, load.model_ended(MODEL)) == (17, 17)
    assert await rig.redis.exists(keys.HELD_KEY) == 0


async def test_many_at_once_never_pass_a_limit(rig: Rig) -> None:
    replies = await asyncio.gather(*(_words(rig, "a", "b", max_open=40, tenant_max_open=30) for _ in range(50)))
    words = [word for reply in replies for word in reply]
    assert words.count(OK) == 40
    assert (await read_load(rig.connection)).tenant_jobs("a") <= 30


async def test_memory_is_told_where_redis_tells_it(rig: Rig) -> None:
    load = await read_load(rig.connection)
    assert load.max_memory_bytes == 0
    assert load.used_memory_bytes > 0 or not rig.is_real
