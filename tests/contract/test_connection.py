"""The connection keeps its deadline and its word whatever the server does; needs real servers that fail."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from inferq.stack import ValkeyServer
from jobs import keys
from jobs.connection import Call, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable
from jobs.listener import Listener
from jobs.record import LOCAL_TENANT
from jobs.store import JobStore
from tests.contract.valkeys import answering, frozen, store_at
from tests.support.servers import StartValkey
from tests.support.stores import MODEL, PAYLOAD, a_submission

pytestmark = [pytest.mark.anyio, pytest.mark.server]

DEADLINE_SECONDS = 1.0
SLACK_SECONDS = 2.0
"""What a busy machine may add to a deadline before a test calls it missed."""


@pytest.fixture
def own(start_valkey: StartValkey) -> ValkeyServer:
    """A Valkey that this test may stop."""
    return start_valkey()


@pytest.fixture
async def store(own: ValkeyServer) -> AsyncIterator[JobStore]:
    """A store on it, with a short deadline."""
    async with store_at(own.url, redis_timeout_seconds=DEADLINE_SECONDS, redis_pool_size=4) as opened:
        yield opened


async def _claim(store: JobStore, limit: int = 1) -> list[str]:
    claim = await store.claim(MODEL, limit, worker="w", lease_ms=10_000)
    return [claimed.lease.job_id for claimed in claim.jobs]


async def _raises_in_time(store: JobStore) -> None:
    """Each kind of call ends by its deadline, and says that Redis is away."""

    async def ends(call: Coroutine[Any, Any, object]) -> None:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await call
        assert time.monotonic() - started < DEADLINE_SECONDS + SLACK_SECONDS

    calls = (
        store.submit(a_submission()),
        store.claim(MODEL, 1, worker="w", lease_ms=1),
        store.load(["0" * 32]),
        store.get("0" * 32, LOCAL_TENANT),
        store.wait_for_work(MODEL, 60.0),
        store.expire(),
    )
    await asyncio.gather(*map(ends, calls))


async def test_every_call_ends_by_its_deadline_when_the_server_hangs(own: ValkeyServer, store: JobStore) -> None:
    """B026."""
    await store.submit(a_submission())
    with frozen(own):
        await _raises_in_time(store)
    assert len(await _claim(store)) == 1


async def test_a_server_that_is_down_is_said_to_be_away_and_used_again_once_it_is_back(
    own: ValkeyServer, store: JobStore
) -> None:
    """B008."""
    job = a_submission()
    await store.submit(job)
    own.stop()
    await _raises_in_time(store)
    own.start()
    assert await _claim(store) == [job.id]
    assert await store.load([job.id]) == [PAYLOAD]


async def test_a_restart_between_two_calls_is_not_noticed(own: ValkeyServer, store: JobStore) -> None:
    """B008: the dead sockets of the pool cost a second try, no error."""
    jobs = [a_submission() for _ in range(4)]
    await asyncio.gather(*map(store.submit, jobs))
    own.stop()
    own.start()
    found = await asyncio.gather(*(store.get(job.id, LOCAL_TENANT) for job in jobs))
    assert [one.job.id for one in found if one] == [job.id for job in jobs]


async def test_an_address_where_nobody_listens_is_an_outage() -> None:
    async with store_at("redis://127.0.0.1:1/0", redis_timeout_seconds=DEADLINE_SECONDS) as store:
        await _raises_in_time(store)


async def test_a_burst_waits_for_a_free_connection(own: ValkeyServer) -> None:
    """B027: two thousand polls over four connections, none refused while the server keeps up."""
    job = a_submission()
    async with store_at(own.url, redis_pool_size=4, redis_timeout_seconds=30.0) as patient:
        await patient.submit(job)
        found = await asyncio.gather(*(patient.get(job.id, LOCAL_TENANT) for _ in range(2000)))
    assert {one.job.id for one in found if one} == {job.id}
    assert None not in found


async def test_a_pool_that_stays_taken_is_an_outage_for_those_who_wait(store: JobStore) -> None:
    """B027: a short wait, then 503."""
    async with AsyncExitStack() as taken:
        for _ in range(4):
            await taken.enter_async_context(store.connection.subscribe("anything"))
        await _raises_in_time(store)
    await store.submit(a_submission())


async def test_calls_that_are_cancelled_never_hand_their_reply_to_another(own: ValkeyServer) -> None:
    """A reply that nobody waited for must not be taken for the answer to the next question."""
    rng = random.Random(1)
    jobs = [a_submission(payload=str(i).encode()) for i in range(20)]
    async with store_at(own.url, redis_pool_size=4, redis_timeout_seconds=30.0) as store:
        await store.submit_many(jobs)

        async def ask(i: int) -> None:
            assert await store.load([jobs[i].id]) == [str(i).encode()]

        for _ in range(20):
            tasks = [asyncio.create_task(ask(i)) for i in range(20)]
            await asyncio.wait(tasks, timeout=rng.random() * 0.01)
            for task in rng.sample(tasks, 10):
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert outcome is None or isinstance(outcome, asyncio.CancelledError)


async def test_scripts_that_the_server_forgot_are_loaded_again(store: JobStore) -> None:
    """A restart, a failover or an operator's SCRIPT FLUSH between two calls."""
    for _ in range(2):
        job = a_submission()
        await store.submit(job)
        await store.connection.client.script_flush()
        assert await _claim(store) == [job.id]
        await store.connection.client.script_flush()


