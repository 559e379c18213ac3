"""Two of the product's figures that no peer has: redelivery after a kill, and what a status poll costs.

It owns the kill; it must not judge.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from bench.load import Client, drive, request_bytes
from bench.measure import until_idle
from bench.models import SIZER_ENGINES
from bench.processes import cpu_seconds
from bench.systems import PRODUCT, Running, Servers, start
from bench.workloads import OCTETS, Workload, _tensors, chosen


async def redelivery(servers: Servers, jobs: int = 600) -> float:
    """Seconds from `kill -9` of one of two workers, in mid-batch, until the last of its jobs is done by the other."""
    engine = SIZER_ENGINES[0]
    workload = Workload("kill", "kill", engine.shape, OCTETS, _tensors(engine.shape, 4), jobs, 32)
    running = start(PRODUCT, servers, workers=2)
    try:
        requests = (running.submit_request(workload, number) for number in range(jobs))
        await drive(running.port, requests, 32, running.accepted)
        killed = time.perf_counter()
        os.killpg(running.workers[0].pid, signal.SIGKILL)
        await until_idle(running)
        return time.perf_counter() - killed
    finally:
        running.stop()


@dataclass(frozen=True, slots=True)
class Poll:
    """A status poll of a finished job: size of the answer, and the api's and Redis' CPU for it."""

    payload_bytes: int
    answer_bytes: int
    cpu_us: float


async def status_polls(running: Running, valkey: int, polls: int) -> list[Poll]:
    """Polls of a 64-byte job and of a 1 MB one."""
    found = []
    for workload in chosen(("tiny", "megabyte")):
        async with Client(running.port) as client:
            job_id = (await client.ask(running.submit_request(workload, 0))).id
            await until_idle(running)
            request = request_bytes("GET", f"/jobs/{job_id}")
            size = len((await client.ask(request)).body)
        groups = [process.pid for process in running.apis] + [valkey]
        before = sum(map(cpu_seconds, groups))
        await drive(running.port, [request] * polls, 8, lambda _: None)
        used = sum(map(cpu_seconds, groups)) - before
        found.append(Poll(workload.shape.nbytes, size, used / polls * 1e6))
    return found
