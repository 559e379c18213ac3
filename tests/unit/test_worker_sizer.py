"""The batch sizer against simulated engines of different shape: it finds the best size and stays there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from workers.sizer import BatchSizer

Engine = Callable[[int], float]
"""Rows → seconds that a call of so many rows keeps the engine busy."""

ENGINES: dict[str, Engine] = {
    "overhead dominates: the largest is best": lambda rows: 0.004 + 0.0005 * rows,
    "cache dominates: the smallest is best": lambda rows: 0.004 * rows * (1 + 0.05 * rows),
    "best in the middle": lambda rows: 0.003 + 0.002 * rows + 0.0004 * rows * rows,
}


def drive(sizer: BatchSizer, engine: Engine, calls: int, *, noise: float = 0.0, seed: int = 1) -> list[int]:
    """The sizes that a saturated lane with two calls in flight on one instance asks for."""
    rng, now, free_at, sizes = Random(seed), 0.0, 0.0, []
    for _ in range(calls):
        rows = sizer.next_size()
        sent = now
        free_at = max(free_at, sent) + engine(rows) * (1 + rng.uniform(-noise, noise))
        sizer.observe(rows, sent, free_at)
        now = free_at - engine(rows) / 2
        sizes.append(rows)
    return sizes


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("max_batch_size", [8, 64])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_throughput_reaches_that_of_the_best_fixed_size(name: str, max_batch_size: int, noise: float) -> None:
    engine, sizer = ENGINES[name], BatchSizer(max_batch_size)
    drive(sizer, engine, 200, noise=noise)
    sizes = drive(sizer, engine, 1000, noise=noise, seed=2)
    best = max(rows / engine(rows) for rows in sizer.sizes)
    got = sum(sizes) / sum(engine(rows) for rows in sizes)
    assert got >= 0.95 * best


@pytest.mark.parametrize("name", ENGINES)
def test_once_settled_it_moves_by_one_step_at_most(name: str) -> None:
    sizer = BatchSizer(64)
    drive(sizer, ENGINES[name], 400)
    steps = {sizer.sizes.index(size) for size in drive(sizer, ENGINES[name], 400)}
    assert max(steps) - min(steps) <= 2
    settled = sizer.sizes.index(sizer.settled)
    assert all(abs(step - settled) <= 1 for step in steps)


def test_it_follows_an_engine_that_changes() -> None:
    sizer = BatchSizer(64)
    drive(sizer, ENGINES["overhead dominates: the largest is best"], 300)
    assert sizer.settled == 64
    drive(sizer, ENGINES["cache dominates: the smallest is best"], 3000)
    assert sizer.settled <= 2


def test_calls_stay_within_the_target_latency() -> None:
    engine: Engine = lambda rows: 0.004 + 0.0005 * rows  # noqa: E731
    sizer = BatchSizer(64, target_latency_seconds=0.030)
    drive(sizer, engine, 400)
    assert engine(sizer.settled) <= 0.030
    assert sizer.settled > 1


@pytest.mark.parametrize("max_batch_size", [0, 1])
def test_a_model_that_takes_one_at_a_time_has_one_size(max_batch_size: int) -> None:
    sizer = BatchSizer(max_batch_size)
    assert set(drive(sizer, lambda rows: 0.01, 100)) == {1}


def test_sizes_are_the_divisors_of_the_largest() -> None:
    assert BatchSizer(12).sizes == (1, 2, 3, 4, 6, 12)


def test_part_filled_calls_do_not_mislead() -> None:
    sizer = BatchSizer(8)
    drive(sizer, ENGINES["overhead dominates: the largest is best"], 200)
    before = sizer.settled
    for i in range(200):
        sizer.observe(3, 100.0 + i, 100.5 + i)
    assert sizer.settled == before