async def test_what_follows_a_forgotten_script_runs_after_it(store: JobStore) -> None:
    """WAITAOF, for one, must not vouch for a job that was stored after it."""
    await store.connection.run(Call(0, 10, script="forget"))
    await store.connection.client.script_flush()
    replies = await store.connection.run(
        Call("SET", "x", "1"), Call(0, "w", b"beat", script="beat"), Call("HLEN", "inferq:workers")
    )
    assert replies[1:] == [b"OK", 1]


REPLIES = [
    (b"-LOADING Valkey is loading the dataset in memory\r\n", StoreUnavailable),
    (b"-READONLY You can't write against a read only replica.\r\n", StoreUnavailable),
    (b"-MASTERDOWN Link with MASTER is down\r\n", StoreUnavailable),
    (b"-MISCONF Redis is configured to save RDB snapshots, but\r\n", StoreUnavailable),
    (b"-NOREPLICAS Not enough good replicas to write.\r\n", StoreUnavailable),
    (b"-BUSY Redis is busy running a script.\r\n", StoreUnavailable),
    (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", StoreUnavailable),
    (b"-ERR max number of clients reached\r\n", StoreUnavailable),
    (b"-MOVED 16281 127.0.0.1:7001\r\n", StoreMisconfigured),
    (b"-ASK 16281 127.0.0.1:7001\r\n", StoreMisconfigured),
    (b"-CROSSSLOT Keys in request don't hash to the same slot\r\n", StoreMisconfigured),
    (b"-CLUSTERDOWN The cluster is down\r\n", StoreMisconfigured),
    (b"-NOAUTH Authentication required.\r\n", StoreMisconfigured),
    (b"-WRONGPASS invalid username-password pair or user is disabled.\r\n", StoreMisconfigured),
    (b"-NOPERM User limited has no permissions to run the 'set' command\r\n", StoreMisconfigured),
    (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", StoreFull),
    (b"-ERR unknown command 'EVALSHA'\r\n", StoreError),
    (b"-NOSCRIPT No matching script. Please use EVAL.\r\n", StoreUnavailable),
    (b"!nonsense\r\n", StoreError),
]


@pytest.mark.parametrize(("reply", "error"), REPLIES, ids=[reply.split()[0].decode() for reply, _ in REPLIES])
@pytest.mark.parametrize("kind", ["command", "script"])
async def test_each_refusal_is_told_in_our_words(reply: bytes, error: type[StoreError], kind: str) -> None:
    """B009, and what a failover answers."""
    async with answering(reply) as url, store_at(url, redis_timeout_seconds=2.0) as store:
        with pytest.raises(StoreError) as caught:
            await store.connection.run(Call("GET", "x") if kind == "command" else Call(0, 10, script="forget"))
        assert type(caught.value) is error


async def test_a_wrong_password_is_a_setting_to_mend(start_valkey: StartValkey) -> None:
    server = start_valkey(password="right")
    async with store_at(server.url.replace("right", "wrong")) as store:
        with pytest.raises(StoreMisconfigured, match="credentials"):
            await store.submit(a_submission())


class _Interruptions(logging.Handler):
    """Counts what the listener says about its connection."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.put_nowait(record.getMessage())


@pytest.fixture
def interruptions() -> Iterator[_Interruptions]:
    handler = _Interruptions()
    listener_log = logging.getLogger("jobs.listener")
    listener_log.addHandler(handler)
    yield handler
    listener_log.removeHandler(handler)


async def test_a_listener_hears_ids_and_says_when_it_may_have_missed_some(
    own: ValkeyServer, store: JobStore, interruptions: _Interruptions
) -> None:
    """B008: a killed connection, a restart, a server that hangs."""
    heard: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()
    gaps: asyncio.Queue[None] = asyncio.Queue()
    listener = Listener(
        store.connection,
        [keys.DONE_CHANNEL, keys.STARTED_CHANNEL],
        lambda channel, ids: heard.put_nowait((channel, ids)),
        lambda: gaps.put_nowait(None),
    )
    listening = asyncio.create_task(listener.run())
    try:
        async with asyncio.timeout(30):
            await gaps.get()
            for _ in range(2):
                job = a_submission()
                await store.submit(job)
                await _claim(store)
                assert await heard.get() == (keys.STARTED_CHANNEL, [job.id])
                await store.cancel(job.id, LOCAL_TENANT)
                assert await heard.get() == (keys.DONE_CHANNEL, [job.id])
                await store.connection.run(Call("CLIENT", "KILL", "TYPE", "pubsub"))
                await gaps.get()
            own.stop()
            own.start()
            await gaps.get()
            while not interruptions.seen.empty():
                interruptions.seen.get_nowait()
            with frozen(own):
                await interruptions.seen.get()
            await gaps.get()
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


async def test_a_quiet_subscription_that_is_alive_is_left_alone(store: JobStore) -> None:
    """Silence alone is no fault: the server answers the PING."""
    async with store.connection.subscribe("quiet") as messages:
        listening = asyncio.ensure_future(anext(messages))
        done, _ = await asyncio.wait([listening], timeout=4 * DEADLINE_SECONDS)
        assert not done
        await store.connection.run(Call("PUBLISH", "quiet", "at last"))
        assert await listening == ("quiet", b"at last")
