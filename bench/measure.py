"""What is measured of a running system: sustained rate, latency alone, CPU by process, Redis' work for a job.

It owns when clocks start and stop; it must not start systems or judge figures.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.load import LONGEST_SECONDS, Client, Response, drive
from bench.processes import StartError, cpu_seconds
from bench.redis_counters import counters
from bench.systems import Running
from bench.workloads import Workload, check

LOOK_SECONDS: Final = 0.005
CHECKED: Final = 50


@dataclass(frozen=True, slots=True)
class Sustained:
    """One run: jobs over first submit → last terminal, CPU by process, and what Redis did for a job."""

    jobs: int
    seconds: float
    cpu_us: Mapping[str, float]
    """Microseconds for a job by process; `load` is the generator's own."""
    round_trips: float
    commands: Mapping[str, float]
    submit_seconds: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    @property
    def cpu_us_total(self) -> float:
        """Without the load generator and the engine."""
        return sum(cost for name, cost in self.cpu_us.items() if name not in ("load", "triton"))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies, by nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


async def until_idle(running: Running) -> None:
    """Return once nothing is pending; raises StartError when that takes too long."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while (left := running.unfinished()) > 0:
        if time.monotonic() > deadline:
            raise StartError(f"{running.system.key}: {left} jobs do not end")
        await asyncio.sleep(LOOK_SECONDS)


async def sustained(running: Running, workload: Workload, jobs: int, servers: Mapping[str, int]) -> Sustained:
    """Submit `jobs` jobs as fast as they are taken, and wait for the last one's end. `servers`: process groups."""
    ids: list[tuple[int, str]] = []
    every = max(1, jobs // CHECKED)
    count = 0

    def on_response(response: Response) -> None:
        nonlocal count
        running.accepted(response)
        count += 1
        if running.system.has_queue and count % every == 0:
            ids.append((count, response.id))

    requests = (running.submit_request(workload, number) for number in range(len(workload.uploads)))
    prepared = list(requests)
    groups = {**running.groups(), **{name: [group] for name, group in servers.items()}}
    before, redis_before = _cpu(groups), counters(running.redis)
    running.polls.clear()
    started = time.perf_counter()
    await drive(running.port, _repeated(prepared, jobs), min(workload.connections, jobs), on_response)
    submitted = time.perf_counter()
    await until_idle(running)
    ended = time.perf_counter()
    after, redis_after = _cpu(groups), counters(running.redis)
    did = redis_after.since(redis_before, running.polls)
    await _check(running, workload, [job_id for _, job_id in ids])
    return Sustained(
        jobs,
        ended - started,
        {name: (after[name] - before[name]) / jobs * 1e6 for name in after},
        did.reads / jobs,
        {name: calls / jobs for name, calls in did.commands.items()},
        submitted - started,
    )


async def _check(running: Running, workload: Workload, ids: Sequence[str]) -> None:
    """Every sampled job has an answer, and it is of one of the uploads."""
    if not ids:
        return
    async with Client(running.port) as client:
        for job_id in ids:
            output = await running.result(client, job_id)
            if workload.is_identity:
                assert any(output.endswith(upload) for upload in workload.uploads), (
                    f"{running.system.key}: wrong answer"
                )
            else:
                check(workload, 0, output)


def _repeated(requests: Sequence[bytes], count: int) -> Iterable[bytes]:
    return (requests[number % len(requests)] for number in range(count))


def _cpu(groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
    used = {name: sum(map(cpu_seconds, members)) for name, members in groups.items() if members}
    own = os.times()
    return {**used, "load": own.user + own.system}


async def latency(running: Running, workload: Workload, jobs: int) -> list[float]:
    """Seconds from upload to known end, of jobs that are alone in the system, one after another."""
    seconds = []
    async with Client(running.port) as client:
        for number in range(jobs + 3):
            started = time.perf_counter()
            await running.run_one(client, workload, number)
            seconds.append(time.perf_counter() - started)
    return seconds[3:]


async def warm_up(running: Running, workload: Workload, jobs: int) -> None:
    """Let every part see this work before it is measured."""
    prepared = [running.submit_request(workload, number) for number in range(len(workload.uploads))]
    await drive(running.port, _repeated(prepared, jobs), min(workload.connections, jobs), running.accepted)
    await until_idle(running)
