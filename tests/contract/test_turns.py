"""Fair share: tenants with ready jobs of one model are served in turns by their weights, each by its priorities."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from jobs import keys
from jobs.record import Priority
from jobs.store import Release, Succeed
from tests.support.databases import Database
from tests.support.stores import MODEL, Rig, a_result, a_submission, open_rig

pytestmark = pytest.mark.anyio


async def _flood(rig: Rig, tenant: str, count: int, **options: Any) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        block = [a_submission(tenant=tenant, **options) for _ in range(min(count - len(ids), 500))]
        ids += [reply.job_id for reply in await rig.store.submit_many(block)]
    return ids


async def _owners(rig: Rig, limit: int) -> Counter[str]:
    """How many jobs of each tenant the next claim gives."""
    ids = [claimed.lease.job_id for claimed in await rig.claim(limit)]
    return Counter([(await rig.redis.hget(keys.job_key(job_id), "tenant")).decode() for job_id in ids])


@pytest.mark.parametrize("batch", [1, 2, 8])
async def test_a_single_job_behind_a_flood_is_claimed_within_two_batches(rig: Rig, batch: int) -> None:
    """T: Quotas: fair scheduling."""
    await _flood(rig, "flooder", 10_000 if rig.is_real else 300)
    await rig.claim(batch)
    (single,) = await _flood(rig, "small", 1)
    claimed = [one.lease.job_id for _ in range(2) for one in await rig.claim(batch)]
    assert single in claimed


async def test_tenants_share_evenly_however_much_each_has_queued(rig: Rig) -> None:
    for tenant, count in (("a", 100), ("b", 20), ("c", 20)):
        await _flood(rig, tenant, count)
    seen: Counter[str] = Counter()
    for _ in range(12):
        seen += await _owners(rig, 5)
    assert seen == {"a": 20, "b": 20, "c": 20}
    assert await _owners(rig, 50) == {"a": 50}


async def test_a_weight_is_a_share(rig: Rig) -> None:
    await rig.redis.hset(keys.WEIGHTS_KEY, mapping={"a": 3})
    for tenant in "ab":
        await _flood(rig, tenant, 100)
    seen: Counter[str] = Counter()
    for _ in range(10):
        seen += await _owners(rig, 8)
    assert seen == {"a": 60, "b": 20}


async def test_priority_is_a_head_start_within_a_tenant_and_no_more(rig: Rig) -> None:
    """Whoever calls all jobs urgent gains nothing over others."""
    await _flood(rig, "loud", 20, priority=Priority.HIGH)
    low = await _flood(rig, "quiet", 1, priority=Priority.LOW)
    rig.clock.advance(1)
    (high,) = await _flood(rig, "quiet", 1, priority=Priority.HIGH)
    claimed = [one.lease.job_id for one in await rig.claim(4)]
    assert high in claimed
    assert low[0] in claimed
    assert claimed.index(high) < claimed.index(low[0])


async def test_who_comes_from_a_pause_has_no_more_to_claim_than_others(rig: Rig) -> None:
    await _flood(rig, "busy", 60)
    await _flood(rig, "idle", 1)
    await _owners(rig, 20)
    await _flood(rig, "idle", 40)
    assert await _owners(rig, 20) == {"busy": 10, "idle": 10}


async def test_jobs_that_come_back_take_part_again(rig: Rig) -> None:
    for tenant in "ab":
        await _flood(rig, tenant, 2)
    leases = [one.lease for one in await rig.claim(4)]
    assert await rig.redis.exists(keys.turns_key(MODEL)) == 0
    await rig.store.settle([Release(lease) for lease in leases])
    assert await _owners(rig, 2) == {"a": 1, "b": 1}
    assert await _owners(rig, 2) == {"a": 1, "b": 1}


async def test_scheduled_jobs_take_part_when_they_are_due(rig: Rig) -> None:
    await _flood(rig, "a", 10)
    await _flood(rig, "b", 1, run_at_ms=rig.clock.now_ms + 1000)
    assert await _owners(rig, 2) == {"a": 2}
    rig.clock.advance(1000)
    assert await _owners(rig, 2) == {"a": 1, "b": 1}


async def test_canceled_jobs_leave_no_turn_behind(rig: Rig) -> None:
    ids = await _flood(rig, "a", 3)
    for job_id in ids:
        await rig.store.cancel(job_id, "a")
    assert await rig.redis.exists(keys.turns_key(MODEL), keys.share_key(MODEL, "a"), keys.ready_key(MODEL)) == 0


async def test_late_jobs_of_one_tenant_do_not_keep_another_waiting(rig: Rig) -> None:
    await _flood(rig, "late", 50, queue_ttl_ms=1000)
    rig.clock.advance(1000)
    await _flood(rig, "fresh", 3)
    assert await _owners(rig, 3) == {"fresh": 3}


@pytest.mark.server
@pytest.mark.parametrize("block", [1, 64])
async def test_a_tenant_alone_costs_redis_eight_commands_a_block_at_most(valkey_url: str, block: int) -> None:
    """From submit to end, and as many for one job as for many: the turns are no cost of a job."""
    own = (keys.share_key(MODEL, ""), keys.turns_key(MODEL))
    async with open_rig(Database.STORES.at(valkey_url)) as rig, rig.redis.monitor() as monitor:
        await rig.store.submit_many([a_submission() for _ in range(block)])
        leases = [one.lease for one in await rig.claim(block)]
        await rig.store.settle([Succeed(lease, a_result()) for lease in leases])
        await rig.redis.echo("the end")
        commands = []
        async for seen in monitor.listen():
            if seen["command"] == "ECHO the end":
                break
            commands.append(seen["command"])
    spent = [command for command in commands if any(key in command for key in own) and "EVALSHA" not in command]
    assert 0 < len(spent) <= 8, spent
