"""A Redis at its memory limit takes no new job, lets the running ones finish, and heals by itself (B022)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from inferq.stack import StackEnvironment
from jobs import keys
from jobs.connection import StoreFull
from jobs.load import MEMORY_SHARE
from jobs.record import LOCAL_TENANT, OutputPart
from jobs.registry import WorkerBeat
from jobs.state import State
from jobs.store import Canceled, Fail, Lease, Release, Retry, Settled, Settlement, Submitted, Succeed
from tests.contract.valkeys import configured, store_at
from tests.support.stores import LEASE_MS, MODEL, Rig, a_result, a_submission, an_error, open_rig

pytestmark = [pytest.mark.anyio, pytest.mark.server]

BIG = b"o" * 100_000


@pytest.fixture(scope="module")
def small_url(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey of this module's own, whose limit a test may set."""
    with configured(stack_environment, tmp_path_factory.mktemp("small"), "appendonly no") as server:
        yield server.url


@pytest.fixture
async def full(small_url: str) -> AsyncIterator[Rig]:
    """Six jobs run, one waits and one is late; then memory runs out."""
    async with open_rig(small_url) as rig:
        await rig.redis.config_set("maxmemory", 0)
        await rig.store.submit_many([a_submission(queue_ttl_ms=1000) for _ in range(6)])
        rig.clock.advance(1)
        yield rig
        await rig.redis.config_set("maxmemory", 0)


async def _fill(rig: Rig) -> None:
    """From now on Redis is over its limit: whatever needs memory is refused."""
    await rig.redis.config_set("maxmemory", 1)


async def _leases(rig: Rig, count: int = 6) -> list[Lease]:
    return [claimed.lease for claimed in await rig.claim(count)]


async def test_a_submit_is_refused_and_leaves_nothing(full: Rig) -> None:
    await _fill(full)
    before = await full.snapshot()
    for payload in (b"x", BIG, b""):
        with pytest.raises(StoreFull):
            await full.submit(payload=payload, idempotency_key="k")
    assert await full.snapshot() == before


async def test_the_share_for_new_jobs_is_kept_to_the_block_by_many_that_fill_it_at_once(full: Rig) -> None:
    """T: Quotas, T: Redis: memory is looked at in the submit's own round trip, once for all jobs of a block."""
    limit, block = 40_000_000, 10
    await full.redis.config_set("maxmemory", limit)
    await full.redis.config_resetstat()
    blocks = [[a_submission(payload=BIG) for _ in range(block)] for _ in range(60)]
    replies = await asyncio.gather(*(full.store.submit_many(jobs) for jobs in blocks))
    words = Counter(reply.word for jobs in replies for reply in jobs)
    assert set(words) == {Submitted.OK, Submitted.NO_MEMORY}
    used = int((await full.redis.info("memory"))["used_memory"])
    assert (MEMORY_SHARE - 0.1) * limit < used < (MEMORY_SHARE + 0.02) * limit
    inputs = [key async for key in full.redis.scan_iter(f"{keys.input_key('')}*", count=1000)]
    assert len(inputs) == words[Submitted.OK] + 6  # those of the fixture
    asked = (await full.redis.info("commandstats"))["cmdstat_info"]
    assert asked["calls"] <= len(blocks) + 1


async def test_of_a_block_as_many_are_taken_as_there_is_memory_for(full: Rig) -> None:
    used = int((await full.redis.info("memory"))["used_memory"])
    await full.redis.config_set("maxmemory", round((used + 5 * len(BIG)) / MEMORY_SHARE))
    replies = await full.store.submit_many([a_submission(payload=BIG) for _ in range(10)])
    assert 2 <= [reply.word for reply in replies].count(Submitted.OK) <= 6


async def test_who_may_not_ask_for_the_memory_is_held_to_no_share_of_it(full: Rig) -> None:
    await full.redis.config_set("maxmemory", 40_000_000)
    await full.redis.acl_setuser(
        "blind", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all", "-info"]
    )
    try:
        async with store_at(full.settings.redis_url.replace("//", "//blind:any@")) as store:
            assert (await store.submit(a_submission())).word is Submitted.OK
    finally:
        await full.redis.acl_deluser("blind")


