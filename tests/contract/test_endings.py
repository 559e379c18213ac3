"""How jobs end other than by a result: expiry, cancel, delete; and that nothing of them is left in the end."""

from __future__ import annotations

import pytest

from jobs import keys
from jobs.listing import list_jobs
from jobs.record import LOCAL_TENANT
from jobs.state import State
from jobs.store import Canceled, Deleted, Fail, Lease, Release, Retry, Succeed
from tests.support.stores import LEASE_MS, MODEL, START_MS, Rig, a_result, a_submission, an_error

pytestmark = pytest.mark.anyio

TTL_MS = 10_000
BIG = b"o" * 5000


@pytest.mark.parametrize("look", ["claim", "get", "sweep"])
async def test_a_job_that_waited_too_long_expires_whoever_looks_first(rig: Rig, look: str) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    rig.clock.advance(TTL_MS - 1)
    await rig.store.expire()
    assert (await rig.job(job_id)).state is State.QUEUED
    rig.clock.advance(1)
    if look == "claim":
        assert await rig.claim() == []
    elif look == "get":
        assert (await rig.job(job_id)).state is State.EXPIRED
    else:
        assert (await rig.store.expire()).expired == [job_id]
    job = await rig.job(job_id)
    assert (job.state, job.finished_ms, job.attempt) == (State.EXPIRED, START_MS + TTL_MS, 0)
    assert await rig.store.load([job_id]) == [None]


async def test_a_named_job_is_looked_at_before_its_time(rig: Rig) -> None:
    """It is left as it is, and the sweeper still finds it later."""
    early, running = await rig.submit(queue_ttl_ms=TTL_MS), await rig.submit(queue_ttl_ms=TTL_MS)
    await rig.claim(2)
    await rig.store.settle([Release(Lease(early, 1))])
    assert await rig.store.expire([early, running, "0" * 32]) == ([], [])
    rig.clock.advance(TTL_MS)
    assert (await rig.store.expire()).expired == [early]
    assert await rig.state(running) is State.IN_PROGRESS


async def test_a_scheduled_job_expires_after_its_start_time(rig: Rig) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS, run_at_ms=START_MS + 50_000)
    rig.clock.advance(50_000 + TTL_MS - 1)
    assert await rig.store.expire() == ([], [])
    rig.clock.advance(1)
    assert (await rig.store.expire()).expired == [job_id]
    assert await rig.redis.exists(keys.scheduled_key(MODEL)) == 0


async def test_a_running_job_does_not_expire(rig: Rig) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    lease = await rig.lease()
    for _ in range(5):
        rig.clock.advance(TTL_MS)
        await rig.store.extend([lease], LEASE_MS)
        assert await rig.store.expire() == ([], [])
    assert (await rig.job(job_id)).state is State.IN_PROGRESS
    await rig.store.settle([Release(lease)])
    rig.clock.advance(5_001)
    assert (await rig.store.expire()).expired == [job_id]


async def test_the_sweeper_gets_past_jobs_that_are_still_running(rig: Rig) -> None:
    """B017, for the sweeper: what must not end yet does not hide what must."""
    for _ in range(20):
        await rig.submit(queue_ttl_ms=TTL_MS)
    leases = [claimed.lease for claimed in await rig.claim(20)]
    rig.clock.advance(1)
    late = await rig.submit(queue_ttl_ms=TTL_MS)
    rig.clock.advance(TTL_MS)
    await rig.store.extend(leases, LEASE_MS)
    assert (await rig.store.expire(limit=10)).expired == []
    assert (await rig.store.expire(limit=10)).expired == []
    assert (await rig.store.expire(limit=10)).expired == [late]


