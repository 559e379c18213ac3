"""Who is claimed when: priorities, due times, backoff, jobs that run alone, and entries that nobody can read."""

from __future__ import annotations

import pytest

from jobs import codec, keys
from jobs.errors import ErrorCode
from jobs.record import LOCAL_TENANT, Priority
from jobs.state import State
from jobs.store import ALONE_FROM, Inspection, Release, Retry, Suspects
from tests.support.stores import LEASE_MS, MODEL, START_MS, Rig, an_error

pytestmark = pytest.mark.anyio

HEAD_START_MS = 600_000
FOREIGN = [b"\xff\xfe", b"", b"not an id", b"0" * 32, b"A" * 32, b"\x00" * 32, "ü".encode()]


async def _claimed_ids(rig: Rig, limit: int = 100) -> list[str]:
    return [claimed.lease.job_id for claimed in await rig.claim(limit)]


async def test_jobs_are_claimed_in_the_order_of_their_submission(rig: Rig) -> None:
    ids = []
    for _ in range(12):
        ids.append(await rig.submit())
        rig.clock.advance(1)
    assert await _claimed_ids(rig, 5) + await _claimed_ids(rig, 5) + await _claimed_ids(rig, 5) == ids


async def test_a_claim_gives_what_it_was_asked_for_at_most(rig: Rig) -> None:
    for _ in range(3):
        await rig.submit()
    assert [len(await rig.claim(limit)) for limit in (0, 2, 2, 2)] == [0, 2, 1, 0]


async def test_models_have_queues_of_their_own(rig: Rig) -> None:
    a, b = await rig.submit("a"), await rig.submit("b")
    assert [claimed.lease.job_id for claimed in await rig.claim(10, model="b")] == [b]
    assert [claimed.lease.job_id for claimed in await rig.claim(10, model="a")] == [a]


async def test_a_low_priority_job_runs_at_once_when_nothing_else_waits(rig: Rig) -> None:
    low = await rig.submit(priority=Priority.LOW)
    assert await _claimed_ids(rig) == [low]


async def test_priority_is_a_head_start_in_both_directions(rig: Rig) -> None:
    normal = await rig.submit()
    low = await rig.submit(priority=Priority.LOW)
    rig.clock.advance(HEAD_START_MS - 1)
    high = await rig.submit(priority=Priority.HIGH)
    assert await _claimed_ids(rig) == [high, normal, low]


async def test_nothing_starves_behind_a_stream_of_high_priority(rig: Rig) -> None:
    low = await rig.submit(priority=Priority.LOW, queue_ttl_ms=10 * HEAD_START_MS)
    minutes = 0
    while True:
        await rig.submit(priority=Priority.HIGH)
        await rig.submit(priority=Priority.HIGH)
        if low in await _claimed_ids(rig, 1):
            break
        minutes += 1
        rig.clock.advance(60_000)
    apart_minutes = 2 * HEAD_START_MS / 60_000
    assert minutes <= 2 * (apart_minutes + 1)  # two come for each one that is claimed


async def test_a_job_with_a_start_time_waits_for_it(rig: Rig) -> None:
    later = await rig.submit(run_at_ms=START_MS + 5000, priority=Priority.HIGH)
    claim = await rig.store.claim(MODEL, 10, worker="w", lease_ms=LEASE_MS)
    assert (claim.jobs, claim.now_ms, claim.next_due_ms) == ([], START_MS, START_MS + 5000)
    inspection = await rig.store.get(later, LOCAL_TENANT)
    assert inspection is not None
    assert (inspection.rank, inspection.depth, inspection.job.due_ms) == (-1, 1, START_MS + 5000)
    rig.clock.advance(4999)
    assert await rig.claim() == []
    rig.clock.advance(1)
    assert await _claimed_ids(rig) == [later]


async def test_a_start_time_in_the_past_is_now(rig: Rig) -> None:
    past = await rig.submit(run_at_ms=1)
    assert (await rig.job(past)).due_ms == START_MS
    assert await _claimed_ids(rig) == [past]


@pytest.mark.parametrize("kind", [Retry, Release])
async def test_backoff_keeps_a_job_back_and_then_it_has_its_old_place(rig: Rig, kind: type) -> None:
    first = await rig.submit()
    lease = await rig.lease()
    await rig.store.settle([Retry(lease, an_error(), 700) if kind is Retry else Release(lease, 700)])
    rig.clock.advance(1)
    second = await rig.submit()
    assert (await rig.job(first)).due_ms == START_MS + 700
    rig.clock.advance(698)
    assert await _claimed_ids(rig, 1) == [second]
    await rig.submit()
    rig.clock.advance(1)
    assert await _claimed_ids(rig, 1) == [first]