async def test_an_idempotency_key_still_answers_with_its_job(full: Rig) -> None:
    first = await full.submit_reply(idempotency_key="k", fingerprint="f")
    await _fill(full)
    again = await full.submit_reply(idempotency_key="k", fingerprint="f")
    assert again[:2] == (Submitted.REPLAYED, first.job_id)


async def test_a_block_says_of_each_job_whether_it_found_room(full: Rig) -> None:
    """A caller that is told of a failure submits again: no job may have been stored behind its back."""
    first = a_submission(idempotency_key="k", fingerprint="f")
    await full.store.submit(first)
    await _fill(full)
    before = await full.snapshot()
    again = a_submission(idempotency_key="k", fingerprint="f")
    new = a_submission()
    assert [reply[:2] for reply in await full.store.submit_many([again, new])] == [
        (Submitted.REPLAYED, first.id),
        (Submitted.NO_MEMORY, new.id),
    ]
    assert await full.snapshot() == before


async def test_waiting_jobs_are_claimed_and_their_leases_renewed(full: Rig) -> None:
    await _fill(full)
    leases = await _leases(full)
    assert len(leases) == 6
    assert await full.store.extend(leases, 2 * LEASE_MS) == set()
    full.clock.advance(LEASE_MS + 1)
    assert (await full.store.reap([MODEL]))[MODEL] == ([], [])


async def test_running_jobs_end_in_every_way(full: Rig) -> None:
    leases = await _leases(full)
    await _fill(full)
    replies = await full.store.settle(
        [
            Succeed(leases[0], a_result()),
            Fail(leases[1], an_error()),
            Retry(leases[2], an_error(), 500),
            Release(leases[3]),
        ]
    )
    assert set(replies.values()) == {Settled.OK}
    assert await full.store.cancel(leases[4].job_id, LOCAL_TENANT) is Canceled.STOPPING
    full.clock.advance(LEASE_MS + 1)
    assert (await full.store.reap([MODEL]))[MODEL].requeued == [leases[5].job_id]
    assert set((await full.store.expire()).expired) == {leases[2].job_id, leases[3].job_id, leases[5].job_id}


async def test_a_large_result_is_kept_although_there_is_no_room(full: Rig) -> None:
    """A success without its output would be worse than a refusal."""
    leases = await _leases(full)
    await _fill(full)
    outcome = a_result()
    outcome = type(outcome)(outputs=(OutputPart("y", outcome.outputs[0].datatype, (len(BIG),), len(BIG)),))
    settlements: list[Settlement] = [
        Succeed(leases[0], outcome, BIG),
        Succeed(leases[1], a_result("inline")),
        Retry(leases[2], an_error(), 0),
        Succeed(leases[3], outcome, memoryview(BIG)),
    ]
    assert await full.store.settle(settlements) == dict.fromkeys(leases[:4], Settled.OK)
    for lease in (leases[0], leases[3]):
        job = await full.job(lease.job_id)
        assert job.state is State.SUCCEEDED
        assert await full.store.output(job) == BIG
        assert await full.redis.pttl(keys.output_key(*lease)) > 60_000


async def test_workers_still_say_that_they_live(full: Rig) -> None:
    await _fill(full)
    beat = WorkerBeat("w", "host", 1, "1.0")
    await full.registry.beat(beat)
    assert await full.registry.workers() == [beat]


async def test_jobs_can_be_looked_at_and_deleted(full: Rig) -> None:
    (lease, *_) = await _leases(full)
    await _fill(full)
    assert (await full.job(lease.job_id)).state is State.IN_PROGRESS
    await full.store.delete(lease.job_id, LOCAL_TENANT, force=True)
    assert await full.store.get(lease.job_id, LOCAL_TENANT) is None


async def test_it_heals_by_itself(full: Rig) -> None:
    """What ends frees its payload: the next submit finds room."""
    replies = await full.store.submit_many([a_submission(payload=BIG) for _ in range(40)])
    used = int((await full.redis.info("memory"))["used_memory"])
    await full.redis.config_set("maxmemory", used - 1_000_000)
    with pytest.raises(StoreFull):
        await full.submit()
    for lease in await _leases(full, 46):
        await full.store.settle([Succeed(lease, a_result())])
    assert {await full.state(reply.job_id) for reply in replies} == {State.SUCCEEDED}
    assert await full.submit()
