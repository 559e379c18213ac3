"""Messages on their way: what is sent, when it is tried again, and when that ends."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from jobs import keys
from jobs.outbox import arq_job
from jobs.record import LOCAL_TENANT
from jobs.store import Fail, Succeed
from jobs.webhook import DeliveryStatus, Webhook, WebhookEvent
from tests.support.receiver import Seen, receiving
from tests.support.stores import START_MS, Clock, a_result, an_error
from tests.support.webhooks import SECRET, message
from tests.webhooks.rig import running_worker
from workers.webhooks.schedule import next_pause_ms
from workers.webhooks.settings import SCHEDULE

pytestmark = [pytest.mark.anyio, pytest.mark.server]

OTHER_SECRET = "whsec_" + "b3RoZXIt" * 6
PENDING, DELIVERED, FAILED = DeliveryStatus.PENDING, DeliveryStatus.DELIVERED, DeliveryStatus.FAILED


def is_signed(seen: Seen, secret: str = SECRET) -> bool:
    """Whether a signature of a message is the one that a receiver's library computes, whatever the message's age."""
    instant = datetime.fromtimestamp(int(seen.headers["webhook-timestamp"]), UTC)
    expected = Verifier(secret).sign(seen.id, instant, seen.body.decode())
    return expected in seen.headers["webhook-signature"].split(" ")


def now() -> Clock:
    return Clock(time.time_ns() // 1_000_000)


async def test_a_message_is_what_the_standards_library_verifies(valkey_url: str) -> None:
    async with receiving() as receiver, running_worker(valkey_url, clock=now()) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url, metadata={"order": 7})
        (seen,) = await receiver.got(1)
        verified = Verifier(SECRET).verify(seen.body, seen.headers)
        assert verified["type"] == "job.succeeded"
        assert (verified["data"]["id"], verified["data"]["status"]) == (job_id, "succeeded")
        assert verified["data"]["metadata"] == {"order": 7}
        assert verified["data"]["webhook"] == {"url": receiver.url, "status": "pending", "attempts": 0}
        assert verified["timestamp"] == verified["data"]["finished_at"]
        assert seen.headers["content-type"] == "application/json"
        with pytest.raises(WebhookVerificationError, match="signature"):
            Verifier(OTHER_SECRET).verify(seen.body, seen.headers)
        with pytest.raises(WebhookVerificationError, match="signature"):
            Verifier(SECRET).verify(seen.body + b" ", seen.headers)
        delivery = await worker.ended(job_id)
        assert (delivery.status, delivery.attempts) == (DELIVERED, 1)
        assert [(attempt.status, attempt.fault) for attempt in delivery.log] == [(204, "")]
        assert not [key for key in await worker.rig.keys() if key.startswith("arq:")]


async def test_an_old_message_is_refused_by_the_standards_library(valkey_url: str) -> None:
    """T: Webhook forging/replay: the tolerance is 300 s."""
    clock = now()
    clock.advance(-301_000)
    async with receiving() as receiver, running_worker(valkey_url, clock=clock) as worker:
        await worker.outbox.succeed(url=receiver.url)
        (seen,) = await receiver.got(1)
        with pytest.raises(WebhookVerificationError, match="too old"):
            Verifier(SECRET).verify(seen.body, seen.headers)


@pytest.mark.parametrize("own", [(), (OTHER_SECRET,), (OTHER_SECRET, SECRET)])
async def test_every_live_secret_signs_and_a_jobs_own_ones_come_before_the_servers(
    valkey_url: str, own: tuple[str, ...]
) -> None:
    async with receiving() as receiver, running_worker(valkey_url, secret=f"{SECRET},{OTHER_SECRET}") as worker:
        await worker.rig.submit(webhook=Webhook(receiver.url, secrets=own))
        await worker.rig.store.settle([Succeed(await worker.rig.lease(), a_result())])
        (seen,) = await receiver.got(1)
        assert [is_signed(seen, secret) for secret in (SECRET, OTHER_SECRET)] == [own != (OTHER_SECRET,), True]
        assert len(seen.headers["webhook-signature"].split(" ")) == (len(own) or 2)
        assert SECRET.encode() not in seen.body
        assert OTHER_SECRET.encode() not in seen.body


async def test_a_receiver_that_comes_back_gets_its_message_at_the_next_time_of_the_schedule(valkey_url: str) -> None:
    """B077: the same id each time, and a fresh timestamp and signature."""
    async with receiving("500") as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        for attempts, pause in enumerate(SCHEDULE[1:4], 1):
            delivery = await worker.tried(job_id, attempts)
            due_ms = (await worker.queued())[delivery.id]
            assert due_ms == pytest.approx(delivery.next_ms, abs=1000)
            assert due_ms == pytest.approx(worker.clock.now_ms + pause * 1000, abs=1500)
            worker.clock.now_ms = due_ms - 1
            await worker.look()
            assert len(receiver.seen) == attempts
            receiver.always = "500" if attempts < 3 else "204"
            worker.clock.now_ms = due_ms
            await worker.look()
            await receiver.got(attempts + 1)
        delivery = await worker.ended(job_id)
        assert (delivery.status, delivery.attempts) == (DELIVERED, 4)
        assert set(receiver.ids) == {message(job_id, WebhookEvent.SUCCEEDED)}
        assert len({seen.headers["webhook-timestamp"] for seen in receiver.seen}) == 4
        assert len({seen.headers["webhook-signature"] for seen in receiver.seen}) == 4
        assert all(map(is_signed, receiver.seen))
        assert [json.loads(seen.body)["data"]["webhook"]["attempts"] for seen in receiver.seen] == [0, 1, 2, 3]
        assert await worker.queued() == {}
        job = await worker.rig.job(job_id)
        assert (job.webhook_status, job.webhook_attempts) == (DELIVERED, 4)


async def test_a_message_that_never_arrives_fails_and_leaves_its_job_alone(valkey_url: str) -> None:
    async with receiving("503") as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        for attempts in range(1, len(SCHEDULE) + 1):
            delivery = await worker.tried(job_id, attempts)
            if attempts < len(SCHEDULE):
                worker.clock.now_ms = (await worker.queued())[delivery.id]
                await worker.look()
        delivery = await worker.ended(job_id)
        assert (delivery.status, delivery.attempts) == (FAILED, len(SCHEDULE))
        assert [(attempt.status, attempt.fault) for attempt in delivery.log] == [(503, "status")] * len(SCHEDULE)
        span_s = (delivery.log[-1].at_ms - delivery.log[0].at_ms) / 1000
        assert span_s == pytest.approx(sum(SCHEDULE), rel=0.01)
        job = await worker.rig.job(job_id)
        assert (job.state, job.webhook_status, job.webhook_attempts) == ("succeeded", FAILED, len(SCHEDULE))
        assert await worker.queued() == {}
        assert len(receiver.seen) == len(SCHEDULE)


async def test_a_failed_message_can_be_sent_again(valkey_url: str) -> None:
    async with receiving("410", tls=None) as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        delivery = await worker.ended(job_id)
        assert (delivery.status, delivery.log[0].status) == (FAILED, 410)
        receiver.always = "204"
        worker.clock.advance(60_000)
        assert await worker.outbox.deliveries.redeliver(LOCAL_TENANT, [delivery.id]) == ["OK"]
        again = await worker.ended(job_id)
        assert (again.status, again.attempts, again.tried, again.since_ms) == (DELIVERED, 2, 1, START_MS + 60_000)
        assert receiver.ids == [delivery.id] * 2


@pytest.mark.parametrize("status", ["429", "503"])
@pytest.mark.parametrize(("asked", "pause_s"), [("120", 120), ("1", 5), ("999999999", 86_400), ("soon", 5)])
async def test_a_receiver_may_ask_for_a_longer_pause(valkey_url: str, status: str, asked: str, pause_s: int) -> None:
    async with receiving(f"{status} {asked}") as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        delivery = await worker.tried(job_id, 1)
        assert delivery.next_ms == pytest.approx(START_MS + pause_s * 1000, abs=1500)


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data/", "/elsewhere", "//127.0.0.1/"])
@pytest.mark.parametrize("status", ["301", "302"])
async def test_a_redirect_is_never_followed(valkey_url: str, status: str, target: str) -> None:
    """B079"""
    async with receiving(f"{status} {target}") as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        delivery = await worker.tried(job_id, 1)
        assert (delivery.status, delivery.log[0].status, delivery.log[0].fault) == (PENDING, int(status), "status")
        assert len(receiver.seen) == 1


async def test_output_is_sent_where_it_is_small_and_asked_for(valkey_url: str) -> None:
    async with receiving() as receiver, running_worker(valkey_url) as worker:
        for include_output, text in ((False, "x"), (True, "x"), (True, "x" * 5000)):
            await worker.rig.submit(webhook=Webhook(receiver.url, include_output=include_output))
            await worker.rig.store.settle([Succeed(await worker.rig.lease(), a_result(text))])
            await receiver.got(len(receiver.seen) + 1)
        shown = [json.loads(seen.body)["data"] for seen in receiver.seen]
        assert [data["output_omitted"] for data in shown] == [True, False, True]
        assert [data["output"] and data["output"]["y"]["data"] for data in shown] == [None, [120], None]
        assert all(len(seen.body) < 20_000 for seen in receiver.seen)


async def test_a_failure_tells_why(valkey_url: str) -> None:
    async with receiving() as receiver, running_worker(valkey_url) as worker:
        await worker.outbox.fail(url=receiver.url)
        (seen,) = await receiver.got(1)
        told = json.loads(seen.body)
        assert told["type"] == "job.failed"
        assert told["data"]["error"]["code"] == "engine_error"
        assert told["data"]["output_omitted"] is False


async def test_start_and_end_are_two_messages(valkey_url: str) -> None:
    async with receiving() as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.submit(WebhookEvent.STARTED, WebhookEvent.FAILED, url=receiver.url)
        lease = await worker.rig.lease()
        await receiver.got(1)
        assert (await worker.rig.job(job_id)).webhook_status in (PENDING, DELIVERED)
        await worker.rig.store.settle([Fail(lease, an_error())])
        await receiver.got(2)
        assert receiver.ids == [message(job_id, event) for event in (WebhookEvent.STARTED, WebhookEvent.FAILED)]


async def test_without_a_secret_nothing_is_sent(valkey_url: str) -> None:
    async with receiving() as receiver, running_worker(valkey_url, secret="") as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        delivery = await worker.tried(job_id, 1)
        assert (delivery.status, delivery.log[0].fault) == (PENDING, "no_secret")
        assert receiver.connections == 0


async def test_what_ended_meanwhile_is_not_sent_again(valkey_url: str) -> None:
    """arq may run a job twice when Redis was away as it noted the end."""
    async with receiving() as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        delivery = await worker.ended(job_id)
        await worker.rig.redis.set(f"arq:job:{delivery.id}", arq_job(START_MS))
        await worker.rig.redis.zadd(keys.DELIVERIES_QUEUE, {delivery.id: START_MS})
        await worker.look()
        await worker.ended(job_id)
        assert await worker.queued() == {}
        assert len(receiver.seen) == 1


async def test_a_message_that_is_not_due_yet_is_put_back(valkey_url: str) -> None:
    async with receiving("500") as receiver, running_worker(valkey_url) as worker:
        job_id = await worker.outbox.succeed(url=receiver.url)
        delivery = await worker.tried(job_id, 1)
        await worker.rig.redis.zadd(keys.DELIVERIES_QUEUE, {delivery.id: START_MS})
        await worker.look()
        assert (await worker.tried(job_id, 1)).attempts == 1
        assert (await worker.queued())[delivery.id] == pytest.approx(delivery.next_ms, abs=1000)
        assert len(receiver.seen) == 1


async def test_entries_that_are_no_deliveries_are_dropped(valkey_url: str) -> None:
    """V05, B021"""
    async with receiving() as receiver, running_worker(valkey_url) as worker:
        await worker.rig.redis.zadd(keys.DELIVERIES_QUEUE, {b"\xff\xfe": 1, "cron:x": 2, f"msg_{'0' * 32}_failed": 3})
        job_id = await worker.outbox.succeed(url=receiver.url)
        assert (await worker.ended(job_id)).status is DELIVERED
        assert await worker.queued() == {}


def test_pauses_grow_as_the_schedule_says_and_never_by_more_than_the_jitter() -> None:
    for tried, pause in enumerate(SCHEDULE[1:], 1):
        shortest, middle, longest = (next_pause_ms(SCHEDULE, tried, 0, chance) for chance in (0.0, 0.5, 1.0))
        assert (shortest, middle, longest) == (round(pause * 800), round(pause * 1000), round(pause * 1200))
    assert next_pause_ms(SCHEDULE, len(SCHEDULE), 0, 0.5) is None


def test_a_message_that_waited_longer_than_its_schedule_is_given_up() -> None:
    week_ms = 7 * 86_400_000
    assert next_pause_ms(SCHEDULE, 1, week_ms, 0.5) is None


def test_a_pause_that_is_asked_for_is_never_shorter_nor_longer_than_a_day() -> None:
    assert next_pause_ms(SCHEDULE, 1, 0, 0.5, asked_ms=1) == 5000
    assert next_pause_ms(SCHEDULE, 1, 0, 0.5, asked_ms=60_000) == 60_000
    assert next_pause_ms(SCHEDULE, 1, 0, 0.5, asked_ms=10**12) == 86_400_000