async def test_rank_and_depth_say_how_many_wait(rig: Rig) -> None:
    ids = []
    for _ in range(3):
        ids.append(await rig.submit())
        rig.clock.advance(1)
    await rig.submit(run_at_ms=rig.clock() + 1000)
    seen = [await rig.store.get(job_id, LOCAL_TENANT) for job_id in ids]
    assert [(one.rank, one.depth) for one in seen if one] == [(0, 4), (1, 4), (2, 4)]
    await rig.lease()
    running = await rig.store.get(ids[0], LOCAL_TENANT)
    assert running is not None
    assert (running.rank, running.depth) == (-1, 0)


async def _redeliver(rig: Rig, times: int) -> None:
    for _ in range(times):
        assert len(await rig.claim()) == 1
        rig.clock.advance(LEASE_MS + 1)
        await rig.store.reap([MODEL])


async def test_a_job_that_may_kill_workers_runs_alone_and_only_in_an_idle_lane(rig: Rig) -> None:
    suspect = await rig.submit(priority=Priority.HIGH)
    await _redeliver(rig, ALONE_FROM)
    others = [await rig.submit() for _ in range(3)]
    claim = await rig.store.claim(MODEL, 10, worker="w", lease_ms=LEASE_MS, suspects=Suspects.AWAIT)
    assert (claim.jobs, claim.awaits) == ([], True)
    assert await _claimed_ids(rig, 10) == [suspect]
    assert sorted(await _claimed_ids(rig, 10)) == sorted(others)


async def test_jobs_before_and_after_a_suspect_are_claimed_without_it(rig: Rig) -> None:
    suspect = await rig.submit()
    await _redeliver(rig, ALONE_FROM)
    before = await rig.submit(priority=Priority.HIGH)
    after = await rig.submit(priority=Priority.LOW)
    assert [await _claimed_ids(rig, 10) for _ in range(4)] == [[before], [suspect], [after], []]


async def test_a_suspect_is_left_to_other_workers_and_holds_nobody_up(rig: Rig) -> None:
    suspect = await rig.submit(priority=Priority.HIGH)
    await _redeliver(rig, ALONE_FROM)
    others = [await rig.submit() for _ in range(3)]
    claim = await rig.store.claim(MODEL, 10, worker="w", lease_ms=LEASE_MS, suspects=Suspects.LEAVE)
    assert (sorted(claimed.lease.job_id for claimed in claim.jobs), claim.left) == (sorted(others), 1)
    assert await _claimed_ids(rig, 10) == [suspect]


async def test_one_redelivery_does_not_make_a_suspect(rig: Rig) -> None:
    victim = await rig.submit()
    await _redeliver(rig, ALONE_FROM - 1)
    rig.clock.advance(1)
    other = await rig.submit()
    assert [claimed.lease.job_id for claimed in await rig.claim(10, suspects=Suspects.AWAIT)] == [victim, other]


async def test_a_head_of_claimed_jobs_hides_nothing(rig: Rig) -> None:
    """B017: claimed jobs are in no one's way."""
    for _ in range(120):
        await rig.submit()
    assert len(await rig.claim(120)) == 120
    short = await rig.submit()
    assert await _claimed_ids(rig, 1) == [short]


async def _make_newer(rig: Rig, job_id: str) -> None:
    newer = codec.VERSION + 1
    await rig.redis.hset(keys.job_key(job_id), mapping={"v": newer, "request": b"\x80\x04pickle"})


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_jobs_of_a_newer_version_are_left_alone_and_block_nobody(rig: Rig, limit: int) -> None:
    """B021."""
    newer = []
    for _ in range(7):
        newer.append(await rig.submit(priority=Priority.HIGH))
        await _make_newer(rig, newer[-1])
    ours = await rig.submit()
    claim = await rig.store.claim(MODEL, limit, worker="w", lease_ms=LEASE_MS)
    assert [claimed.lease.job_id for claimed in claim.jobs] == [ours]
    assert (claim.dropped, claim.left) == (0, 7)
    assert {await rig.state(job_id) for job_id in newer} == {State.QUEUED}
    assert await rig.redis.zcard(keys.ready_key(MODEL)) == 7


