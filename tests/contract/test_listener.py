"""What the scripts publish: every id that started, ended or must stop, once, and ids of a block together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from jobs import keys
from jobs.listener import split_ids
from jobs.record import LOCAL_TENANT
from jobs.store import MAX_REDELIVERIES, Fail, Lease, Release, Retry, Succeed
from tests.support.stores import LEASE_MS, MODEL, Rig, a_result, a_submission, an_error

pytestmark = pytest.mark.anyio

TTL_MS = 60_000
CHANNELS = (keys.DONE_CHANNEL, keys.STARTED_CHANNEL, keys.CANCEL_CHANNEL)
Act = Callable[[Rig, list[Lease]], Awaitable[object]]

PUBLISHED: dict[str, tuple[Act, set[str]]] = {
    "succeed": (lambda rig, leases: rig.store.settle([Succeed(x, a_result()) for x in leases]), {keys.DONE_CHANNEL}),
    "fail": (lambda rig, leases: rig.store.settle([Fail(x, an_error()) for x in leases]), {keys.DONE_CHANNEL}),
    "retry": (lambda rig, leases: rig.store.settle([Retry(x, an_error(), 1) for x in leases]), set()),
    "release": (lambda rig, leases: rig.store.settle([Release(x) for x in leases]), set()),
    "cancel": (
        lambda rig, leases: rig.store.cancel(leases[0].job_id, LOCAL_TENANT),
        {keys.DONE_CHANNEL, keys.CANCEL_CHANNEL},
    ),
    "delete": (
        lambda rig, leases: rig.store.delete(leases[0].job_id, LOCAL_TENANT, force=True),
        {keys.DONE_CHANNEL, keys.CANCEL_CHANNEL},
    ),
}


async def _published(rig: Rig, act: Callable[[], Awaitable[object]]) -> dict[str, list[str]]:
    """What `act` published, channel by channel."""
    heard: dict[str, list[str]] = {}
    async with rig.connection.subscribe(*CHANNELS, "end") as messages:
        await act()
        await rig.redis.publish("end", b"")
        async for channel, data in messages:
            if channel == "end":
                return heard
            heard.setdefault(channel, []).extend(split_ids(data))
    raise AssertionError("the subscription ended")


async def test_a_claim_publishes_all_that_it_started(rig: Rig) -> None:
    await rig.store.submit_many([a_submission() for _ in range(5)])
    claimed: list[str] = []

    async def claim() -> None:
        claimed.extend(one.lease.job_id for one in await rig.claim(4))

    assert await _published(rig, claim) == {keys.STARTED_CHANNEL: claimed}


@pytest.mark.parametrize("event", PUBLISHED)
async def test_each_end_is_published_and_nothing_else(rig: Rig, event: str) -> None:
    act, channels = PUBLISHED[event]
    await rig.store.submit_many([a_submission() for _ in range(3)])
    leases = [claimed.lease for claimed in await rig.claim(3)]
    heard = await _published(rig, lambda: act(rig, leases))
    ids = [lease.job_id for lease in leases][: 1 if event in ("cancel", "delete") else 3]
    assert heard == dict.fromkeys(channels, ids)
    assert await _published(rig, lambda: act(rig, leases)) == {}


async def test_jobs_that_expire_or_are_given_up_are_published(rig: Rig) -> None:
    held, late = await rig.submit(), await rig.submit(queue_ttl_ms=TTL_MS, run_at_ms=rig.clock() + 1)
    lost = await rig.submit(run_at_ms=rig.clock() + 1)
    assert (await rig.lease()).job_id == held
    await rig.redis.hset(keys.job_key(held), "redeliveries", MAX_REDELIVERIES)
    rig.clock.advance(LEASE_MS + 1)
    assert await _published(rig, lambda: rig.store.reap([MODEL])) == {keys.DONE_CHANNEL: [held]}
    rig.clock.advance(TTL_MS)
    await rig.redis.hdel(keys.job_key(lost), "queue_deadline_ms")
    assert await _published(rig, lambda: rig.store.expire([late, lost])) == {keys.DONE_CHANNEL: [late, lost]}


def test_a_message_that_is_no_list_of_ids_is_cut_all_the_same() -> None:
    assert split_ids(b"") == []
    assert split_ids(b"a" * 32 + b"\xff") == ["a" * 32, "\ufffd"]
