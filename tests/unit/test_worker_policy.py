"""What the worker decides without looking at anything: policy, breaker, budget, watch."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.datatypes import Datatype
from jobs.errors import (
    EngineFailed,
    EngineLost,
    EngineTimeout,
    EngineUnavailable,
    ErrorCode,
    InvalidInput,
    JobFailure,
    ModelNotFound,
    ModelRejected,
    OutputTooLarge,
)
from jobs.record import InputPart, InputSource, JobRequest, Outcome, RequestedOutput
from jobs.store import MAX_REDELIVERIES, Claimed, Fail, Lease, Release, Retry
from workers.breaker import Breaker
from workers.budget import ByteBudget
from workers.policy import after_failure, backoff_ms
from workers.sizer import BatchSizer
from workers.watch import EngineWatch


def a_job(*, nbytes: int = 4, failures: int = 0, max_failures: int = 3, redeliveries: int = 0) -> Claimed:
    part = InputPart("x", InputSource.TENSOR, nbytes, Datatype.UINT8, (nbytes,))
    request = JobRequest("m", (part,), (RequestedOutput("y"),), max_failures=max_failures)
    return Claimed(Lease("0" * 32, 1), request, failures, redeliveries, 0, 0)


def is_open(breaker: Breaker) -> bool:
    """A call, so that the type checker does not take the first answer for the last."""
    return breaker.is_open


@pytest.mark.parametrize("failure", [EngineTimeout("…"), EngineFailed("…")])
@pytest.mark.parametrize(("failures", "expected"), [(0, Retry), (1, Retry), (2, Fail), (7, Fail)])
def test_faults_that_may_pass_are_tried_again_until_the_last_allowed_failure(
    failure: JobFailure, failures: int, expected: type
) -> None:
    assert isinstance(after_failure(a_job(failures=failures), failure, Outcome(), Random(1)), expected)


@pytest.mark.parametrize("failure", [InvalidInput("…"), ModelRejected("…"), ModelNotFound("…"), OutputTooLarge("…")])
def test_what_the_request_is_to_blame_for_fails_at_once(failure: JobFailure) -> None:
    assert isinstance(after_failure(a_job(), failure, Outcome(), Random(1)), Fail)


def test_an_engine_that_is_away_costs_nothing_even_at_the_last_attempt() -> None:
    job = a_job(failures=2, max_failures=3)
    assert isinstance(after_failure(job, EngineUnavailable("…"), Outcome(), Random(1)), Release)


def test_an_engine_that_dies_under_a_job_is_counted_and_the_fourth_time_it_fails() -> None:
    """B001: as with a worker that dies: what kills it must not run for ever."""
    for redeliveries in range(MAX_REDELIVERIES):
        settled = after_failure(a_job(redeliveries=redeliveries), EngineLost("…"), Outcome(), Random(1))
        assert settled == Release(settled.lease, backoff_ms(redeliveries, Random(1)), is_loss=True)
    last = after_failure(a_job(redeliveries=MAX_REDELIVERIES), EngineLost("…"), Outcome(), Random(1))
    assert isinstance(last, Fail)
    assert last.outcome.error is not None
    assert (last.outcome.error.code, "died 4 times" in last.outcome.error.detail) == (ErrorCode.ENGINE_ERROR, True)


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_backoff_grows_to_a_minute_and_never_beyond(failures: int, rng: Random) -> None:
    assert 0 <= backoff_ms(failures, rng) <= min(60_000, 1000 * 2 ** min(failures, 10))


def test_a_breaker_opens_at_the_first_failure_and_its_pauses_double_to_two_seconds() -> None:
    breaker = Breaker()
    assert not is_open(breaker)
    now, pauses = 100.0, []
    for _ in range(6):
        breaker.trip(now)
        assert is_open(breaker)
        pauses.append(breaker.seconds_to_probe(now))
        now += pauses[-1]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    breaker.close()
    assert not is_open(breaker)
    breaker.trip(now)
    assert breaker.seconds_to_probe(now) == 2.0
    breaker.succeed()
    breaker.trip(now)
    assert breaker.seconds_to_probe(now) == 0.25


def test_failures_of_calls_that_were_under_way_together_count_as_one_trip() -> None:
    breaker = Breaker()
    for _ in range(5):
        breaker.trip(10.0)
    assert breaker.seconds_to_probe(10.0) == 0.25


def test_a_model_that_is_gone_counts_as_unavailable_until_the_grace_ends() -> None:
    """B044"""
    watch = EngineWatch(BatchSizer(8), reload_grace_seconds=20, now=100)
    assert isinstance(watch.judge(ModelNotFound("…"), 119), EngineUnavailable)
    assert is_open(watch.breaker)
    assert isinstance(watch.judge(ModelNotFound("…"), 121), ModelNotFound)
    watch.serving(130)
    assert not is_open(watch.breaker)
    assert isinstance(watch.judge(ModelNotFound("…"), 149), EngineUnavailable)


def test_a_budget_admits_jobs_in_order_up_to_its_bytes_and_one_that_is_larger_alone() -> None:
    """B046"""
    budget = ByteBudget(100)
    huge, small = a_job(nbytes=500), a_job(nbytes=60)
    assert budget.admit([huge, small]) == ([huge], [small])
    assert budget.is_spent
    assert budget.admit([small]) == ([], [small])
    budget.free([huge])
    assert budget.admit([small, small]) == ([small], [small])
    assert not budget.is_spent
