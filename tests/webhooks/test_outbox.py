"""A message is left in the very step that its event happens in, once, and nothing that it needs goes before it."""

from __future__ import annotations

import pytest
from arq.connections import ArqRedis
from arq.jobs import Job as ArqJob
from arq.jobs import JobStatus, deserialize_job

from jobs import codec, keys
from jobs.deliveries import Record
from jobs.outbox import DELIVER, HELD_MS, LISTED_MS, arq_job
from jobs.record import LOCAL_TENANT
from jobs.state import State
from jobs.store import Canceled, Deleted, Fail, Lease, Release, Succeed
from jobs.webhook import DeliveryStatus, WebhookEvent
from tests.support.stores import LEASE_MS, START_MS, Rig, a_result, an_error
from tests.support.webhooks import DONE, HOST, REFUSED, Outbox, message

pytestmark = pytest.mark.anyio

TTL_MS = 10_000
BIG = b"o" * 5000
DELIVERED, FAILED, PENDING = DeliveryStatus.DELIVERED, DeliveryStatus.FAILED, DeliveryStatus.PENDING


async def end(outbox: Outbox, how: str) -> tuple[str, WebhookEvent]:
    """A job that ended in this way, and what is to be told of it."""
    rig = outbox.rig
    job_id = await outbox.submit(queue_ttl_ms=10 * TTL_MS)
    match how:
        case "succeed":
            await rig.store.settle([Succeed(await rig.lease(), a_result())])
            return job_id, WebhookEvent.SUCCEEDED
        case "fail":
            await rig.store.settle([Fail(await rig.lease(), an_error())])
            return job_id, WebhookEvent.FAILED
        case "cancel while queued":
            assert await rig.store.cancel(job_id, LOCAL_TENANT) is Canceled.CANCELED
            return job_id, WebhookEvent.CANCELED
        case "cancel while running":
            await rig.lease()
            assert await rig.store.cancel(job_id, LOCAL_TENANT) is Canceled.STOPPING
            return job_id, WebhookEvent.CANCELED
        case "delete while queued":
            assert await rig.store.delete(job_id, LOCAL_TENANT, force=True) is Deleted.OK
            return job_id, WebhookEvent.CANCELED
        case "lose the worker":
            for _ in range(4):
                await rig.claim()
                rig.clock.advance(LEASE_MS)
                await rig.store.reap(["resnet"])
            return job_id, WebhookEvent.FAILED
        case "lose the entry":
            await rig.lease()
            await rig.redis.delete(keys.leased_key("resnet"))
            assert (await rig.store.expire([job_id])).lost == [job_id]
            return job_id, WebhookEvent.FAILED
    rig.clock.advance(10 * TTL_MS)
    match how:
        case "expire by a claim":
            assert await rig.claim() == []
        case "expire by a look":
            await rig.job(job_id)
        case "expire by the sweeper":
            assert (await rig.store.expire()).expired == [job_id]
    return job_id, WebhookEvent.EXPIRED


ENDS = (
    "succeed",
    "fail",
    "cancel while queued",
    "cancel while running",
    "delete while queued",
    "lose the worker",
    "lose the entry",
    "expire by a claim",
    "expire by a look",
    "expire by the sweeper",
)


@pytest.mark.parametrize("how", ENDS)
async def test_every_end_leaves_one_message(rig: Rig, how: str) -> None:
    outbox = Outbox(rig)
    job_id, event = await end(outbox, how)
    taken = await outbox.only()
    assert (taken.id, taken.host, taken.taken_ms) == (message(job_id, event), HOST, rig.clock.now_ms)
    delivery, job = taken.delivery(), taken.job()
    assert job is not None
    assert f"job.{job.state}" == event == delivery.event
    assert job.webhook_status is delivery.status is PENDING
    assert (delivery.created_ms, delivery.attempts) == (rig.clock.now_ms, 0)


@pytest.mark.parametrize("how", ENDS)
async def test_a_job_without_a_webhook_leaves_none(rig: Rig, how: str) -> None:
    await end(Outbox(rig, has_webhooks=False), how)
    assert not [key for key in await rig.keys() if "delivery" in key or "arq" in key or "webhook" in key]


