"""The batch sizer on three engines of different shape: through the product, and by itself against their cost functions.

It owns which sizes are tried; engines and costs are in `models`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.ceiling import BareEngine
from bench.measure import sustained, warm_up
from bench.models import SIZER_ENGINES, Sleeper
from bench.systems import PRODUCT, Running, Servers, start
from bench.workloads import OCTETS, Workload, _tensors
from workers.sizer import BatchSizer

CONCURRENCY = 2
"""Calls in flight, as a lane with one instance has them."""


@dataclass
class Found:
    """What came out for one engine; rates are rows a second."""

    engine: Sleeper
    bare: dict[int, float] = field(default_factory=dict)
    """By size."""
    fixed: list[float] = field(default_factory=list)
    """The product at the best of these sizes."""
    learned: list[float] = field(default_factory=list)
    """The product with its sizer, after it had time to learn."""

    @property
    def best(self) -> int:
        """The best size of the sweep."""
        return max(self.bare, key=self.bare.__getitem__)


async def sweep(servers: Servers, seconds: float) -> dict[str, Found]:
    """Every size of every engine, bare."""
    found = {}
    async with BareEngine(servers.engine) as engine:
        for sleeper in SIZER_ENGINES:
            entry = found[sleeper.shape.name] = Found(sleeper)
            for size in sleeper.sizes:
                measured = await engine.rate(sleeper.shape, bytes(sleeper.shape.nbytes), size, CONCURRENCY, seconds)
                entry.bare[size] = measured.rate
    return found


async def compare(servers: Servers, groups: Mapping[str, int], found: Mapping[str, Found], seconds: float) -> None:
    """One round: the product at the best fixed size, and with its sizer, on every engine."""
    sizes = ",".join(f'"{name}":{entry.best}' for name, entry in found.items())
    fixed = start(
        PRODUCT,
        servers,
        worker=("-P", "-m", "bench.fixed_worker"),
        environment={"BENCH_FIXED_SIZES": f"{{{sizes}}}"},
    )
    try:
        for entry in found.values():
            entry.fixed.append(await _rate(fixed, entry, groups, seconds, learn_seconds=0.3))
    finally:
        fixed.stop()
    learning = start(PRODUCT, servers)
    try:
        for entry in found.values():
            entry.learned.append(await _rate(learning, entry, groups, seconds, learn_seconds=seconds))
    finally:
        learning.stop()


async def _rate(
    running: Running, entry: Found, groups: Mapping[str, int], seconds: float, learn_seconds: float
) -> float:
    shape, rate = entry.engine.shape, entry.bare[entry.best]
    workload = Workload(shape.name, shape.name, shape, OCTETS, _tensors(shape, 4), 0, 128)
    await warm_up(running, workload, max(20, int(rate * learn_seconds)))
    return (await sustained(running, workload, max(20, int(rate * seconds)), groups)).rate


def simulate(engine: Sleeper, calls: int, noise: float = 0.1, seed: int = 1) -> list[tuple[int, int]]:
    """(size sent, size settled on) of each call: a full queue, and calls that last as the cost says, give or take."""
    rng = random.Random(seed)
    sizer = BatchSizer(engine.max_batch_size)
    steps, now = [], 0.0
    for _ in range(calls):
        size = sizer.next_size()
        started = now
        now += engine.cost.seconds(size) * rng.lognormvariate(0.0, noise)
        sizer.observe(size, started, now)
        steps.append((size, sizer.settled))
    return steps
