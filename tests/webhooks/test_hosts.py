"""Room for each host: what the gates give, what a worker makes of it, and that slow hosts cost nobody else a thing."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from ipaddress import ip_address
from time import monotonic
from typing import Any

import pytest

from jobs import keys
from jobs.deliveries import Shares
from jobs.outbox import delivery_id
from jobs.record import LOCAL_TENANT
from jobs.store import Succeed
from jobs.webhook import Webhook, WebhookEvent
from tests.support.eventually import eventually
from tests.support.receiver import Receiver, receiving
from tests.support.stores import Clock, Rig, a_result, a_submission
from tests.support.webhooks import LEASE_MS, SECRET, Outbox
from tests.webhooks.rig import Worker, running_worker
from workers.webhooks.hosts import FIRST_LIMIT, LONGEST_PAUSE_SECONDS, MOST_GATES, MOST_GOOD, OPENS_AFTER, Hosts, Pace
from workers.webhooks.places import Places
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


def test_hosts_that_did_well_are_remembered_until_they_do_not() -> None:
    hosts = Hosts(most=8)
    send(hosts, Pace.PROMPT)
    assert list(hosts.good) == [HOST]
    assert list(hosts.slow) == []
    send(hosts, Pace.SLOW)
    assert (list(hosts.good), list(hosts.slow)) == ([], [HOST])
    for number in range(MOST_GOOD + 10):
        for host in (HOST, f"{number}.example"):
            hosts.begun(host)
            hosts.ended(host, Pace.PROMPT, 0)
    assert len(hosts.good) == MOST_GOOD
    assert HOST in hosts.good, "the one that was sent to last stays"


def test_of_hosts_that_did_badly_the_latest_are_remembered() -> None:
    hosts = Hosts(most=8)
    hosts.begun("busy.example")
    for number in range(MOST_GATES + 10):
        hosts.begun(f"{number}.example")
        hosts.ended(f"{number}.example", Pace.SLOW, 0)
    assert len(hosts.slow) == MOST_GATES - 1
    assert hosts.slow[-1] == f"{MOST_GATES + 9}.example"
    hosts.ended("busy.example", Pace.PROMPT, 0)


async def test_a_worker_that_remembers_thousands_of_hosts_is_handed_messages(rig: Rig) -> None:
    outbox = Outbox(rig)
    (one,) = await submit_to(outbox, "fine")
    bad = names("bad", 5000)
    hand = await outbox.hand(shares=share({}, good=names("good", 5000), slow=bad), **dict.fromkeys(bad, 1))
    assert [taken.id for taken in hand.taken] == [one]


def test_places_are_held_by_tenants() -> None:
    places = Places(3)
    for tenant in ("a", "a", "b"):
        places.begun(tenant)
    assert (places.free, places.held) == (0, {"a": 2, "b": 1})
    places.ended("b")
    assert (places.free, places.held) == (1, {"a": 2})


async def submit_to(outbox: Outbox, *names: str, tenant: str = LOCAL_TENANT) -> list[str]:
    """The deliveries of jobs that succeeded one after the other, each to a host of `.example`."""
    deliveries = []
    for name in names:
        job_id = await outbox.succeed(url=f"https://{name}.example/", tenant=tenant)
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


def share(held: dict[str, int], *, good: Sequence[str] = (), slow: Sequence[str] = ()) -> Shares:
    return Shares(held, 2, 6, 1, *([f"{name}.example" for name in names] for names in (good, slow)))


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


async def test_a_tenant_of_many_hosts_leaves_room_for_others(rig: Rig) -> None:
    outbox = Outbox(rig)
    many = await submit_to(outbox, *names("bad", 30), tenant="many")
    (one,) = await submit_to(outbox, "fine", tenant="one")
    hand = await outbox.hand(18, shares=share({}))
    assert [taken.id for taken in hand.taken] == [*many[:12], one], "twelve of eighteen places, and twice six are left"
    assert (await outbox.hand(5, shares=share({"many": 12, "one": 1}))).taken == []
    again = await outbox.hand(14, shares=share({"many": 3, "one": 1}))
    assert [taken.id for taken in again.taken] == many[12:21], "nine more make twelve"


async def test_a_few_tenants_of_many_hosts_leave_room_as_well(rig: Rig) -> None:
    outbox = Outbox(rig)
    for tenant in "abcd":
        await submit_to(outbox, *names(tenant, 60), tenant=tenant)
    (one,) = await submit_to(outbox, "fine", tenant="one")
    taken = (await outbox.hand(90, shares=share({}))).taken
    assert [sum(item.tenant == tenant for item in taken) for tenant in "abcd"] == [60, 20, 7, 2]
    assert taken[-1].id == one


async def test_a_host_that_did_well_has_room_beside_its_tenants_bad_ones(rig: Rig) -> None:
    outbox = Outbox(rig)
    await submit_to(outbox, *names("bad", 20))
    good = await submit_to(outbox, "good", "unknown")
    taken = (await outbox.hand(18, shares=share({}, good=["good"]))).taken
    assert len(taken) == 13
    assert taken[-1].id == good[0]


async def test_hosts_that_were_slow_leave_room_for_hosts_that_nobody_knows_of(rig: Rig) -> None:
    outbox = Outbox(rig)
    slow = names("slow", 20)
    await submit_to(outbox, *slow)
    unknown = await submit_to(outbox, *names("unknown", 5))
    taken = (await outbox.hand(18, shares=share({}, slow=slow))).taken
    assert [taken.id for taken in taken][9:] == unknown[:3], "nine of eighteen places, and three more make twelve"


async def test_each_line_is_given_one_before_any_is_given_more(rig: Rig) -> None:
    outbox = Outbox(rig)
    await submit_to(outbox, *["long"] * 5, *["short"] * 2, "last")
    await outbox.hand(room=0)
    hosts = [taken.host.partition(".")[0] for taken in (await outbox.hand(6)).taken]
    assert sorted(hosts[:3]) == ["last", "long", "short"]
    assert sorted(hosts[3:]) in (["long", "long", "long"], ["long", "long", "short"])


async def test_with_more_lines_than_are_looked_at_each_is_given_one(rig: Rig) -> None:
    outbox = Outbox(rig)
    hosts = names("full", 260)
    await submit_to(outbox, *hosts, *hosts)
    for _ in range(3):
        await outbox.hand(room=0)
    taken = []
    for _ in range(2):
        rig.clock.advance(1)
        taken += [taken.host for taken in (await outbox.hand(260)).taken]
    assert len(set(taken)) == 260


async def test_tenants_that_share_a_host_wait_in_lines_of_their_own(rig: Rig) -> None:
    """What waits for a tenant's share hides nothing of another tenant at the same host."""
    outbox = Outbox(rig)
    waiting = await submit_to(outbox, *["both"] * 3, tenant="full")
    assert (await outbox.hand(1, shares=share({"full": 9}))).taken == []
    (free,) = await submit_to(outbox, "both", tenant="one")
    assert [taken.id for taken in (await outbox.hand(1, shares=share({"full": 9}))).taken] == [free]
    assert [taken.id for taken in (await outbox.hand()).taken] == waiting
    assert not [key for key in await rig.keys() if "waiting" in key]


