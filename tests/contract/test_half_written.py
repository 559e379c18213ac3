"""Whatever was left half-written, by whatever accident, ends; and what a newer version wrote is never lost by us."""

from __future__ import annotations

import pytest

from jobs import codec, keys
from jobs.errors import ErrorCode
from jobs.record import LOCAL_TENANT
from jobs.state import State
from jobs.store import MAX_REDELIVERIES, Lease, Settled, Succeed
from tests.support.stores import LEASE_MS, MODEL, Rig, a_result

pytestmark = pytest.mark.anyio

TTL_MS = 60_000
QUEUES = (keys.ready_key(MODEL), keys.scheduled_key(MODEL), keys.leased_key(MODEL))


async def _without_entry(rig: Rig, job_id: str) -> None:
    for queue in QUEUES:
        await rig.redis.zrem(queue, job_id)


async def _is_lost(rig: Rig, job_id: str) -> bool:
    job = await rig.job(job_id)
    return (
        job.state is State.FAILED
        and job.outcome is not None
        and job.outcome.error is not None
        and job.outcome.error.code is ErrorCode.LOST
    )


@pytest.mark.parametrize("look", ["sweep", "get"])
async def test_a_record_and_payload_without_a_queue_entry_end_as_lost(rig: Rig, look: str) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    await _without_entry(rig, job_id)
    rig.clock.advance(TTL_MS)
    if look == "get":
        assert (await rig.job(job_id)).state is State.QUEUED
    assert (await rig.store.expire()).lost == [job_id]
    assert await _is_lost(rig, job_id)
    assert await rig.redis.exists(keys.input_key(job_id)) == 0


async def test_a_payload_without_a_record_goes_by_itself(rig: Rig) -> None:
    job_id = await rig.submit()
    await rig.redis.delete(keys.job_key(job_id), keys.OPEN_KEY, *QUEUES)
    assert await rig.claim() == []
    assert await rig.redis.pttl(keys.input_key(job_id)) > 0


async def test_a_running_job_without_a_lease_ends_as_lost(rig: Rig) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    lease = await rig.lease()
    await _without_entry(rig, job_id)
    rig.clock.advance(TTL_MS)
    assert (await rig.store.expire()).lost == [job_id]
    assert await _is_lost(rig, job_id)
    assert await rig.store.settle([Succeed(lease, a_result())]) == {lease: Settled.LEASE_LOST}


async def test_a_lease_without_anything_else_is_dropped(rig: Rig) -> None:
    job_id = await rig.submit()
    await rig.redis.delete(keys.job_key(job_id))
    await rig.redis.zadd(keys.leased_key(MODEL), {job_id: 1})
    assert (await rig.store.reap([MODEL]))[MODEL] == ([], [])
    assert await rig.redis.exists(keys.leased_key(MODEL)) == 0


async def test_a_queued_job_that_lies_among_the_leases_only_ends_as_lost(rig: Rig) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    await _without_entry(rig, job_id)
    await rig.redis.zadd(keys.leased_key(MODEL), {job_id: 1})
    assert (await rig.store.reap([MODEL]))[MODEL] == ([], [])
    rig.clock.advance(TTL_MS)
    assert (await rig.store.expire()).lost == [job_id]
    assert await _is_lost(rig, job_id)


async def _written_by_a_newer_version(rig: Rig, job_id: str) -> None:
    await rig.redis.hset(keys.job_key(job_id), "v", codec.VERSION + 1)


async def test_a_running_job_of_a_newer_version_is_given_back_but_never_failed(rig: Rig) -> None:
    """B021: its worker died, and only older ones are there to see it."""
    job_id = await rig.submit()
    for attempt in range(MAX_REDELIVERIES + 1):
        assert await rig.lease() == Lease(job_id, attempt + 1)
        await _written_by_a_newer_version(rig, job_id)
        rig.clock.advance(LEASE_MS + 1)
        requeued, failed = (await rig.store.reap([MODEL]))[MODEL]
        assert (requeued, failed) == ([job_id] if attempt < MAX_REDELIVERIES else [], [])
        await rig.redis.hset(keys.job_key(job_id), "v", codec.VERSION)
    assert (await rig.store.reap([MODEL]))[MODEL] == ([], [job_id])


async def test_what_looks_half_written_of_a_newer_version_is_left_for_it(rig: Rig) -> None:
    """B021: it may keep its jobs elsewhere."""
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    await rig.lease()
    await _written_by_a_newer_version(rig, job_id)
    await _without_entry(rig, job_id)
    rig.clock.advance(TTL_MS)
    assert await rig.store.expire() == ([], [])
    assert (await rig.job(job_id)).state is State.IN_PROGRESS
    assert await rig.redis.zscore(keys.OPEN_KEY, job_id) > rig.clock()
    assert await rig.store.cancel(job_id, LOCAL_TENANT)