async def test_a_message_is_an_ordinary_job_of_arq(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.fail()
    arq = ArqRedis(
        pool_or_conn=rig.redis.connection_pool, job_deserializer=codec.decode, default_queue_name="inferq:webhooks"
    )
    delivery = message(job_id, WebhookEvent.FAILED)
    (queued,) = await arq.queued_jobs()
    assert (queued.job_id, queued.function, list(queued.args), queued.kwargs) == (delivery, DELIVER, [], {})
    assert (queued.enqueue_time.timestamp() * 1000, queued.score) == (START_MS, START_MS)
    looked_up = ArqJob(delivery, arq, _queue_name="inferq:webhooks", _deserializer=codec.decode)
    assert await looked_up.status() is JobStatus.queued
    assert await arq.get(f"arq:job:{delivery}") == arq_job(START_MS)
    assert deserialize_job(arq_job(START_MS), deserializer=codec.decode).function == DELIVER
    assert 0 < await arq.pttl(f"arq:job:{delivery}") <= HELD_MS


async def test_only_what_is_wanted_is_told(rig: Rig) -> None:
    outbox = Outbox(rig)
    await outbox.submit(WebhookEvent.FAILED)
    await rig.store.settle([Succeed(await rig.lease(), a_result())])
    assert await outbox.taken() == []
    job_id = await outbox.submit(WebhookEvent.STARTED, WebhookEvent.FAILED)
    assert await outbox.taken() == []
    lease = await rig.lease()
    assert await outbox.taken() == [message(job_id, WebhookEvent.STARTED)]
    await rig.store.settle([Fail(lease, an_error())])
    assert await outbox.taken() == [message(job_id, WebhookEvent.FAILED)]


async def test_a_start_is_told_once_however_often_the_job_runs(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.submit(WebhookEvent.STARTED)
    for _ in range(3):
        await rig.store.settle([Release(await rig.lease())])
    await outbox.settle((await outbox.only()).id, DELIVERED)
    await rig.lease()
    assert await outbox.taken() == []
    assert (await outbox.delivery(message(job_id, WebhookEvent.STARTED))).attempts == 1


async def test_a_repeated_call_leaves_no_second_message(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.submit()
    lease = await rig.lease()
    for _ in range(3):
        await rig.store.settle([Succeed(lease, a_result())])
        await rig.store.cancel(job_id, LOCAL_TENANT)
    assert await outbox.taken() == [message(job_id, WebhookEvent.SUCCEEDED)]
    assert await outbox.taken() == []


async def test_a_lost_lease_tells_nothing(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.submit()
    await rig.lease()
    await rig.store.settle([Succeed(Lease(job_id, 2), a_result()), Fail(Lease(job_id, 7), an_error())])
    assert await outbox.taken() == []


@pytest.mark.parametrize("output", [None, BIG])
async def test_a_result_is_kept_while_its_message_is_tried(rig: Rig, output: bytes | None) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.succeed(output, result_ttl_ms=TTL_MS)
    delivery = (await outbox.only()).id
    rig.clock.advance(TTL_MS + 1)
    await outbox.settle(delivery, PENDING, REFUSED, rig.clock.now_ms + 1000)
    job = await rig.job(job_id)
    assert not job.has_expired(rig.clock.now_ms)
    assert await rig.store.output(job) == (output or b"answer")
    assert 0 < await rig.redis.pttl(keys.job_key(job_id)) <= HELD_MS
    await outbox.settle(delivery, DELIVERED)
    job = await rig.job(job_id)
    assert job.has_expired(rig.clock.now_ms)
    assert job.webhook_status is DELIVERED
    assert await rig.store.output(job) is None
    day_ms = 86_400_000
    assert 0 < await rig.redis.pttl(keys.job_key(job_id)) <= day_ms
    assert 0 < await rig.redis.pttl(keys.delivery_key(delivery)) <= day_ms
    assert 0 < await rig.redis.pttl(keys.attempts_key(delivery)) <= day_ms


@pytest.mark.parametrize("status", [DELIVERED, FAILED])
async def test_a_result_outlives_a_message_that_ended_in_time(rig: Rig, status: DeliveryStatus) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.succeed(BIG, result_ttl_ms=TTL_MS)
    await outbox.settle((await outbox.only()).id, status)
    job = await rig.job(job_id)
    assert (job.state, job.webhook_status) == (State.SUCCEEDED, status)
    assert await rig.store.output(job) == BIG
    assert 0 < await rig.redis.pttl(keys.output_key(job_id, 1)) <= TTL_MS


async def test_a_result_is_kept_for_the_last_of_two_messages(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.submit(WebhookEvent.STARTED, WebhookEvent.SUCCEEDED, result_ttl_ms=TTL_MS)
    await rig.store.settle([Succeed(await rig.lease(), a_result())])
    rig.clock.advance(TTL_MS)
    assert await outbox.taken() == [message(job_id, event) for event in (WebhookEvent.STARTED, WebhookEvent.SUCCEEDED)]
    await outbox.settle(message(job_id, WebhookEvent.SUCCEEDED), DELIVERED)
    assert await rig.store.output(await rig.job(job_id)) == b"answer"
    await outbox.settle(message(job_id, WebhookEvent.STARTED), FAILED)
    job = await rig.job(job_id)
    assert await rig.store.output(job) is None
    assert job.webhook_status is DELIVERED, "it is the latest message's"


async def test_a_deleted_job_is_out_of_sight_and_its_message_goes_out(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.succeed(metadata={"order": 7})
    assert await rig.store.delete(job_id, LOCAL_TENANT, force=False) is Deleted.OK
    assert await rig.store.get(job_id, LOCAL_TENANT) is None
    taken = await outbox.only()
    job = taken.job()
    assert job is not None
    assert job.request.metadata == {"order": 7}
    assert job.outcome is None, "its result was deleted"
    assert await outbox.deliveries.redeliver(LOCAL_TENANT, [taken.id]) == ["NOT_FOUND"]
    await outbox.settle(taken.id, DELIVERED)
    assert not [key for key in await rig.keys() if job_id in key]


async def test_nothing_is_left_of_a_job_that_is_deleted_after_its_message(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.succeed()
    await outbox.settle((await outbox.only()).id, FAILED)
    await rig.store.delete(job_id, LOCAL_TENANT, force=False)
    assert not [key for key in await rig.keys() if job_id in key]
    assert await rig.redis.zcard(keys.undelivered_key(LOCAL_TENANT)) == 0


async def test_the_list_of_what_was_not_delivered_has_an_end(rig: Rig) -> None:
    outbox = Outbox(rig)
    await outbox.succeed()
    await outbox.settle((await outbox.only()).id, FAILED, REFUSED)
    rig.clock.advance(LISTED_MS + 1)
    later = await outbox.succeed()
    listed = await rig.redis.zrange(keys.undelivered_key(LOCAL_TENANT), 0, -1)
    assert listed == [message(later, WebhookEvent.SUCCEEDED).encode()]


async def test_everything_that_a_message_leaves_has_an_end(rig: Rig) -> None:
    await Outbox(rig, has_webhooks=False).succeed(BIG)
    before = await rig.keys()
    outbox = Outbox(rig)
    await outbox.succeed(BIG)
    await outbox.settle((await outbox.only()).id, PENDING, REFUSED, rig.clock.now_ms)
    lasting = {key.decode() for key, (_, has_ttl) in (await rig.snapshot()).items() if not has_ttl}
    assert lasting - before - {keys.LOAD_KEY} == {keys.DELIVERIES_QUEUE, keys.undelivered_key(LOCAL_TENANT)}


async def test_an_attempt_that_comes_too_late_changes_nothing_but_the_log(rig: Rig) -> None:
    """Two workers may send the same message after an outage; the first success stands."""
    outbox = Outbox(rig)
    job_id = await outbox.succeed()
    taken = await outbox.only()
    assert await outbox.settle(taken.id, DELIVERED, DONE)
    assert not await outbox.settle(taken.id, PENDING, REFUSED, rig.clock.now_ms)
    assert not await outbox.settle(taken.id, FAILED, REFUSED)
    (delivery,) = await outbox.deliveries.of_job(job_id)
    assert (delivery.status, delivery.attempts) == (DELIVERED, 3)
    assert [attempt.status for attempt in delivery.log] == [200, 500, 500]
    assert (await rig.job(job_id)).webhook_status is DELIVERED


@pytest.mark.parametrize(("status", "next_ms"), [(DELIVERED, 0), (FAILED, 0), (PENDING, START_MS + 1000)])
async def test_a_record_that_is_sent_twice_counts_once(rig: Rig, status: DeliveryStatus, next_ms: int) -> None:
    """As after a lost reply of Redis."""
    outbox = Outbox(rig)
    job_id = await outbox.succeed()
    record = Record((await outbox.only()).delivery(), REFUSED, status, next_ms)
    assert await outbox.deliveries.record([record, record]) == [True, True]
    before = await rig.snapshot()
    assert await outbox.deliveries.record([record]) == [True]
    assert await rig.snapshot() == before
    (delivery,) = await outbox.deliveries.of_job(job_id)
    assert (delivery.status, delivery.attempts, delivery.tried, delivery.log) == (status, 1, 1, (REFUSED,))


async def test_the_log_is_capped(rig: Rig) -> None:
    outbox = Outbox(rig)
    job_id = await outbox.succeed()
    taken = await outbox.only()
    for _ in range(103):
        await outbox.settle(taken.id, PENDING, REFUSED, rig.clock.now_ms)
    (delivery,) = await outbox.deliveries.of_job(job_id)
    assert (delivery.attempts, delivery.tried, len(delivery.log)) == (103, 103, 100)
