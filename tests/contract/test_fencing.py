"""The attempt number fences: whoever lost a lease changes nothing, and leaves nothing behind."""

from __future__ import annotations

import pytest

from jobs import keys
from jobs.connection import Call
from jobs.errors import ErrorCode
from jobs.record import LOCAL_TENANT
from jobs.state import State
from jobs.store import MAX_REDELIVERIES, Canceled, Fail, Lease, Release, Retry, Settled, Succeed
from tests.support.stores import LEASE_MS, MODEL, Rig, a_result, a_submission, an_error

pytestmark = pytest.mark.anyio

BIG_A, BIG_B = b"A" * 5000, b"B" * 5000


async def _lose_the_lease(rig: Rig) -> Lease:
    """A's lease of a job; its worker sleeps until the job is taken back."""
    lease = await rig.lease()
    rig.clock.advance(LEASE_MS + 1)
    reaped = await rig.store.reap([MODEL])
    assert reaped[MODEL].requeued == [lease.job_id]
    return lease


async def test_the_result_of_the_worker_that_took_over_stands(rig: Rig) -> None:
    """V01: a job that outlives its lease runs twice, and one result is visible."""
    job_id = await rig.submit()
    a = await _lose_the_lease(rig)
    b = await rig.lease()
    assert b == Lease(job_id, 2)

    assert await rig.store.settle([Succeed(a, a_result("A"), BIG_A)]) == {a: Settled.LEASE_LOST}
    assert await rig.state(job_id) is State.IN_PROGRESS
    assert await rig.store.settle([Succeed(b, a_result("B"), BIG_B)]) == {b: Settled.OK}
    assert await rig.store.settle([Succeed(a, a_result("A"), BIG_A)]) == {a: Settled.LEASE_LOST}

    job = await rig.job(job_id)
    assert (job.state, job.attempt, job.redeliveries) == (State.SUCCEEDED, 2, 1)
    assert job.outcome is not None
    assert job.outcome.inline == b"B"
    assert await rig.redis.get(keys.output_key(job_id, 2)) == BIG_B
    assert keys.output_key(job_id, 1) not in await rig.keys()


async def test_the_output_of_a_fenced_worker_is_never_served(rig: Rig) -> None:
    job_id = await rig.submit()
    a = await _lose_the_lease(rig)
    b = await rig.lease()
    outcome = a_result()
    await rig.store.settle([Succeed(b, type(outcome)(outputs=outcome.outputs), BIG_B)])
    await rig.redis.set(keys.output_key(job_id, a.attempt), BIG_A)  # written, and the worker died before it settled
    assert await rig.store.output(await rig.job(job_id)) == BIG_B


async def test_a_lost_lease_can_not_be_renewed(rig: Rig) -> None:
    await rig.submit()
    await rig.submit()
    a = await rig.lease()
    kept = await rig.lease()
    rig.clock.advance(LEASE_MS - 1)
    assert await rig.store.extend([kept], LEASE_MS) == set()
    rig.clock.advance(2)
    await rig.store.reap([MODEL])
    assert await rig.store.extend([a, kept], LEASE_MS) == {a}
    assert await rig.store.extend([], LEASE_MS) == set()


async def test_a_lease_that_ran_out_unseen_is_still_its_owners(rig: Rig) -> None:
    """Nobody took the job: there is nothing to be gained from dropping the result."""
    await rig.submit()
    lease = await rig.lease()
    rig.clock.advance(10 * LEASE_MS)
    assert await rig.store.extend([lease], LEASE_MS) == set()
    assert (await rig.store.reap([MODEL]))[MODEL] == ([], [])
    assert await rig.store.settle([Succeed(lease, a_result())]) == {lease: Settled.OK}


@pytest.mark.parametrize("late", [Succeed, Fail, Retry, Release])
async def test_no_late_settlement_changes_a_success(rig: Rig, late: type) -> None:
    """Not even one of the same attempt: the output that stands is not touched."""
    job_id = await rig.submit()
    lease = await rig.lease()
    outcome = a_result()
    await rig.store.settle([Succeed(lease, outcome, BIG_B)])
    before = await rig.snapshot()
    rest = {Succeed: (a_result("other"), BIG_A), Fail: (an_error(),), Retry: (an_error(), 0), Release: ()}
    await rig.store.settle([late(lease, *rest[late])])
    assert await rig.snapshot() == before
    assert await rig.redis.get(keys.output_key(job_id, 1)) == BIG_B


