"""A hundred thousand engine calls, three in ten of which time out, leave nothing behind. `make soak` runs it alone."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from inferq.stack.process import Process, Program
from jobs.datatypes import Datatype
from jobs.errors import EngineTimeout
from jobs.tensors import Tensor
from tests.support.eventually import eventually
from workers.triton.client import TritonClient
from workers.triton.messages import InferCall
from workers.triton.options import EngineOptions

pytestmark = pytest.mark.anyio

CALLS = 100_000
WARM_UP = 10_000
AT_ONCE = 64
TIMEOUT_SECONDS = 0.25
MOST_GROWTH_BYTES = 16 * 1024 * 1024
ENGINE = Path(__file__).with_name("engine.py")


@dataclass(frozen=True)
class Held:
    """What the process holds."""

    resident_bytes: int
    tasks: int
    descriptors: int
    sockets: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        links = [_link(entry) for entry in Path("/proc/self/fd").iterdir()]
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            pages * os.sysconf("SC_PAGESIZE"),
            len(asyncio.all_tasks()),
            len(links),
            sum(link.startswith("socket:") for link in links),
        )


def _link(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:  # the descriptor that lists them
        return ""


@contextmanager
def engine_process(folder: Path) -> Iterator[Process]:
    log_path = folder / "engine.log"
    root = str(ENGINE.parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    process = Process(Program("engine", (sys.executable, str(ENGINE), str(2 * CALLS)), environment, log_path))
    process.start()
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.timeout(1200)
async def test_a_hundred_thousand_calls_leave_nothing_behind(tmp_path: Path) -> None:
    """B047, B053: no growth in memory, tasks, channels or file descriptors."""
    with engine_process(tmp_path) as engine:

        async def has_port() -> bool:
            assert engine.is_running, engine.last_log_lines()
            return engine.program.log_path.read_text().strip().isdecimal()

        await eventually(has_port, 30)
        address = f"127.0.0.1:{engine.program.log_path.read_text().strip()}"
        async with TritonClient(EngineOptions(addresses=(address,))) as client:
            await run(client, WARM_UP)
            before = Held.now()
            timeouts = await run(client, CALLS)
            after = Held.now()
    print(f"\n{CALLS} calls, {timeouts} timeouts\nbefore {before}\nafter  {after}")
    assert timeouts > CALLS * 0.25
    assert after.tasks == before.tasks
    assert after.descriptors <= before.descriptors
    assert after.sockets <= before.sockets
    assert after.resident_bytes - before.resident_bytes < MOST_GROWTH_BYTES


async def run(client: TritonClient, calls: int) -> int:
    """Make so many calls, some at once; returns how many timed out."""
    left, timeouts = calls, 0
    data = np.zeros(256, np.float32).tobytes()
    call = InferCall("echo", "", "soak", (Tensor("x", Datatype.FP32, (1, 256), data),))

    async def caller() -> None:
        nonlocal left, timeouts
        while left > 0:
            left -= 1
            try:
                await client.infer(call, TIMEOUT_SECONDS)
            except EngineTimeout:
                timeouts += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(caller())
    return timeouts
