"""A lane's work, and what it does when the engine misbehaves: real Valkey, scripted engine, nothing patched."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from jobs.datatypes import Datatype, pack_bytes
from jobs.errors import ErrorCode
from jobs.keys import input_key
from jobs.record import LOCAL_TENANT, InputPart, InputSource, Job, JobRequest, RequestedOutput
from jobs.registry import LaneState
from jobs.spec import OutputKind
from jobs.state import State
from jobs.store import ALONE_FROM, Canceled
from tests.support.eventually import eventually
from tests.support.lanes import MODEL, Rig, lane_rig
from tests.support.scripted_triton import ScriptedModel, scripted_model

pytestmark = [pytest.mark.anyio, pytest.mark.server]

EVIL = float(np.frombuffer(b"EVIL", "<f4")[0])
"""A number whose bytes the scripted engine can be told to refuse."""


def code_of(job: Job) -> ErrorCode | None:
    return job.outcome.error.code if job.outcome and job.outcome.error else None


async def test_jobs_that_wait_together_share_calls_and_each_gets_its_own_answer(valkey_url: str) -> None:
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "slow:0.02")
        ids = [await rig.submit(float(i), float(-i)) for i in range(60)]
        for i, job in enumerate(await rig.ended(*ids)):
            assert job.state is State.SUCCEEDED
            assert await rig.values(job) == [i, -i]
            assert job.outcome is not None
            assert job.outcome.model_version == "1"
        assert len(rig.engine.calls) < 60
        assert max(call.batch_size for call in rig.engine.calls) > 1


async def test_ten_jobs_use_one_connection(valkey_url: str) -> None:
    """B047"""
    async with lane_rig(valkey_url) as rig:
        for i in range(10):
            await rig.ended(await rig.submit(float(i)))
        assert len(rig.engine.peers) == 1


async def test_jobs_of_different_shape_share_no_call_and_all_succeed(valkey_url: str) -> None:
    """B032"""
    async with lane_rig(valkey_url) as rig:
        ids = [await rig.submit(*range(16 if i % 2 else 20)) for i in range(100)]
        for i, job in enumerate(await rig.ended(*ids)):
            assert await rig.values(job) == list(range(16 if i % 2 else 20))


async def test_jobs_for_versions_that_differ_share_a_queue_and_no_call(valkey_url: str) -> None:
    """Each is sent as its version takes it: with and without a batch dimension, or in smaller batches."""
    newest = scripted_model(MODEL, inputs=[("x", "FP32", (3,))])
    flat = scripted_model(MODEL, inputs=[("x", "FP32", (2,))], max_batch_size=0).config
    small = scripted_model(MODEL, inputs=[("x", "FP32", (1,))], max_batch_size=2).config
    model = ScriptedModel(newest.config, ("1", "2", "3"), {"1": flat, "2": small})
    async with lane_rig(valkey_url, model) as rig:
        rig.engine.always(MODEL, "slow:0.02")
        of_each = [("1", (1, 2)), ("2", (3,)), ("3", (4, 5, 6)), ("", (7, 8, 9))]
        rows = of_each * 8 + [of_each[1]] * 16
        ids = [await rig.submit(*row, model_version=version) for version, row in rows]
        for (_, row), job in zip(rows, await rig.ended(*ids), strict=True):
            assert job.state is State.SUCCEEDED
            assert await rig.values(job) == list(row)
            assert job.outcome is not None
            assert job.outcome.outputs[0].shape == (len(row),)
        shapes = {(call.request.model_version, tuple(call.request.inputs[0].shape)) for call in rig.engine.calls}
        assert {shape for version, shape in shapes if version == "1"} == {(2,)}
        assert {shape[1:] for version, shape in shapes if version == "2"} == {(1,)}
        assert {shape[0] for version, shape in shapes if version == "2"} <= {1, 2}
        assert {shape[1:] for version, shape in shapes if version in ("", "3")} == {(3,)}


async def test_one_bad_job_among_eight_fails_alone(valkey_url: str) -> None:
    """B074"""
    async with lane_rig(valkey_url, runs=False) as rig:
        rig.engine.always(MODEL, "picky:EVIL")
        ids = [await rig.submit(EVIL if i == 5 else float(i)) for i in range(8)]
        lane = asyncio.create_task(rig.lane.run())
        jobs = await rig.ended(*ids)
        assert [job.state for job in jobs] == [State.FAILED if i == 5 else State.SUCCEEDED for i in range(8)]
        assert code_of(jobs[5]) is ErrorCode.MODEL_REJECTED
        assert [job.attempt for job in jobs] == [1] * 8
        rig.lane.quiet()
        await lane


@pytest.mark.parametrize("word", ["internal", "unknown", "wrong_size", "garbage"])
async def test_an_engine_fault_is_tried_again_until_max_failures(valkey_url: str, word: str) -> None:
    async with lane_rig(valkey_url) as rig:
        rig.engine.say(MODEL, word, word)
        (healed,) = await rig.ended(await rig.submit(1.0, max_failures=3))
        assert (healed.state, healed.failures, healed.attempt) == (State.SUCCEEDED, 2, 3)
        rig.engine.always(MODEL, word)
        (broken,) = await rig.ended(await rig.submit(1.0, max_failures=3))
        assert (broken.state, broken.attempt) == (State.FAILED, 3)
        assert code_of(broken) is ErrorCode.ENGINE_ERROR


async def test_what_the_model_rejects_is_not_tried_again(valkey_url: str) -> None:
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "reject")
        (job,) = await rig.ended(await rig.submit(1.0))
        assert (job.state, job.attempt, code_of(job)) == (State.FAILED, 1, ErrorCode.MODEL_REJECTED)


async def test_an_engine_that_hangs_ends_as_a_timeout_and_not_as_a_cancel(valkey_url: str) -> None:
    """B013"""
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "hang")
        (job,) = await rig.ended(await rig.submit(1.0, timeout_ms=150, max_failures=2))
        assert (job.state, job.attempt, code_of(job)) == (State.FAILED, 2, ErrorCode.ENGINE_TIMEOUT)
        await rig.engine.until(lambda: rig.engine.in_flight == 0)


async def test_a_job_that_timed_out_with_others_is_sent_alone_the_next_time(valkey_url: str) -> None:
    async with lane_rig(valkey_url, runs=False) as rig:
        rig.engine.say(MODEL, "hang")
        ids = [await rig.submit(float(i), timeout_ms=200) for i in range(4)]
        lane = asyncio.create_task(rig.lane.run())
        jobs = await rig.ended(*ids)
        assert [(job.state, job.failures) for job in jobs] == [(State.SUCCEEDED, 1)] * 4
        assert [call.batch_size for call in rig.engine.calls] == [4, 1, 1, 1, 1]
        rig.lane.quiet()
        await lane


@pytest.mark.parametrize("word", ["unavailable", "busy", "exhausted"])
async def test_an_engine_that_is_away_costs_a_job_nothing(valkey_url: str, word: str) -> None:
    """B052"""
    async with lane_rig(valkey_url) as rig:
        rig.engine.say(MODEL, word, word)
        (job,) = await rig.ended(await rig.submit(1.0, max_failures=1))
        assert (job.state, job.failures, job.attempt) == (State.SUCCEEDED, 0, 3)


async def test_while_the_engine_is_away_the_lane_says_so_and_leaves_the_queue_alone(valkey_url: str) -> None:
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "unavailable")
        rig.engine.ready(MODEL, False)
        job_id = await rig.submit(1.0)
        await rig.engine.until(lambda: len(rig.engine.calls) == 1)
        await rig.until([job_id], lambda job: job.state is State.QUEUED)
        await _until_lane_is(rig, LaneState.ENGINE)
        rig.engine.always(MODEL, "ok")
        rig.engine.ready(MODEL, True)
        (job,) = await rig.ended(job_id)
        assert (job.state, job.attempt, len(rig.engine.calls)) == (State.SUCCEEDED, 2, 2)
        await _until_lane_is(rig, LaneState.READY)


async def test_a_model_that_is_being_reloaded_costs_a_job_nothing(valkey_url: str) -> None:
    """B044"""
    async with lane_rig(valkey_url) as rig:
        rig.engine.say(MODEL, "not_found", "reloading")
        (job,) = await rig.ended(await rig.submit(1.0))
        assert (job.state, job.failures) == (State.SUCCEEDED, 0)


async def test_a_model_that_stays_away_fails_its_jobs_after_the_grace(valkey_url: str) -> None:
    """B044"""
    async with lane_rig(valkey_url, reload_grace_seconds=0.5) as rig:
        rig.engine.always(MODEL, "not_found")
        rig.engine.ready(MODEL, False)
        (job,) = await rig.ended(await rig.submit(1.0))
        assert (job.state, job.failures, code_of(job)) == (State.FAILED, 1, ErrorCode.MODEL_NOT_FOUND)


async def test_canceling_the_only_job_of_a_call_cancels_the_call(valkey_url: str) -> None:
    """B042"""
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "hang")
        job_id = await rig.submit(1.0)
        await rig.engine.until(lambda: rig.engine.in_flight == 1)
        assert await rig.store.cancel(job_id, LOCAL_TENANT) is Canceled.STOPPING
        await rig.engine.until(lambda: rig.engine.cancellations == 1, timeout_seconds=2)
        rig.engine.always(MODEL, "ok")
        (other,) = await rig.ended(await rig.submit(2.0))
        assert other.state is State.SUCCEEDED
        assert (await rig.job(job_id)).state is State.CANCELED


async def test_canceling_one_job_of_a_batch_leaves_the_others_alone(valkey_url: str) -> None:
    async with lane_rig(valkey_url, runs=False) as rig:
        rig.engine.say(MODEL, "slow:0.5")
        ids = [await rig.submit(float(i)) for i in range(4)]
        loops = [asyncio.create_task(loop) for loop in (rig.lane.run(), rig.heartbeat.listen())]
        await rig.engine.until(lambda: rig.engine.in_flight == 1)
        assert await rig.store.cancel(ids[2], LOCAL_TENANT) is Canceled.STOPPING
        jobs = await rig.ended(*ids)
        assert [job.state for job in jobs] == [State.CANCELED if i == 2 else State.SUCCEEDED for i in range(4)]
        assert rig.engine.cancellations == 0
        for loop in loops:
            loop.cancel()


async def test_the_engine_is_told_how_long_the_request_may_wait(valkey_url: str) -> None:
    """B042"""
    async with lane_rig(valkey_url) as rig:
        await rig.ended(await rig.submit(1.0, timeout_ms=7_000))
        (call,) = rig.engine.calls
        assert 0 < call.seconds_left <= 7.1  # gRPC rounds the deadline up
        assert 0 < call.parameters["timeout"] <= 7_000_000


async def test_a_drained_lane_gives_its_jobs_back_uncounted(valkey_url: str) -> None:
    """B003"""
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "hang")
        job_id = await rig.submit(1.0)
        await rig.engine.until(lambda: rig.engine.in_flight == 1)
        await rig.lane.stop(time.monotonic())
        await rig.lane.stop(time.monotonic())
        job = await rig.job(job_id)
        assert (job.state, job.failures, job.redeliveries) == (State.QUEUED, 0, 0)
        await rig.engine.until(lambda: rig.engine.in_flight == 0)


async def test_a_drained_lane_lets_a_running_batch_end(valkey_url: str) -> None:
    async with lane_rig(valkey_url) as rig:
        rig.engine.always(MODEL, "slow:0.3")
        job_id = await rig.submit(1.0)
        await rig.engine.until(lambda: rig.engine.in_flight == 1)
        await rig.lane.stop(time.monotonic() + 10)
        assert (await rig.job(job_id)).state is State.SUCCEEDED


async def test_a_lost_lease_is_noticed_and_the_other_workers_result_stands(valkey_url: str) -> None:
    async with lane_rig(valkey_url, lease_seconds=1, runs=False) as rig:
        rig.engine.say(MODEL, "hang")
        job_id = await rig.submit(1.0)
        loop = asyncio.create_task(rig.lane.run())
        await rig.engine.until(lambda: rig.engine.in_flight == 1)
        await eventually(lambda: _is_reaped(rig))
        await rig.heartbeat.run_once()
        await rig.engine.until(lambda: rig.engine.cancellations == 1, timeout_seconds=2)
        (job,) = await rig.ended(job_id)
        assert (job.state, job.attempt, job.redeliveries) == (State.SUCCEEDED, 2, 1)
        rig.lane.quiet()
        await loop


async def _is_reaped(rig: Rig) -> bool:
    return bool((await rig.store.reap([MODEL]))[MODEL].requeued)


async def _until_lane_is(rig: Rig, state: LaneState) -> None:
    async def says_so() -> bool:
        return (await rig.registry.workers())[0].lanes[MODEL].state is state

    await eventually(says_so)


async def test_a_payload_that_is_gone_fails_its_job_and_no_other(valkey_url: str) -> None:
    async with lane_rig(valkey_url, runs=False) as rig:
        ids = [await rig.submit(float(i)) for i in range(3)]
        await rig.store.connection.client.delete(input_key(ids[1]))
        loop = asyncio.create_task(rig.lane.run())
        jobs = await rig.ended(*ids)
        assert [job.state for job in jobs] == [State.SUCCEEDED, State.FAILED, State.SUCCEEDED]
        assert code_of(jobs[1]) is ErrorCode.LOST
        rig.lane.quiet()
        await loop


async def test_a_worker_holds_no_more_payload_bytes_than_its_budget(valkey_url: str) -> None:
    """B046"""
    async with lane_rig(valkey_url, inflight_bytes=1 << 20, runs=False) as rig:
        rig.engine.always(MODEL, "slow:0.05")
        big = [0.0] * (100 * 1024)
        ids = [await rig.submit(*big) for _ in range(12)]
        loop = asyncio.create_task(rig.lane.run())
        jobs = await rig.ended(*ids)
        assert [job.state for job in jobs] == [State.SUCCEEDED] * 12
        assert max(call.batch_size for call in rig.engine.calls) <= 2
        rig.lane.quiet()
        await loop


async def test_an_output_above_the_cap_fails_with_its_size(valkey_url: str) -> None:
    async with lane_rig(valkey_url, max_output_bytes=1024) as rig:
        (job,) = await rig.ended(await rig.submit(*([1.0] * 257)))
        assert (job.state, code_of(job), job.attempt) == (State.FAILED, ErrorCode.OUTPUT_TOO_LARGE, 1)
        assert job.outcome is not None
        assert job.outcome.error is not None
        assert "1028" in job.outcome.error.detail


async def test_rows_of_one_job_stay_together_and_keep_their_first_dimension(valkey_url: str) -> None:
    async with lane_rig(valkey_url) as rig:
        data = np.arange(6, dtype="<f4").tobytes()
        part = InputPart("x", InputSource.TENSOR, len(data), Datatype.FP32, (3, 2))
        request = JobRequest(MODEL, (part,), (RequestedOutput("y"),), rows=3)
        (job,) = await rig.ended(await rig.submit_request(request, data))
        assert job.outcome is not None
        assert job.outcome.outputs[0].shape == (3, 2)
        assert await rig.values(job) == [0, 1, 2, 3, 4, 5]


async def test_classes_are_split_between_jobs_of_one_batch(valkey_url: str) -> None:
    async with lane_rig(valkey_url, runs=False) as rig:
        rows = [(0.1, 0.9, 0.0), (0.7, 0.1, 0.2)]
        ids = []
        for row in rows:
            data = np.asarray(row, "<f4").tobytes()
            part = InputPart("x", InputSource.TENSOR, len(data), Datatype.FP32, (3,))
            request = JobRequest(MODEL, (part,), (RequestedOutput("y", classes=2),))
            ids.append(await rig.submit_request(request, data))
        loop = asyncio.create_task(rig.lane.run())
        first, second = await rig.ended(*ids)
        assert [call.batch_size for call in rig.engine.calls] == [2]
        for job, best in ((first, b":1"), (second, b":0")):
            output = await rig.store.output(job)
            assert output is not None
            assert best in output
            assert job.outcome is not None
            assert job.outcome.outputs[0].kind is OutputKind.CLASSIFICATION
            assert job.outcome.outputs[0].shape == (2,)
        rig.lane.quiet()
        await loop


async def test_text_elements_are_split_by_their_own_lengths(valkey_url: str) -> None:
    """B036"""
    model = scripted_model(MODEL, inputs=[("x", "BYTES", (-1,))], outputs=[("y", "BYTES", (-1,))])
    async with lane_rig(valkey_url, model, runs=False) as rig:
        words = [[b"a\0b\0\0", b""], [b"\xff" * 300, "müde".encode()]]
        ids = []
        for elements in words:
            data = pack_bytes(elements)
            part = InputPart("x", InputSource.TENSOR, len(data), Datatype.BYTES, (2,))
            ids.append(await rig.submit_request(JobRequest(MODEL, (part,), (RequestedOutput("y"),)), data))
        loop = asyncio.create_task(rig.lane.run())
        for job, elements in zip(await rig.ended(*ids), words, strict=True):
            assert await rig.store.output(job) == pack_bytes(elements)
        assert [call.batch_size for call in rig.engine.calls] == [2]
        rig.lane.quiet()
        await loop


async def test_a_model_without_batch_dimension_gets_one_job_a_call(valkey_url: str) -> None:
    """B033"""
    model = scripted_model(MODEL, inputs=[("x", "FP32", (-1,))], outputs=[("y", "FP32", (-1,))], max_batch_size=0)
    async with lane_rig(valkey_url, model) as rig:
        ids = [await rig.submit(float(i)) for i in range(5)]
        for i, job in enumerate(await rig.ended(*ids)):
            assert await rig.values(job) == [i]
        assert [list(call.request.inputs[0].shape) for call in rig.engine.calls] == [[1]] * 5


async def test_a_model_that_streams_gives_all_its_answers_in_order(valkey_url: str) -> None:
    """B043"""
    model = scripted_model(MODEL, decoupled=True)
    async with lane_rig(valkey_url, model) as rig:
        rig.engine.always(MODEL, "times:3")
        (job,) = await rig.ended(await rig.submit(1.0, 2.0))
        assert (job.state, job.attempt) == (State.SUCCEEDED, 1)
        assert await rig.values(job) == [1, 2, 1, 2, 1, 2]
        rig.engine.always(MODEL, "times:0")
        (empty,) = await rig.ended(await rig.submit(1.0))
        assert await rig.values(empty) == []


async def test_a_scheduled_job_is_taken_when_it_is_due_and_not_before(valkey_url: str) -> None:
    async with lane_rig(valkey_url) as rig:
        (now,) = await rig.ended(await rig.submit(1.0))
        (job,) = await rig.ended(await rig.submit(1.0, run_at_ms=now.finished_ms + 400))
        assert 0 <= job.started_ms - job.due_ms < 1_500


async def test_a_job_that_may_kill_workers_waits_in_the_queue_while_another_lane_runs_one(valkey_url: str) -> None:
    """In hand it would be taken for one that ran if the process died: it must not be claimed at all."""
    async with lane_rig(valkey_url, runs=False) as rig:
        suspect = await rig.submit(1.0)
        for _ in range(ALONE_FROM):
            await rig.store.claim(MODEL, 1, worker="dead", lease_ms=0)
            await rig.store.reap([MODEL])
        quarantine = rig.tools.quarantine
        assert quarantine.enter()
        await rig.lane.run_once()
        job = await rig.job(suspect)
        assert (job.state, job.attempt) == (State.QUEUED, ALONE_FROM)
        quarantine.leave()
        await rig.lane.run_once()
        (job,) = await rig.ended(suspect)
        assert (job.state, job.attempt, job.redeliveries) == (State.SUCCEEDED, ALONE_FROM + 1, ALONE_FROM)
        await rig.lane.stop(time.monotonic() + 10)
        assert not quarantine.is_taken


async def test_wherever_a_batch_is_cancelled_nothing_leaks_and_no_job_is_lost(valkey_url: str) -> None:
    async with lane_rig(valkey_url, runs=False) as rig:
        rig.engine.always(MODEL, "picky:EVIL")
        steps, ended = 1, False  # a task that is cancelled before its first step runs nothing at all
        while not ended:
            ids = [await rig.submit(EVIL if i == 1 else float(i)) for i in range(3)]
            claim = await rig.store.claim(MODEL, 3, worker="w-1", lease_ms=12_000)
            batch = asyncio.create_task(rig.runner().run(claim.jobs, max_rows=8))
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = batch.done()
            batch.cancel()
            await asyncio.gather(batch, return_exceptions=True)
            assert rig.tools.flights.leases() == []
            assert rig.tools.engine.in_flight == 0
            for job in [await rig.job(job_id) for job_id in ids]:
                assert job.state is not State.IN_PROGRESS
                assert (job.failures, job.redeliveries) == (int(job.state is State.FAILED), 0)
                await rig.store.delete(job.id, LOCAL_TENANT, force=True)
            steps += 1
        assert steps > 10