async def test_a_running_job_that_is_canceled_drops_its_result(rig: Rig) -> None:
    """B011, B013: canceled is not failed, and the attempt under way can't undo it."""
    job_id = await rig.submit()
    lease = await rig.lease()
    assert await rig.store.cancel(job_id, LOCAL_TENANT) is Canceled.STOPPING
    assert await rig.store.extend([lease], LEASE_MS) == {lease}
    assert await rig.store.settle([Succeed(lease, a_result(), BIG_A)]) == {lease: Settled.LEASE_LOST}
    job = await rig.job(job_id)
    assert (job.state, job.outcome) == (State.CANCELED, None)
    assert keys.output_key(job_id, 1) not in await rig.keys()


async def test_one_lost_lease_in_a_block_harms_no_other(rig: Rig) -> None:
    for _ in range(6):
        await rig.submit()
    leases = [claimed.lease for claimed in await rig.claim(6)]
    await rig.store.cancel(leases[0].job_id, LOCAL_TENANT)
    replies = await rig.store.settle(
        [
            Succeed(leases[0], a_result(), BIG_A),
            Succeed(leases[1], a_result(), BIG_A),
            Succeed(leases[2], a_result()),
            Fail(leases[3], an_error()),
            Retry(leases[4], an_error(), 0),
            Release(leases[5]),
        ]
    )
    assert replies == dict.fromkeys(leases, Settled.OK) | {leases[0]: Settled.LEASE_LOST}
    assert [await rig.state(lease.job_id) for lease in leases] == [
        State.CANCELED,
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.FAILED,
        State.QUEUED,
        State.QUEUED,
    ]


async def test_a_job_runs_again_three_times_after_its_worker_died_and_then_fails(rig: Rig) -> None:
    """B001: redelivery follows the lease, whatever the job's own timeout is."""
    job_id = await rig.submit(timeout_ms=3_600_000)
    for attempt in range(1, MAX_REDELIVERIES + 2):
        assert (await rig.lease()).attempt == attempt
        rig.clock.advance(LEASE_MS + 1)
        reaped = (await rig.store.reap([MODEL]))[MODEL]
        assert (reaped.requeued, reaped.failed) == (([job_id], []) if attempt <= MAX_REDELIVERIES else ([], [job_id]))
    job = await rig.job(job_id)
    assert (job.state, job.attempt, job.failures) == (State.FAILED, 4, 0)
    assert job.outcome is not None
    assert job.outcome.error is not None
    assert job.outcome.error.code is ErrorCode.WORKER_LOST
    assert await rig.claim() == []


async def test_retries_count_failures_and_releases_count_nothing(rig: Rig) -> None:
    """B003: a deploy that gives jobs back costs them no attempt of theirs."""
    job_id = await rig.submit()
    for _ in range(6):
        await rig.store.settle([Release(await rig.lease())])
    for _ in range(2):
        await rig.store.settle([Retry(await rig.lease(), an_error(), 0)])
    job = await rig.job(job_id)
    assert (job.state, job.attempt, job.failures, job.redeliveries) == (State.QUEUED, 8, 2, 0)


async def test_a_lost_output_fails_nobody_and_is_asked_for_again(rig: Rig) -> None:
    """The script settles only what is there: an output that was not written leaves the attempt open."""
    job_id = await rig.submit()
    lease = await rig.lease()
    script = (rig.clock(), job_id, 1, 1, a_result().encode())  # the call of `settle`, without its SET
    (words,) = await rig.connection.run(Call(*script, script="succeed"))
    assert words == [b"NO_OUTPUT"]
    assert await rig.state(job_id) is State.IN_PROGRESS
    assert await rig.store.settle([Succeed(lease, a_result(), BIG_A)]) == {lease: Settled.OK}


async def test_a_worker_may_hold_any_number_of_jobs(rig: Rig) -> None:
    """No script takes more at once than Lua's stack bears."""
    count = 4500 if rig.is_real else 1100
    for _ in range(count // 100):
        await rig.store.submit_many([a_submission() for _ in range(100)])
    leases = []
    while claimed := await rig.claim(count):
        leases += [one.lease for one in claimed]
    assert len(leases) == count
    assert await rig.store.extend(leases, 2 * LEASE_MS) == set()
    assert set((await rig.store.settle([Succeed(lease, a_result()) for lease in leases])).values()) == {Settled.OK}
