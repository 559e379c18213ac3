"""What `inferq chaos` counts as lost, doubled and late, and what its exit status says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inferq.chaos.killer import Kill
from inferq.chaos.load import CLASSIFIER, ECHO, Followed, is_right
from inferq.chaos.tally import Tally, is_late, longest_gap
from inferq.client import Job

START = datetime(2026, 1, 1, tzinfo=UTC)
AT = START.timestamp()


def job(*, attempt: int = 1, created: float = 0, started: float = 0, **raw: Any) -> Job:
    """A job as the api shows it; instants are seconds after START."""
    times = {"created_at": created, "started_at": started}
    shown = {name: (START + timedelta(seconds=value)).isoformat() for name, value in times.items()}
    return Job("0" * 32, "succeeded", True, raw.pop("model", ECHO), None, {"attempt": attempt, **shown, **raw})


KEPT = Tally(10, [], Counter(succeeded=10), [], [], [], [], 0, 1.0, Counter(worker=1))


@pytest.mark.parametrize(
    "broken",
    [{"lost": ["x"]}, {"duplicated": ["x"]}, {"wrong": ["x"]}, {"statuses": Counter(failed=1)}, {"accepted": 0}],
    ids=lambda fields: next(iter(fields)),
)
def test_any_broken_promise_is_one(broken: dict[str, Any]) -> None:
    assert KEPT.is_kept
    assert not replace(KEPT, **broken).is_kept


def test_the_table_names_the_first_of_what_went_wrong() -> None:
    rows = dict(replace(KEPT, lost=["a", "b"], refused=["no room"]).rows())
    assert (rows["lost"], rows["refused"], rows["kills"]) == (
        "2 (a, b)",
        "1 (no room)",
        "worker 1, api 0, valkey 0, triton 0",
    )


def test_a_redelivery_is_late_twenty_seconds_after_the_last_thing_it_waited_for() -> None:
    killed = [Kill("worker-1", AT + 10)]
    assert not is_late(job(attempt=2, started=29), killed)
    assert is_late(job(attempt=2, started=31), killed)
    assert not is_late(job(attempt=1, started=31), killed)
    assert not is_late(job(attempt=2, started=31), [*killed, Kill("triton", AT + 12, AT + 20)])
    assert is_late(job(attempt=2, started=31), [*killed, Kill("api-1", AT + 12, AT + 20)])


def test_the_longest_gap_counts_only_while_something_is_open() -> None:
    jobs = [
        Followed(0, job(created=0), job(), AT + 2),
        Followed(1, job(created=1), job(), AT + 7),
        Followed(2, job(created=100), job(), AT + 101),
        Followed(3, job(created=0)),
    ]
    assert longest_gap(jobs) == 5


def test_an_answer_is_right_for_its_own_input_only() -> None:
    assert is_right(job(output={"output": {"data": [3.0]}}), 3)
    assert not is_right(job(output={"output": {"data": [3.0]}}), 4)
    assert is_right(job(model=CLASSIFIER, output={"probabilities": [{"label": "espresso"}]}), 0)
    assert not is_right(job(model=CLASSIFIER, output=None), 0)
