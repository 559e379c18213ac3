"""What a submit stores, what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from jobs import keys
from jobs.connection import Call
from jobs.record import LOCAL_TENANT, Priority
from jobs.state import State
from jobs.store import Submitted, Succeed
from jobs.tensors import Buffer
from tests.support.stores import PAYLOAD, START_MS, Rig, a_request, a_result, a_submission, an_error

pytestmark = pytest.mark.anyio


async def test_a_job_is_stored_as_it_was_asked_for(rig: Rig) -> None:
    job = a_submission(
        priority=Priority.HIGH, metadata={"a": [1, None, "ü"]}, parameters={"t": 0.5}, timeout_ms=1, model_version="3"
    )
    assert (await rig.store.submit(job))[:2] == (Submitted.OK, job.id)
    stored = await rig.job(job.id)
    assert stored.request == job.request
    assert (stored.state, stored.tenant, stored.created_ms, stored.due_ms) == (
        State.QUEUED,
        LOCAL_TENANT,
        START_MS,
        START_MS,
    )
    assert await rig.store.load([job.id, "0" * 32]) == [PAYLOAD, None]
    assert await rig.store.load([]) == []


async def test_jobs_of_other_tenants_do_not_exist(rig: Rig) -> None:
    """T: `GET /jobs/{id}`."""
    job_id = await rig.submit()
    for stranger in ("", "loca", "local ", "other"):
        assert await rig.store.get(job_id, stranger) is None
        assert (await rig.store.cancel(job_id, stranger)).value == "NOT_FOUND"
        assert (await rig.store.delete(job_id, stranger, force=True)).value == "NOT_FOUND"
    assert await rig.state(job_id) is State.QUEUED


async def test_many_jobs_are_stored_or_refused_each_by_itself(rig: Rig) -> None:
    store = rig.another(max_queued=2)
    assert await store.submit_many([]) == []
    replies = await store.submit_many([a_submission() for _ in range(3)] + [a_submission("other")])
    assert [reply.word for reply in replies] == [Submitted.OK, Submitted.OK, Submitted.FULL, Submitted.OK]


async def test_jobs_of_one_block_see_each_other(rig: Rig) -> None:
    """One key means one job and one queue has one depth, also within a block."""
    store = rig.another(max_queued=3)
    keyed = [a_submission(idempotency_key="k", fingerprint=fingerprint) for fingerprint in "ffg"]
    plain, twice, one_too_many = a_submission(), a_submission(), a_submission()
    elsewhere = a_submission("other", tenant="other", run_at_ms=START_MS + 5, idempotency_key="k")
    replies = await store.submit_many([*keyed, plain, twice, twice, one_too_many, elsewhere])
    assert [reply[:2] for reply in replies] == [
        (Submitted.OK, keyed[0].id),
        (Submitted.REPLAYED, keyed[0].id),
        (Submitted.CONFLICT, keyed[0].id),
        (Submitted.OK, plain.id),
        (Submitted.OK, twice.id),
        (Submitted.OK, twice.id),
        (Submitted.FULL, one_too_many.id),
        (Submitted.OK, elsewhere.id),
    ]
    assert {one.lease.job_id for one in await rig.claim(10)} == {keyed[0].id, plain.id, twice.id}
    rig.clock.advance(5)
    assert [one.lease.job_id for one in await rig.claim(10, model="other")] == [elsewhere.id]
    inputs = {key for key in await rig.keys() if key.startswith(keys.input_key(""))}
    assert inputs == {keys.input_key(job.id) for job in (keyed[0], plain, twice, elsewhere)}


async def test_a_full_queue_refuses_and_keeps_nothing(rig: Rig) -> None:
    """B075: a refusal costs no memory; scheduled jobs count as queued, running ones do not."""
    store = rig.another(max_queued=2)
    await store.submit(a_submission())
    await store.submit(a_submission(run_at_ms=START_MS + 60_000))
    before = await rig.snapshot()
    assert (await store.submit(a_submission(idempotency_key="k"))).word is Submitted.FULL
    assert await rig.snapshot() == before
    await rig.lease()
    assert (await store.submit(a_submission())).word is Submitted.OK


async def test_a_job_without_its_payload_is_refused(rig: Rig) -> None:
    job = a_submission(idempotency_key="k")
    (replies,) = await rig.connection.run(Call(*rig.store._submit_arguments([job]), script="submit"))
    assert replies == [[b"NO_PAYLOAD", job.id.encode()], []]
    assert await rig.keys() == set()


async def test_the_same_key_and_body_give_the_first_job(rig: Rig) -> None:
    """B007."""
    first = await rig.submit_reply(idempotency_key="k", fingerprint="f")
    before = await rig.snapshot()
    assert (await rig.submit_reply(idempotency_key="k", fingerprint="f"))[:2] == (Submitted.REPLAYED, first.job_id)
    assert (await rig.submit_reply(idempotency_key="k", fingerprint="g"))[:2] == (Submitted.CONFLICT, first.job_id)
    assert await rig.snapshot() == before


async def test_a_key_still_means_its_job_after_the_job_ended(rig: Rig) -> None:
    """B007: never a 202 without a job, whatever became of the first one."""
    first = await rig.submit_reply(idempotency_key="k", fingerprint="f")
    await rig.store.settle([Succeed(await rig.lease(), a_result())])
    assert (await rig.submit_reply(idempotency_key="k", fingerprint="f"))[:2] == (Submitted.REPLAYED, first.job_id)


@pytest.mark.parametrize("fingerprint", ["f", "g"])
async def test_a_key_is_free_again_once_its_job_is_forgotten(rig: Rig, fingerprint: str) -> None:
    first = await rig.submit_reply(idempotency_key="k", fingerprint="f")
    await rig.store.delete(first.job_id, LOCAL_TENANT, force=True)
    second = await rig.submit_reply(idempotency_key="k", fingerprint=fingerprint)
    assert second.word is Submitted.OK
    assert second.job_id != first.job_id
    assert (await rig.submit_reply(idempotency_key="k", fingerprint=fingerprint))[:2] == (
        Submitted.REPLAYED,
        second.job_id,
    )


async def test_a_key_lives_as_long_as_its_job_can(rig: Rig) -> None:
    job_id = await rig.submit(idempotency_key="k")
    key_ttl = await rig.redis.pttl(keys.idempotency_key(LOCAL_TENANT, "k"))
    assert 0 < await rig.redis.pttl(keys.job_key(job_id)) <= key_ttl + 100


async def test_tenants_do_not_share_keys(rig: Rig) -> None:
    """T: Idempotency-Key."""
    first = await rig.submit_reply(tenant="a", idempotency_key="k", fingerprint="f")
    second = await rig.submit_reply(tenant="b", idempotency_key="k", fingerprint="f")
    assert (first.word, second.word) == (Submitted.OK, Submitted.OK)
    with pytest.raises(ValueError, match="colon"):
        await rig.submit_reply(tenant="a:b", idempotency_key="k")


async def test_a_thousand_submits_with_one_key_at_once_make_one_job(rig: Rig) -> None:
    replies = await asyncio.gather(
        *(rig.submit_reply(idempotency_key="k", fingerprint="f") for _ in range(1000 if rig.is_real else 200))
    )
    assert len({reply.job_id for reply in replies}) == 1
    assert [reply.word for reply in replies].count(Submitted.OK) == 1
    kinds = {key.split(":")[1] for key in await rig.keys()}
    assert kinds == {"job", "in", "idem", "index", "open", "ready", "share", "turns", "held", "wake"}
    assert len(await rig.claim(10)) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"\r\n\x00\xff" * 6,
        bytearray(b"\r\n\x00\xff" * 6),
        memoryview(b"\r\n\x00\xff" * 6),
        np.frombuffer(b"\r\n\x00\xff" * 6, np.float32).reshape(2, 3).data,
    ],
)
async def test_any_buffer_is_stored_as_its_bytes(rig: Rig, payload: Buffer) -> None:
    job_id = await rig.submit(payload=payload)
    lease = await rig.lease()
    assert await rig.store.load([job_id]) == [b"\r\n\x00\xff" * 6]
    await rig.store.settle([Succeed(lease, an_error(), payload)])
    assert await rig.redis.get(keys.output_key(job_id, 1)) == b"\r\n\x00\xff" * 6


@pytest.mark.parametrize("payload", [b"", bytearray(), np.empty((0, 4), np.float32).data])
async def test_an_empty_payload_is_a_payload(rig: Rig, payload: Buffer) -> None:
    """B039: a tensor without elements has no bytes."""
    job_id = await rig.submit(payload=payload)
    await rig.lease()
    assert await rig.store.load([job_id]) == [b""]


async def test_hostile_names_stay_data(rig: Rig) -> None:
    """T: Redis: what a client chooses never becomes another key or a piece of a script."""
    for name in ("' .. redis.call('FLUSHALL') .. '", "a b\r\nSET x y", "*", "ü:{x}", "\x00"):
        job_id = await rig.submit(name, metadata={name: name}, request_id=name, idempotency_key=name)
        (claimed,) = await rig.claim(model=name)
        assert claimed.lease.job_id == job_id
        assert claimed.request == a_request(name, metadata={name: name}, request_id=name)
