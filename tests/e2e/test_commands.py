"""The commands as a person runs them, each as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferq.stack.environment import PROJECT_ROOT
from tests.e2e.deployment import Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server]

COFFEE = PROJECT_ROOT / "examples" / "images" / "coffee.jpg"
MARK = "A_TEST_OF_INFERQ"
"""An environment variable that every descendant of a command inherits, whatever becomes of its parent."""


async def start(*arguments: str, variables: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """`inferq …` with both outputs in one pipe."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "inferq.cli",
        *arguments,
        env={**os.environ, **(variables or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def run(*arguments: str, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status and output of `inferq …`."""
    process = await start(*arguments, variables=variables)
    async with asyncio.timeout(90):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def left_behind(mark: str) -> list[str]:
    """The command lines of all living processes that inherited the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended, or is not ours to look at
            continue
    return found


@pytest.mark.slow
async def test_the_demo_says_espresso_ends_with_0_and_leaves_nothing_behind() -> None:
    mark = uuid.uuid4().hex
    status, output = await run("demo", variables={MARK: mark})
    assert status == 0, output
    lines = output.splitlines()
    first = next(index for index, line in enumerate(lines) if "from upload to answer" in line)
    label, score = lines[first + 1].split()
    assert label == "espresso"
    assert float(score) > 0.9
    assert [line for line in lines if line.startswith("ready: ")]
    assert left_behind(mark) == []


@pytest.mark.slow
async def test_up_tells_when_it_is_ready_takes_jobs_and_stops_everything_on_sigint(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    up = await start("up", "--port", "0", "--data", str(tmp_path), variables={MARK: mark})
    assert up.stdout is not None
    try:
        lines: list[str] = []
        async with asyncio.timeout(90):
            while not (lines and lines[-1].startswith("ready: ")):
                lines.append((await up.stdout.readline()).decode().strip())
                assert lines[-1], f"it ended: {lines}"
        started = [f"{name} ready" for name in ("valkey", "triton", "api-1", "worker-1", "webhook-worker-1")]
        assert sorted(lines[:-1]) == sorted(started)
        url = lines[-1].removeprefix("ready: ")
        status, output = await run("submit", "efficientnet_lite0", str(COFFEE), "--wait", "--url", url)
        assert status == 0
        assert "\tsucceeded\tespresso 0.95, " in output
        up.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await up.wait() == 0
    finally:
        if up.returncode is None:
            up.kill()
    assert left_behind(mark) == []


async def test_a_job_is_followed_from_submit_to_delete_on_the_command_line(deployment: Deployment) -> None:
    server = {"INFERQ_URL": deployment.urls[0]}
    status, job_id = await run("submit", "efficientnet_lite0", str(COFFEE), variables=server)
    assert (status, len(job_id.strip())) == (0, 32)
    job_id = job_id.strip()
    status, shown = await run("get", job_id, "--wait", variables=server)
    assert status == 0
    assert "probabilities: espresso 0.95" in shown
    assert await run("delete", job_id, variables=server) == (0, "")
    status, complaint = await run("get", job_id, variables=server)
    assert status == 1
    assert complaint.startswith("inferq: There is no job")