async def test_more_lines_than_one_look_takes_in_are_looked_at_soon(rig: Rig) -> None:
    outbox = Outbox(rig)
    hosts = names("full", 300)
    await submit_to(outbox, *hosts)
    await outbox.hand(room=0)
    hand = await outbox.hand(room=0)
    assert 0 < hand.next_due_ms - hand.now_ms <= 100
    rig.clock.advance(1)
    first, second = [await outbox.hand(1000) for _ in range(2)]
    assert {taken.host for hand in (first, second) for taken in hand.taken} == {f"{name}.example" for name in hosts}
    assert second.next_due_ms - second.now_ms > 1000


async def test_a_line_of_an_older_version_is_served(rig: Rig) -> None:
    """Its name was the host's alone."""
    outbox = Outbox(rig)
    (waiting,) = await submit_to(outbox, "full")
    await rig.redis.zrem(keys.DELIVERIES_QUEUE, waiting)
    await rig.redis.zadd(keys.waiting_key("full.example"), {waiting: 1})
    await rig.redis.zadd(keys.WAITING_HOSTS_KEY, {"full.example": 1})
    assert [taken.id for taken in (await outbox.hand(shares=share({}))).taken] == [waiting]
    assert not [key for key in await rig.keys() if "waiting" in key]


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
                await put(worker, receivers[-1].url, count=50)
            longest = await closed_loop(worker, good, 10_000, at_once=40)
            assert longest < 5, longest
            assert all(receiver.seen for receiver in receivers)
            assert len([seen for receiver in receivers if receiver.always == "hang" for seen in receiver.seen]) < 50
        finally:
            for receiver in receivers:
                await receiver.stop()


