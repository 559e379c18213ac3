"""Room for each host: what the gates give, what a worker makes of it, and that slow hosts cost nobody else a thing."""

from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import ip_address
from time import monotonic
from typing import Any

import pytest

from jobs import keys
from jobs.outbox import delivery_id
from jobs.store import Succeed
from jobs.webhook import Webhook, WebhookEvent
from tests.support.receiver import Receiver, receiving
from tests.support.stores import Clock, Rig, a_result, a_submission
from tests.support.webhooks import LEASE_MS, Outbox
from tests.webhooks.rig import Worker, running_worker
from workers.webhooks.hosts import FIRST_LIMIT, LONGEST_PAUSE_SECONDS, OPENS_AFTER, Hosts, Pace
from workers.webhooks.resolver import SystemResolver

pytestmark = pytest.mark.anyio

HOST = "slow.example"


def room(hosts: Hosts, now: float = 0.0) -> int:
    """What the host may be given."""
    return hosts.rooms(now).get(HOST, hosts.first_room)


def send(hosts: Hosts, pace: Pace, now: float = 0.0) -> None:
    hosts.begun(HOST)
    hosts.ended(HOST, pace, now)


def test_a_host_proves_itself_before_it_gets_all_its_room() -> None:
    hosts = Hosts(most=12)
    assert room(hosts) == hosts.first_room == FIRST_LIMIT == 8
    hosts.begun(HOST)
    for expected in (7, 8, 9, 10, 11, 11):
        assert room(hosts) == expected, "twelve at most, of which one is in flight"
        send(hosts, Pace.PROMPT)


def test_nothing_is_remembered_of_a_host_that_did_well() -> None:
    hosts = Hosts(most=32)
    send(hosts, Pace.PROMPT)
    assert hosts.rooms(0) == {}


def test_a_slow_host_loses_half_its_room_each_time() -> None:
    hosts = Hosts(most=32)
    for _ in range(8):
        hosts.begun(HOST)
    for limit in (4, 2, 1, 1):
        hosts.ended(HOST, Pace.SLOW, 0)
        assert room(hosts) == 0, f"a limit of {limit}, and more in flight"
    for _ in range(4):
        hosts.ended(HOST, Pace.PROMPT, 0)
    assert room(hosts) == hosts.first_room


def test_the_breaker_opens_tries_one_and_closes_again() -> None:
    hosts = Hosts(most=32)
    for _ in range(OPENS_AFTER):
        assert room(hosts, 100) > 0
        send(hosts, Pace.SLOW, 100)
    assert [room(hosts, now) for now in (100, 104.9, 105)] == [0, 0, 1]
    hosts.begun(HOST)
    assert room(hosts, 106) == 0, "one at a time"
    hosts.ended(HOST, Pace.SLOW, 120)
    assert [room(hosts, now) for now in (120, 129.9, 130)] == [0, 0, 1], "and then not for twice as long"
    send(hosts, Pace.PROMPT, 130)
    assert hosts.rooms(130) == {}, "all is well at once"


def test_the_breakers_pause_has_an_end() -> None:
    hosts = Hosts(most=32)
    for now in range(0, 20_000, 1000):
        send(hosts, Pace.SLOW, now)
    assert [room(hosts, 19_000 + LONGEST_PAUSE_SECONDS + late) for late in (-0.1, 0)] == [0, 1]


async def submit_to(outbox: Outbox, *names: str) -> list[str]:
    """The deliveries of jobs that succeeded one after the other, each to a host of `.example`."""
    deliveries = []
    for name in names:
        job_id = await outbox.succeed(url=f"https://{name}.example/")
        deliveries.append(delivery_id(job_id, WebhookEvent.SUCCEEDED))
        outbox.rig.clock.advance(1)
    return deliveries


async def test_a_host_without_room_is_passed_over(rig: Rig) -> None:
    """B017: what waits for one host hides nothing that is due for another."""
    outbox = Outbox(rig)
    full_1, *_, free_1, free_2 = await submit_to(outbox, *["full"] * 5, "free", "free")
    assert [taken.id for taken in (await outbox.hand(3, full=1)).taken] == [full_1, free_1, free_2]
    assert (await outbox.hand(10, full=0)).taken == []


async def test_who_waits_for_room_is_served_before_who_comes_later(rig: Rig) -> None:
    outbox = Outbox(rig)
    early = await submit_to(outbox, *["full"] * 5)
    assert (await outbox.hand(full=0)).taken == []
    late = await submit_to(outbox, *["full"] * 2)
    order = [[taken.id for taken in (await outbox.hand(full=2)).taken] for _ in range(4)]
    assert order == [early[:2], early[2:4], [early[4], late[0]], [late[1]]]
    assert not [key for key in await rig.keys() if "waiting" in key]


async def test_hosts_that_wait_are_served_in_turn(rig: Rig) -> None:
    outbox = Outbox(rig)
    await submit_to(outbox, *["a", "b", "c"] * 3)
    await outbox.hand(a=0, b=0, c=0)
    hosts = []
    for _ in range(3):
        rig.clock.advance(1)
        hosts.append([taken.host[0] for taken in (await outbox.hand(3, room=1)).taken])
    assert hosts == [["a", "b", "c"]] * 3


