"""Every (state, event) pair of the table on both servers: what it allows happens, all else changes nothing at all."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from itertools import product
from pathlib import Path

import pytest

import jobs
from jobs import keys
from jobs.record import LOCAL_TENANT
from jobs.state import TRANSITIONS, Event, State
from jobs.store import MAX_REDELIVERIES, Fail, JobStore, Lease, Release, Retry, Settled, Submission, Succeed
from tests.support.stores import LEASE_MS, MODEL, Rig, Snapshot, a_result, a_submission, an_error

pytestmark = pytest.mark.anyio

Reach = Callable[[Rig, Submission], Awaitable[Lease]]


async def _absent(rig: Rig, job: Submission) -> Lease:
    return Lease(job.id, 1)


async def _queued(rig: Rig, job: Submission) -> Lease:
    """Queued for the second time, so that a late settlement has an attempt number to present."""
    lease = await _in_progress(rig, job)
    await rig.store.settle([Release(lease)])
    return lease


async def _in_progress(rig: Rig, job: Submission) -> Lease:
    await rig.store.submit(job)
    return await rig.lease()


async def _succeeded(rig: Rig, job: Submission) -> Lease:
    lease = await _in_progress(rig, job)
    await rig.store.settle([Succeed(lease, a_result(), b"output" * 1000)])
    return lease


async def _failed(rig: Rig, job: Submission) -> Lease:
    lease = await _in_progress(rig, job)
    await rig.store.settle([Fail(lease, an_error())])
    return lease


async def _canceled(rig: Rig, job: Submission) -> Lease:
    lease = await _in_progress(rig, job)
    await rig.store.cancel(job.id, LOCAL_TENANT)
    return lease


async def _expired(rig: Rig, job: Submission) -> Lease:
    lease = await _queued(rig, job)
    rig.clock.advance(job.request.queue_ttl_ms)
    await rig.store.expire()
    return lease


REACH: Mapping[State | None, Reach] = {
    None: _absent,
    State.QUEUED: _queued,
    State.IN_PROGRESS: _in_progress,
    State.SUCCEEDED: _succeeded,
    State.FAILED: _failed,
    State.CANCELED: _canceled,
    State.EXPIRED: _expired,
}


async def _happen(rig: Rig, event: Event, job: Submission, lease: Lease) -> None:
    """Let `event` happen as it would in the product, with time moved to where it is due."""
    store = rig.store
    match event:
        case Event.SUBMIT:
            await store.submit(job)
        case Event.CLAIM:
            await rig.claim()
        case Event.SUCCEED:
            await store.settle([Succeed(lease, a_result("late"), b"late output" * 1000)])
        case Event.FAIL:
            await store.settle([Fail(lease, an_error(detail="late"))])
        case Event.RETRY:
            await store.settle([Retry(lease, an_error(detail="late"), delay_ms=0)])
        case Event.RELEASE:
            await store.settle([Release(lease)])
        case Event.REAP:
            rig.clock.advance(LEASE_MS + 1)
            await store.reap([MODEL])
        case Event.CANCEL:
            await store.cancel(job.id, LOCAL_TENANT)
        case Event.EXPIRE:
            rig.clock.advance(job.request.queue_ttl_ms + 1)
            await store.expire([job.id])
            await store.expire()


def _but_for_the_sweepers_plan(snapshot: Snapshot) -> Snapshot:
    """When the sweeper looks at an open job again is its own affair; that the job is open is not."""
    entries, has_ttl = snapshot.get(keys.OPEN_KEY.encode(), ([], False))
    assert isinstance(entries, list)
    return snapshot | {keys.OPEN_KEY.encode(): ([member for member, _ in entries], has_ttl)}


@pytest.mark.parametrize(("state", "event"), list(product(REACH, Event)))
async def test_the_table_alone_says_what_happens(rig: Rig, state: State | None, event: Event) -> None:
    job = a_submission()
    lease = await REACH[state](rig, job)
    assert await rig.state(job.id) == state
    if (state, event) not in TRANSITIONS:
        await rig.claim(0)  # an empty claim hushes the bell, which is no part of a job
    before = await rig.snapshot()

    await _happen(rig, event, job, lease)

    allowed = TRANSITIONS.get((state, event))
    if allowed is None:
        assert _but_for_the_sweepers_plan(await rig.snapshot()) == _but_for_the_sweepers_plan(before)
    else:
        assert await rig.state(job.id) in allowed


async def test_a_reap_leads_to_both_states_that_the_table_names(rig: Rig) -> None:
    job_id = await rig.submit()
    seen = set()
    for _ in range(MAX_REDELIVERIES + 1):
        await rig.lease()
        rig.clock.advance(LEASE_MS + 1)
        await rig.store.reap([MODEL])
        seen.add(await rig.state(job_id))
    assert seen == TRANSITIONS[State.IN_PROGRESS, Event.REAP]


@pytest.mark.parametrize("settlement", [Succeed, Fail])
async def test_a_settlement_that_happened_is_told_apart_from_a_lost_lease(rig: Rig, settlement: type) -> None:
    job = a_submission()
    lease = await _in_progress(rig, job)
    assert await rig.store.settle([settlement(lease, a_result())]) == {lease: Settled.OK}
    assert await rig.store.settle([settlement(lease, a_result())]) == {lease: Settled.ALREADY}
    stale = Lease(job.id, lease.attempt + 1)
    assert await rig.store.settle([settlement(stale, a_result())]) == {stale: Settled.LEASE_LOST}


@pytest.mark.parametrize("event", Event)
def test_each_event_has_a_script_of_its_name_and_a_method_or_settlement(event: Event) -> None:
    script = Path(inspect.getfile(jobs)).parent / "lua" / f"{event}.lua"
    assert script.is_file()
    settlements = {settlement.__name__.lower() for settlement in (Succeed, Fail, Retry, Release)}
    assert event in settlements or callable(getattr(JobStore, event))
