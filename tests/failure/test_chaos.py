"""`inferq chaos` itself: a short run keeps every promise, and says so."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from tests.support.processes import descendants

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server, pytest.mark.slow]

JOBS = 200


async def test_a_short_run_loses_doubles_and_fails_nothing_and_leaves_no_process() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "inferq.cli", "chaos", "--jobs", str(JOBS), "--minutes", "0.3", "--seed", "1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(110):
        output, _ = await process.communicate()
    said = dict(re.findall(r"^([a-z ]+?)  +(.+)$", output.decode(), re.MULTILINE))
    assert process.returncode == 0, output.decode()
    assert (said["accepted"], said["terminal"]) == (str(JOBS), f"succeeded {JOBS}")
    assert {said[name] for name in ("lost", "duplicated results", "wrong results", "refused")} == {"0"}
    assert "ended with signal 9" in output.decode()
    assert descendants(process.pid) == set()
