"""The doorbell: while a job is ready, some idle worker is awake or about to be; with none ready, nobody is woken."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest

from jobs import codec, keys
from jobs.record import Priority
from jobs.store import Release, Suspects
from tests.support.stores import LEASE_MS, MODEL, START_MS, Rig, a_submission

pytestmark = pytest.mark.anyio


async def _tokens(rig: Rig) -> int:
    return int(await rig.redis.llen(keys.wake_key(MODEL)))


async def _take_token(rig: Rig) -> bool:
    return await rig.redis.lpop(keys.wake_key(MODEL)) is not None


async def test_a_submit_wakes_a_worker_that_waits(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.store.wait_for_work(MODEL, 2.0))
    job_id = await rig.submit()
    assert await waiting
    assert (await rig.lease()).job_id == job_id
    assert await _tokens(rig) == 0


async def test_nobody_is_woken_for_another_model(rig: Rig) -> None:
    await rig.submit("other")
    assert not await rig.store.wait_for_work(MODEL, 0.02)


async def test_any_number_of_submits_leave_one_token(rig: Rig) -> None:
    await rig.store.submit_many([a_submission() for _ in range(50)])
    assert await _tokens(rig) == 1
    assert await rig.redis.pttl(keys.wake_key(MODEL)) > 0


async def test_a_claim_that_leaves_work_rings_for_the_next_worker(rig: Rig) -> None:
    await rig.store.submit_many([a_submission() for _ in range(5)])
    for left in (3, 1, 0):
        assert await _take_token(rig)
        await rig.claim(2)
        assert await _tokens(rig) == (left > 0)
    assert not await _take_token(rig)


async def test_a_claim_that_empties_the_queue_hushes_the_bell(rig: Rig) -> None:
    await rig.store.submit_many([a_submission() for _ in range(5)])
    await rig.claim(5)
    assert await _tokens(rig) == 0


async def test_a_job_that_comes_back_rings(rig: Rig) -> None:
    await rig.submit()
    lease = await rig.lease()
    await rig.store.settle([Release(lease)])
    assert await _take_token(rig)
    await rig.lease()
    rig.clock.advance(LEASE_MS + 1)
    await rig.store.reap([MODEL])
    assert await _take_token(rig)


async def test_a_scheduled_job_rings_once_so_that_somebody_learns_when_it_is_due(rig: Rig) -> None:
    await rig.submit(run_at_ms=START_MS + 1000)
    assert await _take_token(rig)
    claim = await rig.store.claim(MODEL, 1, worker="w", lease_ms=LEASE_MS)
    assert claim.next_due_ms == START_MS + 1000
    assert await _tokens(rig) == 0


@pytest.mark.parametrize("obstacle", ["newer version", "suspect"])
async def test_work_that_this_worker_may_not_take_does_not_wake_it_again_and_again(rig: Rig, obstacle: str) -> None:
    job_id = await rig.submit(priority=Priority.HIGH)
    field = {"v": codec.VERSION + 1} if obstacle == "newer version" else {"redeliveries": 2}
    await rig.redis.hset(keys.job_key(job_id), mapping=field)
    assert await _take_token(rig)
    assert await rig.claim(4, suspects=Suspects.AWAIT) == []
    assert await _tokens(rig) == 0


@dataclass
class _Worker:
    """An idle worker's loop without its waiting: take a token, claim until a claim comes back short, wait again."""

    rig: Rig
    size: int
    is_waiting: bool = False
    wakes: int = 0
    claimed: int = 0

    async def step(self) -> None:
        if self.is_waiting:
            if not await _take_token(self.rig):
                return
            self.is_waiting = False
            self.wakes += 1
        jobs = await self.rig.claim(self.size)
        self.claimed += len(jobs)
        self.is_waiting = len(jobs) < self.size


@pytest.mark.parametrize("seed", range(5))
async def test_no_interleaving_leaves_a_ready_job_while_every_worker_waits(rig: Rig, seed: int) -> None:
    """A model of several workers and submitters: no lost wake-up, and no more wakes than there was work."""
    rng = random.Random(seed)
    workers = [_Worker(rig, size=rng.choice([1, 2, 5])) for _ in range(3)]
    submitted = 0
    for _ in range(60):
        if rng.random() < 0.4:
            count = rng.choice([1, 1, 2, 9])
            await rig.store.submit_many([a_submission() for _ in range(count)])
            submitted += count
        else:
            await rng.choice(workers).step()
        if all(worker.is_waiting for worker in workers) and await rig.redis.zcard(keys.ready_key(MODEL)):
            assert await _tokens(rig) == 1
    for _ in range(4 * (submitted + 1)):
        for worker in workers:
            await worker.step()
        if all(worker.is_waiting for worker in workers) and await _tokens(rig) == 0:
            break
    assert sum(worker.claimed for worker in workers) == submitted
    assert all(worker.is_waiting for worker in workers)
    assert sum(worker.wakes for worker in workers) <= 2 * submitted


async def test_idle_workers_take_a_burst_between_them_without_waiting_for_their_poll(rig: Rig) -> None:
    taken: list[str] = []
    everything = asyncio.Event()

    async def work() -> None:
        while not everything.is_set():
            if await rig.store.wait_for_work(MODEL, 2.0):
                taken.extend(claimed.lease.job_id for claimed in await rig.claim(3))
            if len(taken) == 30:
                everything.set()

    async with asyncio.timeout(2.0), asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(3)]
        replies = await rig.store.submit_many([a_submission() for _ in range(30)])
        await everything.wait()
        for worker in workers:
            worker.cancel()
    assert sorted(taken) == sorted(reply.job_id for reply in replies)
