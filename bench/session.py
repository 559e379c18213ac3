"""One run of `make bench`: servers, rounds in which every system has its turn, and all figures as they were measured.

It owns the order; what a figure means is the report's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.ceiling import Bare, BareEngine
from bench.measure import Sustained, latency, sustained, warm_up
from bench.models import ACCELERATOR, PHOTO, PHOTO_REPOSITORY, SIZER_ENGINES, TINY, write_models
from bench.robustness import Poll, redelivery, status_polls
from bench.sizer_study import Found, compare, sweep
from bench.systems import PRODUCT, SYSTEMS, Servers, System, start
from bench.workloads import Workload, chosen
from inferq.stack import StackEnvironment, TritonServer, ValkeyServer

ALONE: Final = 200
CEILINGS: Final = (
    ("photos", PHOTO, (1, 2, 4, 8), (1, 2)),
    ("accelerator", ACCELERATOR.shape, (16, 32, 64), (1, 2)),
)


@dataclass(frozen=True)
class Plan:
    """How much is measured: `scale` multiplies counts and times of all."""

    rounds: int = 3
    scale: float = 1.0
    systems: tuple[System, ...] = SYSTEMS
    workloads: tuple[Workload, ...] = field(default_factory=lambda: chosen(()))
    has_extras: bool = True
    """Whether the sizer, redelivery and status polls are measured too."""

    def count(self, full: float, least: int) -> int:
        """A number of jobs or calls."""
        return max(least, int(full * self.scale))


@dataclass
class Figures:
    """Everything that was measured, in the order of the rounds."""

    plan: Plan
    sustained: dict[tuple[str, str], list[Sustained]] = field(default_factory=dict)
    """By system and workload."""
    alone: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of single jobs by system; `bare` is a bare ModelInfer."""
    bare: dict[str, list[list[Bare]]] = field(default_factory=dict)
    """A sweep for each round, by workload."""
    sizer: dict[str, Found] = field(default_factory=dict)
    redelivery_seconds: float | None = None
    polls: list[Poll] = field(default_factory=list)
    took_seconds: float = 0.0


@dataclass(frozen=True)
class Stand:
    """Running servers, and their process groups by name."""

    servers: Servers
    groups: Mapping[str, int]


@contextmanager
def servers(folder: Path, repositories: Sequence[Path]) -> Iterator[Stand]:
    """A Valkey and a Triton of our own."""
    environment = StackEnvironment.find()
    valkey = ValkeyServer(environment, folder / "valkey")
    triton = TritonServer(environment, repositories, folder, extra_flags=("--disable-auto-complete-config",))
    try:
        valkey.start()
        triton.start()
        yield Stand(
            Servers(valkey.url, triton.grpc_address, folder / "logs"),
            {"valkey": valkey.process.pid, "triton": triton.process.pid},
        )
    finally:
        triton.stop()
        valkey.stop()


async def run(plan: Plan, folder: Path) -> Figures:
    """Measure everything that the plan names."""
    began = time.monotonic()
    figures = Figures(plan)
    with servers(folder, [PHOTO_REPOSITORY, write_models(folder / "models")]) as stand:
        for number in range(plan.rounds):
            say(f"round {number + 1} of {plan.rounds}")
            await _bare(stand, figures)
            turn = number % len(plan.systems)
            for system in (*plan.systems[turn:], *plan.systems[:turn]):
                await _turn(stand, figures, system)
        if plan.has_extras:
            await _extras(stand, figures)
    figures.took_seconds = time.monotonic() - began
    return figures


async def _bare(stand: Stand, figures: Figures) -> None:
    plan = figures.plan
    items = {workload.key: workload.uploads[0] for workload in chosen(("prepared", "accelerator", "tiny"))}
    async with BareEngine(stand.servers.engine) as engine:
        alone = figures.alone.setdefault("bare", [])
        alone.extend(await engine.latency(TINY, items["tiny"], plan.count(ALONE, 5)))
        for key, shape, sizes, concurrencies in CEILINGS:
            if key not in {workload.key for workload in plan.workloads}:
                continue
            item = items["prepared" if key == "photos" else key]
            measured = [
                await engine.rate(shape, item, rows, concurrency, 0.8 * plan.scale)
                for rows in sizes
                for concurrency in concurrencies
            ]
            figures.bare.setdefault(key, []).append(measured)
            best = max(measured, key=lambda bare: bare.rate)
            say(f"  bare engine, {key}: {best.rate:.0f}/s at batch {best.rows}, {best.concurrency} at a time")


async def _turn(stand: Stand, figures: Figures, system: System) -> None:
    plan = figures.plan
    running = start(system, stand.servers)
    try:
        for workload in plan.workloads:
            if workload.key not in system.workloads:
                continue
            jobs = plan.count(workload.jobs * system.speed, 8)
            await warm_up(running, workload, max(8, jobs // 10))
            measured = await sustained(running, workload, jobs, stand.groups)
            figures.sustained.setdefault((system.key, workload.key), []).append(measured)
            say(f"  {system.key}, {workload.key}: {measured.rate:.0f}/s, {measured.cpu_us_total:.0f} µs of CPU a job")
            if workload.key == "tiny":
                alone = await latency(running, workload, plan.count(max(ALONE * system.speed, 10), 3))
                figures.alone.setdefault(system.key, []).extend(alone)
        if system.is_product and plan.has_extras and not figures.polls:
            figures.polls = await status_polls(running, stand.groups["valkey"], plan.count(1000, 20))
    finally:
        running.stop()


async def _extras(stand: Stand, figures: Figures) -> None:
    plan = figures.plan
    say(f"batch sizer on {len(SIZER_ENGINES)} engines")
    figures.sizer = await sweep(stand.servers, 0.6 * plan.scale)
    for _ in range(plan.rounds):
        await compare(stand.servers, stand.groups, figures.sizer, 2.5 * plan.scale)
    say("redelivery")
    figures.redelivery_seconds = await redelivery(stand.servers, plan.count(600, 300))


def say(line: str) -> None:
    """Progress, for a person who waits."""
    print(line, file=sys.stderr, flush=True)


__all__ = ["PRODUCT", "Figures", "Plan", "Stand", "run", "say", "servers"]
