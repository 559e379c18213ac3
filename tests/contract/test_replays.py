"""Every call bears repetition: a reply that gets lost on the way changes what is stored once, not twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jobs import keys
from jobs.record import LOCAL_TENANT
from jobs.state import State
from jobs.store import Canceled, Deleted, Fail, Release, Retry, Settled, Submitted, Succeed
from tests.support.databases import Database
from tests.support.proxy import RedisProxy, proxy_to
from tests.support.stores import LEASE_MS, MODEL, PAYLOAD, Rig, a_result, a_submission, an_error, open_rig

pytestmark = pytest.mark.anyio

BIG = b"o" * 5000
MINUTE_MS = 60_000


async def test_a_repeated_submit_stores_one_job_and_keeps_its_payload_alive(rig: Rig) -> None:
    job = a_submission(idempotency_key="k", fingerprint="f")
    first = await rig.store.submit(job)
    before = await rig.snapshot()
    created_ms = rig.clock.now_ms
    rig.clock.advance(5)
    again = await rig.store.submit(job)
    assert again[:2] == first[:2] == (Submitted.OK, job.id)
    assert again.created_ms == first.created_ms == created_ms
    assert await rig.snapshot() == before
    assert await rig.redis.pttl(keys.input_key(job.id)) > MINUTE_MS


async def test_a_repeated_settle_keeps_the_output_alive(rig: Rig) -> None:
    job_id = await rig.submit()
    lease = await rig.lease()
    success = Succeed(lease, a_result(), BIG)
    assert await rig.store.settle([success]) == {lease: Settled.OK}
    before = await rig.snapshot()
    assert await rig.store.settle([success]) == {lease: Settled.ALREADY}
    assert await rig.snapshot() == before
    assert await rig.redis.pttl(keys.output_key(job_id, 1)) > MINUTE_MS


@pytest.mark.parametrize("kind", [Retry, Release])
async def test_a_repeated_retry_or_release_counts_once(rig: Rig, kind: type) -> None:
    job_id = await rig.submit()
    lease = await rig.lease()
    settlement = Retry(lease, an_error(), 500) if kind is Retry else Release(lease, 500)
    assert await rig.store.settle([settlement]) == {lease: Settled.OK}
    before = await rig.snapshot()
    assert await rig.store.settle([settlement]) == {lease: Settled.LEASE_LOST}
    assert await rig.snapshot() == before
    assert (await rig.job(job_id)).failures == (kind is Retry)


async def test_the_same_lease_twice_in_one_block_ends_once(rig: Rig) -> None:
    await rig.submit()
    lease = await rig.lease()
    assert await rig.store.settle([Fail(lease, an_error()), Fail(lease, an_error())]) == {lease: Settled.ALREADY}


async def test_a_repeated_cancel_and_delete_say_what_they_find(rig: Rig) -> None:
    job_id = await rig.submit()
    assert await rig.store.cancel(job_id, LOCAL_TENANT) is Canceled.CANCELED
    before = await rig.snapshot()
    assert await rig.store.cancel(job_id, LOCAL_TENANT) is Canceled.DONE
    assert await rig.snapshot() == before
    assert await rig.store.delete(job_id, LOCAL_TENANT, force=False) is Deleted.OK
    assert await rig.store.delete(job_id, LOCAL_TENANT, force=False) is Deleted.NOT_FOUND


async def test_a_repeated_reap_and_sweep_find_nothing_more(rig: Rig) -> None:
    await rig.submit(queue_ttl_ms=1000)
    await rig.submit()
    held = await rig.lease()
    rig.clock.advance(LEASE_MS + 1)
    await rig.store.reap([MODEL])
    await rig.store.expire()
    before = await rig.snapshot()
    assert (await rig.store.reap([MODEL]))[MODEL] == ([], [])
    assert await rig.store.expire() == ([], [])
    assert await rig.snapshot() == before
    assert held.attempt == 1


@pytest.fixture
async def proxy(valkey_url: str) -> AsyncIterator[RedisProxy]:
    async with proxy_to(Database.STORES.at(valkey_url)) as opened:
        yield opened


@pytest.fixture
async def cut(proxy: RedisProxy) -> AsyncIterator[Rig]:
    """A store behind the proxy, its scripts loaded: the next reply is the one that the test means."""
    async with open_rig(proxy.url) as opened:
        await opened.submit()
        await opened.store.settle([Succeed(await opened.lease(), a_result())])
        yield opened


@pytest.mark.server
async def test_a_submit_whose_reply_is_lost_is_sent_again_and_stored_once(proxy: RedisProxy, cut: Rig) -> None:
    proxy.lose_next_reply()
    job_id = await cut.submit()
    assert proxy.lost == 1
    (claimed,) = await cut.claim(10)
    assert claimed.lease.job_id == job_id
    assert await cut.store.load([job_id]) == [PAYLOAD]
    assert await cut.redis.pttl(keys.input_key(job_id)) > MINUTE_MS


@pytest.mark.server
async def test_a_settle_whose_reply_is_lost_counts_once(proxy: RedisProxy, cut: Rig) -> None:
    job_id = await cut.submit()
    lease = await cut.lease()
    proxy.lose_next_reply()
    assert await cut.store.settle([Succeed(lease, a_result(), BIG)]) == {lease: Settled.ALREADY}
    assert proxy.lost == 1
    assert await cut.state(job_id) is State.SUCCEEDED
    assert await cut.redis.pttl(keys.output_key(job_id, 1)) > MINUTE_MS


@pytest.mark.server
async def test_jobs_of_a_claim_whose_reply_is_lost_come_back_when_their_lease_ends(proxy: RedisProxy, cut: Rig) -> None:
    first = await cut.submit()
    cut.clock.advance(1)
    second = await cut.submit()
    proxy.lose_next_reply()
    (claimed,) = await cut.claim(1)
    assert (proxy.lost, claimed.lease.job_id) == (1, second)
    assert await cut.state(first) is State.IN_PROGRESS
    cut.clock.advance(LEASE_MS + 1)
    await cut.store.extend([claimed.lease], LEASE_MS)
    assert (await cut.store.reap([MODEL]))[MODEL].requeued == [first]
    assert (await cut.lease()) == (first, 2)