async def test_what_waits_for_room_is_no_more_when_its_delivery_is_gone(rig: Rig) -> None:
    outbox = Outbox(rig)
    gone, left = await submit_to(outbox, "full", "full")
    await outbox.hand(full=0)
    await rig.redis.delete(keys.delivery_key(gone))
    assert [taken.id for taken in (await outbox.hand()).taken] == [left]


async def test_asking_again_for_what_waits_for_room_sends_it_once(rig: Rig) -> None:
    outbox = Outbox(rig)
    (waiting,) = await submit_to(outbox, "full")
    await outbox.hand(full=0)
    assert await outbox.deliveries.redeliver("local", [waiting]) == ["OK"]
    assert [taken.id for taken in (await outbox.hand()).taken] == [waiting]
    assert (await outbox.hand()).taken == []


async def test_a_host_that_nothing_is_known_of_gets_a_little(rig: Rig) -> None:
    outbox = Outbox(rig)
    for _ in range(4):
        await outbox.succeed()
    assert len((await outbox.hand(room=3)).taken) == 3


async def test_what_a_worker_took_and_never_finished_is_due_again_after_the_lease(rig: Rig) -> None:
    outbox = Outbox(rig)
    await outbox.succeed()
    first = await outbox.only()
    rig.clock.advance(LEASE_MS - 1)
    assert await outbox.taken() == []
    await rig.redis.delete(f"arq:in-progress:{first.id}")  # as its time to live does
    rig.clock.advance(1)
    assert await outbox.taken() == [first.id]


async def test_what_one_of_arqs_own_workers_runs_is_left_to_it(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.succeed()
    delivery = delivery_id(job_id, WebhookEvent.SUCCEEDED)
    await rig.redis.set(f"arq:in-progress:{delivery}", b"1")
    assert await outbox.taken() == []
    await rig.redis.delete(f"arq:in-progress:{delivery}")
    rig.clock.advance(1000)
    assert await outbox.taken() == [delivery]


async def test_two_workers_never_take_the_same(rig: Rig) -> None:
    outbox = Outbox(rig)
    for _ in range(30):
        await outbox.succeed()
    hands = await asyncio.gather(*(outbox.hand(10, room=100) for _ in range(5)))
    ids = [taken.id for hand in hands for taken in hand.taken]
    assert len(ids) == len(set(ids)) == 30


async def test_lookups_of_one_name_share_a_thread_and_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that hangs for one name fills one thread, and nobody else waits."""
    asked: list[str] = []
    is_let_go = threading.Event()

    def slow_getaddrinfo(host: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        if host == "hangs.example":
            is_let_go.wait(10)
        if host == "gone.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 0))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", slow_getaddrinfo)
    resolve = SystemResolver()
    try:
        waiting = [asyncio.create_task(resolve("hangs.example")) for _ in range(100)]
        assert await asyncio.wait_for(resolve("quick.example"), 5) == [ip_address("8.8.8.8")]
        with pytest.raises(OSError, match="no such name"):
            await resolve("gone.example")
        waiting[0].cancel()
        is_let_go.set()
        assert await waiting[1] == [ip_address("8.8.8.8")]
        assert asked.count("hangs.example") == 1
        await resolve("hangs.example")
        assert asked.count("hangs.example") == 2, "an answer is never used twice"
    finally:
        is_let_go.set()
        resolve.close()
        resolve.close()


BAD = ("hang", "drip", "reset", "500", "410", "429 60", "302 http://169.254.169.254/", "huge", "drip-body", "nonsense")


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_bad_receivers_delay_nobody_by_more_than_five_seconds(valkey_url: str) -> None:
    """Ten receivers of every bad kind with 50 messages each, and 10,000 messages to a good one meanwhile."""
    receivers: list[Receiver] = []
    async with receiving() as good, running_worker(valkey_url, clock=Clock(0)) as worker:
        try:
            for word in BAD:
                receivers.append(Receiver(always=word))
                await receivers[-1].start()
                await put(worker, receivers[-1].url, 50)
            longest = await closed_loop(worker, good, 10_000, at_once=40)
            assert longest < 5, longest
            assert all(receiver.seen for receiver in receivers)
            assert len([seen for receiver in receivers if receiver.always == "hang" for seen in receiver.seen]) < 50
        finally:
            for receiver in receivers:
                await receiver.stop()


async def put(worker: Worker, url: str, count: int) -> list[str]:
    """The ids of jobs that succeeded, whose messages are due now."""
    rig = worker.rig
    submitted = await rig.store.submit_many([a_submission(webhook=Webhook(url)) for _ in range(count)])
    claimed = await rig.claim(count)
    await rig.store.settle([Succeed(job.lease, a_result()) for job in claimed])
    return [reply.job_id for reply in submitted]


async def closed_loop(worker: Worker, receiver: Receiver, count: int, at_once: int) -> float:
    """The longest time in seconds from a job's end to the arrival of its message, with so many on their way at once."""
    began: dict[str, float] = {}
    longest, arrived = 0.0, 0
    sent = 0
    while arrived < count:
        if sent < count and sent - arrived < at_once:
            now = monotonic()
            for job_id in await put(worker, receiver.url, min(at_once // 2, count - sent)):
                began[delivery_id(job_id, WebhookEvent.SUCCEEDED)] = now
            sent = len(began)
            continue
        await receiver.got(arrived + 1, timeout_seconds=60)
        now = monotonic()
        for seen in receiver.seen[arrived:]:
            longest = max(longest, now - began[seen.id])
        arrived = len(receiver.seen)
    return longest