async def test_a_long_queue_of_late_jobs_is_ended_in_bounded_steps(rig: Rig) -> None:
    """No script holds Redis while it ends a hundred thousand jobs; each claim goes on where the last one stopped."""
    count = 2500 if rig.is_real else 1200
    for _ in range(count // 100):
        await rig.store.submit_many([a_submission(queue_ttl_ms=TTL_MS) for _ in range(100)])
    rig.clock.advance(TTL_MS)
    ours = await rig.submit()
    before = await rig.redis.zcard(keys.ready_key(MODEL))
    assert await rig.claim() == []
    after = await rig.redis.zcard(keys.ready_key(MODEL))
    assert before - after == 1000
    assert await rig.redis.llen(keys.wake_key(MODEL)) == 1
    found = []
    for _ in range(3):
        found += await rig.claim()
    assert [claimed.lease.job_id for claimed in found] == [ours]


async def test_each_state_answers_a_cancel(rig: Rig) -> None:
    """B011."""
    queued = await rig.submit()
    assert await rig.store.cancel(queued, LOCAL_TENANT) is Canceled.CANCELED
    scheduled = await rig.submit(run_at_ms=START_MS + 1000)
    assert await rig.store.cancel(scheduled, LOCAL_TENANT) is Canceled.CANCELED
    running = await rig.submit()
    await rig.lease()
    assert await rig.store.cancel(running, LOCAL_TENANT) is Canceled.STOPPING
    assert await rig.store.cancel(running, LOCAL_TENANT) is Canceled.DONE
    assert await rig.store.cancel("0" * 32, LOCAL_TENANT) is Canceled.NOT_FOUND
    assert [await rig.state(job_id) for job_id in (queued, scheduled, running)] == [State.CANCELED] * 3
    assert await rig.claim(10) == []


async def test_delete_refuses_a_job_that_is_not_done_unless_forced(rig: Rig) -> None:
    running, queued = await rig.submit(), await rig.submit(run_at_ms=START_MS + 1000)
    lease = await rig.lease()
    for job_id in (running, queued):
        before = await rig.snapshot()
        assert await rig.store.delete(job_id, LOCAL_TENANT, force=False) is Deleted.NOT_DONE
        assert await rig.snapshot() == before
        assert await rig.store.delete(job_id, LOCAL_TENANT, force=True) is Deleted.OK
    assert await rig.store.delete("0" * 32, LOCAL_TENANT, force=True) is Deleted.NOT_FOUND
    await rig.store.settle([Succeed(lease, a_result(), BIG)])
    await rig.claim()
    assert await rig.keys() == set()


@pytest.mark.parametrize("end", ["succeed", "fail", "cancel", "expire"])
async def test_delete_leaves_nothing_of_a_finished_job(rig: Rig, end: str) -> None:
    job_id = await rig.submit(queue_ttl_ms=TTL_MS)
    if end == "expire":
        rig.clock.advance(TTL_MS)
        await rig.store.expire()
    elif end == "cancel":
        await rig.store.cancel(job_id, LOCAL_TENANT)
    else:
        lease = await rig.lease()
        await rig.store.settle([Succeed(lease, a_result(), BIG) if end == "succeed" else Fail(lease, an_error())])
    assert await rig.store.delete(job_id, LOCAL_TENANT, force=False) is Deleted.OK
    await rig.claim()
    assert await rig.keys() == set()


LASTING = {keys.OPEN_KEY, keys.FORGET_KEY, keys.HELD_KEY, keys.LOAD_KEY, keys.index_key(LOCAL_TENANT)}
"""Without a time to live: their entries go with the jobs, or are a few sums."""


async def test_every_key_has_a_time_to_live_or_goes_with_its_jobs(rig: Rig) -> None:
    await rig.submit(idempotency_key="k")
    await rig.submit(run_at_ms=START_MS + 1000)
    await rig.submit()
    done, failed = await rig.submit(), await rig.submit()
    leases = {claimed.lease.job_id: claimed.lease for claimed in await rig.claim(4)}
    await rig.store.settle([Succeed(leases[done], a_result(), BIG)] if done in leases else [])
    await rig.store.settle([Fail(leases[failed], an_error())] if failed in leases else [])
    lasting = {key.decode() for key, (_, has_ttl) in (await rig.snapshot()).items() if not has_ttl}
    zsets = {keys.ready_key(MODEL), keys.scheduled_key(MODEL), keys.leased_key(MODEL)}
    zsets |= {keys.share_key(MODEL, LOCAL_TENANT), keys.turns_key(MODEL)}
    assert lasting <= LASTING | zsets


async def test_a_thousand_lives_leave_nothing_but_records_and_their_results(rig: Rig) -> None:
    count = 1000 if rig.is_real else 200
    for block in range(count // 50):
        await rig.store.submit_many(
            [a_submission(idempotency_key=f"{block}-{i}", queue_ttl_ms=TTL_MS) for i in range(50)]
        )
        claimed = await rig.claim(45)
        leases = [one.lease for one in claimed]
        await rig.store.settle(
            [Succeed(lease, a_result(), BIG) for lease in leases[:10]]
            + [Fail(lease, an_error()) for lease in leases[10:20]]
            + [Release(lease) for lease in leases[20:30]]
            + [Retry(lease, an_error(), 500) for lease in leases[30:35]]
        )
        for lease in leases[35:40]:
            await rig.store.cancel(lease.job_id, LOCAL_TENANT)
        rig.clock.advance(TTL_MS // 2)
    for _ in range(20):
        rig.clock.advance(LEASE_MS + 1)
        await rig.store.reap([MODEL])
        await rig.store.expire()
        await rig.claim()
    kinds = [key.split(":")[1] for key in await rig.keys()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "job": count,
        "idem": count,
        "out": count // 5,
        "index": 1,
        "forget": 1,
    }
    assert {has_ttl for key, (_, has_ttl) in (await rig.snapshot()).items() if key.decode() not in LASTING} == {True}


async def test_the_index_forgets_a_record_when_its_time_is_up(rig: Rig) -> None:
    job_id = await rig.submit(result_ttl_ms=20_000)
    kept = await rig.submit()
    for lease in [claimed.lease for claimed in await rig.claim(2)]:
        await rig.store.settle([Succeed(lease, a_result())])
    rig.clock.advance(20_000 + 86_400_000 - 1)
    await rig.store.expire()
    assert await rig.redis.zcard(keys.index_key(LOCAL_TENANT)) == 2
    rig.clock.advance(1)
    await rig.redis.delete(keys.job_key(job_id))  # as its time to live does
    await rig.store.expire()
    assert await rig.redis.zrange(keys.index_key(LOCAL_TENANT), 0, -1) == [kept.encode()]
    assert await rig.redis.zrange(keys.FORGET_KEY, 0, -1) == [kept.encode() + LOCAL_TENANT.encode()]


async def test_a_record_outlives_its_result_and_then_both_are_gone(rig: Rig) -> None:
    job_id = await rig.submit(result_ttl_ms=20_000)
    await rig.store.settle([Succeed(await rig.lease(), a_result(), BIG)])
    result_ttl, record_ttl = [await rig.redis.pttl(key) for key in (keys.output_key(job_id, 1), keys.job_key(job_id))]
    assert 15_000 < result_ttl <= 20_000
    assert 20_000 + 86_400_000 - 5_000 < record_ttl <= 20_000 + 86_400_000


@pytest.mark.parametrize("is_inline", [True, False])
async def test_a_result_is_given_out_until_its_time_is_up(rig: Rig, is_inline: bool) -> None:
    job_id = await rig.submit(result_ttl_ms=20_000)
    outcome = a_result("small")
    await rig.store.settle(
        [Succeed(await rig.lease(), outcome if is_inline else an_error(), None if is_inline else BIG)]
    )
    job = await rig.job(job_id)
    assert job.result_expires_ms == START_MS + 20_000
    assert await rig.store.output(job) == (b"small" if is_inline else BIG)
    rig.clock.advance(20_000)
    if not is_inline:
        await rig.redis.delete(keys.output_key(job_id, 1))  # as its time to live does
    late = await rig.job(job_id)
    assert late.state is State.SUCCEEDED
    assert await rig.store.output(late) is None


async def test_a_job_without_an_outcome_has_no_output(rig: Rig) -> None:
    job_id = await rig.submit()
    assert await rig.store.output(await rig.job(job_id)) is None


async def test_a_job_whose_record_is_gone_disappears_from_every_list(rig: Rig) -> None:
    job_id = await rig.submit()
    await rig.redis.delete(keys.job_key(job_id))
    assert await rig.claim() == []
    rig.clock.advance(3_600_000)
    await rig.store.expire()
    assert (await list_jobs(rig.connection, LOCAL_TENANT, limit=10)).jobs == []
    assert await rig.keys() == {keys.input_key(job_id)}