@asynccontextmanager
async def hanging(count: int) -> AsyncIterator[list[str]]:
    """URLs of so many receivers that take a message and never answer."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(65_536):
                pass
        writer.close()

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(await start_server(hang)) for _ in range(count)]
        yield [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/" for server in servers]


async def start_server(serve: Callable[..., Awaitable[None]]) -> asyncio.Server:
    return await asyncio.start_server(serve, "127.0.0.1", 0)


TENANTS = f"{SECRET},many={SECRET},one={SECRET}"


@pytest.mark.server
@pytest.mark.parametrize(("count", "tenant"), [(400, "one"), (400, "many"), (800, "many")])
async def test_many_hanging_hosts_delay_nobody_by_five_seconds(valkey_url: str, count: int, tenant: str) -> None:
    """Nor their own tenant, as long as they are not hundreds more."""
    async with (
        hanging(count) as urls,
        receiving() as good,
        running_worker(valkey_url, clock=Clock(0), secret=TENANTS, drain_seconds=0) as worker,
    ):
        await put(worker, *urls, tenant=tenant)

        async def are_all_looked_at() -> bool:
            queued, in_line = await worker.outbox.deliveries.depth()
            return queued + in_line == count and len(worker.worker.tasks) >= min(count, 512)

        await eventually(are_all_looked_at)
        for number in range(1, 4):
            began = monotonic()
            await put(worker, good.url, tenant="one")
            await good.got(number)
            assert monotonic() - began < 5


@pytest.mark.server
async def test_a_host_that_did_well_is_delayed_by_none_of_its_tenants_hanging_ones(valkey_url: str) -> None:
    async with (
        hanging(800) as urls,
        receiving() as good,
        running_worker(valkey_url, clock=Clock(0), drain_seconds=0) as worker,
    ):
        await put(worker, good.url)
        await good.got(1)
        await put(worker, *urls)

        async def is_share_used_up() -> bool:
            return len(worker.worker.tasks) >= 512

        await eventually(is_share_used_up)
        began = monotonic()
        await put(worker, good.url)
        await good.got(2)
        assert monotonic() - began < 5


BY_NAME: dict[str, Any] = {
    "secret": TENANTS,
    "drain_seconds": 0,
    "allow": ("good.example", "127.0.0.0/8"),
    "uses_system_names": True,
}
"""A worker that looks names up, `good.example` among them."""


class NameServer:
    """getaddrinfo where no name server answers for `.dead.example`; `good.example` is this machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_let_go = threading.Event()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, *arguments: Any, **options: Any) -> list[tuple[Any, ...]]:
        if str(host).endswith(".dead.example"):
            self.is_let_go.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return self._real("127.0.0.1" if host == "good.example" else host, *arguments, **options)


@pytest.mark.server
@pytest.mark.parametrize("tenant", ["one", "many"])
async def test_many_hanging_lookups_delay_nobody_by_five_seconds(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    name_server = NameServer(monkeypatch)
    async with (
        receiving() as good,
        running_worker(
            valkey_url,
            clock=Clock(0),
            **BY_NAME,
        ) as worker,
    ):
        try:
            await put(worker, *(f"https://{name}.dead.example/" for name in names("n", 400)), tenant=tenant)

            async def are_all_in_hand() -> bool:
                return len(worker.worker.tasks) == 400

            await eventually(are_all_in_hand)
            began = monotonic()
            (job_id,) = await put(worker, f"http://good.example:{good.port}/", tenant="one")
            await good.got(1)
            assert monotonic() - began < 5
            (attempt,) = (await worker.outbox.deliveries.of_job(job_id))[0].log or [None]
            assert attempt is None or attempt.fault == ""
        finally:
            name_server.is_let_go.set()


@pytest.mark.server
async def test_a_lookup_that_nobody_waits_for_any_more_still_holds_its_place(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or names that hang for longer than a send may take would fill all threads in turn."""
    name_server = NameServer(monkeypatch)
    async with (
        receiving() as good,
        running_worker(
            valkey_url,
            clock=Clock(0),
            **BY_NAME,
            webhook_concurrency=6,
            webhook_timeout_seconds=0.2,
        ) as worker,
    ):
        try:
            jobs = await put(worker, *(f"https://{name}.dead.example/" for name in names("n", 6)), tenant="many")

            async def are_four_tried() -> bool:
                found = [delivery for job in jobs for delivery in await worker.outbox.deliveries.of_job(job)]
                return sum(delivery.attempts for delivery in found) == 4 and not worker.worker.tasks

            await eventually(are_four_tried)
            await put(worker, f"http://good.example:{good.port}/", tenant="one")
            await good.got(1)
            assert await are_four_tried(), "the other two have no place"
            name_server.is_let_go.set()

            async def are_all_tried() -> bool:
                found = [delivery for job in jobs for delivery in await worker.outbox.deliveries.of_job(job)]
                return all(delivery.attempts for delivery in found)

            await eventually(are_all_tried)
        finally:
            name_server.is_let_go.set()


async def put(worker: Worker, *urls: str, count: int = 1, tenant: str = LOCAL_TENANT) -> list[str]:
    """The ids of jobs that succeeded, so many for each URL, whose messages are due now."""
    rig, wanted = worker.rig, [url for url in urls for _ in range(count)]
    submitted = await rig.store.submit_many([a_submission(webhook=Webhook(url), tenant=tenant) for url in wanted])
    claimed = await rig.claim(len(wanted))
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
            for job_id in await put(worker, receiver.url, count=min(at_once // 2, count - sent)):
                began[delivery_id(job_id, WebhookEvent.SUCCEEDED)] = now
            sent = len(began)
            continue
        await receiver.got(arrived + 1, timeout_seconds=60)
        now = monotonic()
        for seen in receiver.seen[arrived:]:
            longest = max(longest, now - began[seen.id])
        arrived = len(receiver.seen)
    return longest