async def test_foreign_members_of_a_queue_are_dropped_and_counted(rig: Rig) -> None:
    """V05."""
    for member in FOREIGN:
        await rig.redis.zadd(keys.ready_key(MODEL), {member: 0})
        await rig.redis.zadd(keys.scheduled_key(MODEL), {member + b"!": 0})
    ours = await rig.submit()
    claim = await rig.store.claim(MODEL, 2, worker="w", lease_ms=LEASE_MS)
    assert [claimed.lease.job_id for claimed in claim.jobs] == [ours]
    again = await rig.store.claim(MODEL, 2, worker="w", lease_ms=LEASE_MS)
    assert claim.dropped + again.dropped == 2 * len(FOREIGN)
    assert await rig.redis.exists(keys.ready_key(MODEL), keys.scheduled_key(MODEL)) == 0


async def test_foreign_members_of_leases_and_of_open_jobs_are_dropped(rig: Rig) -> None:
    """V05."""
    for member in FOREIGN:
        for key in (keys.leased_key(MODEL), keys.OPEN_KEY, keys.FORGET_KEY):
            await rig.redis.zadd(key, {member: 0})
    assert (await rig.store.reap([MODEL]))[MODEL] == ([], [])
    assert await rig.store.expire() == ([], [])
    assert await rig.keys() == set()


async def test_a_key_of_another_kind_where_a_record_should_be_stops_nobody(rig: Rig) -> None:
    """V05."""
    await rig.redis.set(keys.job_key("x" * 32), b"a string")
    for key in (keys.ready_key(MODEL), keys.scheduled_key(MODEL), keys.leased_key(MODEL), keys.OPEN_KEY):
        await rig.redis.zadd(key, {"x" * 32: 0})
    ours = await rig.submit()
    assert await _claimed_ids(rig) == [ours]
    await rig.store.reap([MODEL])
    await rig.store.expire()
    assert await rig.redis.zscore(keys.OPEN_KEY, "x" * 32) is None


@pytest.mark.parametrize("field", ["v", "attempt", "failures", "redeliveries", "queue_deadline_ms", "score"])
@pytest.mark.parametrize("damage", [None, "nonsense"])
async def test_a_record_with_a_damaged_field_harms_no_other_job(rig: Rig, field: str, damage: str | None) -> None:
    damaged = await rig.submit(run_at_ms=START_MS + 1, priority=Priority.HIGH)
    if damage is None:
        await rig.redis.hdel(keys.job_key(damaged), field)
    else:
        await rig.redis.hset(keys.job_key(damaged), field, damage)
    rig.clock.advance(1)
    ours = await rig.submit()
    assert ours in await _claimed_ids(rig)
    rig.clock.advance(LEASE_MS + 1)
    await rig.store.reap([MODEL])
    rig.clock.advance(3_600_000)
    await rig.store.expire()
    state = await rig.state(damaged)
    assert state is not None
    assert state.is_terminal or field in ("v", "score")


@pytest.mark.parametrize("damage", [b"", b"\x80\x04\x95pickle", b"\xc1", b"\x92\x01\xc0", b"\x92\x01\x81\xa5model\x01"])
async def test_a_damaged_request_fails_its_job_alone(rig: Rig, damage: bytes) -> None:
    """B021: nothing is unpickled, nobody dies, and the job's owner is told."""
    damaged = await rig.submit(priority=Priority.HIGH)
    await rig.redis.hset(keys.job_key(damaged), mapping={"request": damage})
    ours = await rig.submit()
    assert await _claimed_ids(rig) == [ours]
    assert await rig.state(damaged) is State.FAILED
    with pytest.raises(codec.CodecError):
        await rig.store.get(damaged, LOCAL_TENANT)
    wanted = [(ours, LOCAL_TENANT), (damaged, LOCAL_TENANT), (ours, "other"), ("0" * 32, LOCAL_TENANT)]
    found = await rig.store.get_many(wanted)
    assert isinstance(found[0], Inspection)
    assert found[0].job.id == ours
    assert isinstance(found[1], codec.CodecError)
    assert found[2:] == [None, None]
    assert await rig.store.get_many([]) == []


async def test_a_running_job_that_nobody_holds_is_found_and_failed(rig: Rig) -> None:
    job_id = await rig.submit()
    await rig.lease()
    await rig.redis.delete(keys.leased_key(MODEL))
    rig.clock.advance(3_600_000)
    swept = await rig.store.expire()
    assert (swept.expired, swept.lost) == ([], [job_id])
    job = await rig.job(job_id)
    assert job.state is State.FAILED
    assert job.outcome is not None
    assert job.outcome.error is not None
    assert job.outcome.error.code is ErrorCode.LOST
