"""The supervisor's arithmetic and its decisions for a given instant, on real but tiny processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.stack.errors import StackError
from inferq.stack.loading import Progress
from inferq.stack.process import Process, Program
from inferq.stack.readiness import QUIET_SECONDS, REMIND_SECONDS, SETTLE_SECONDS, Start
from inferq.stack.supervisor import (
    FIRST_BACKOFF_SECONDS,
    LONGEST_BACKOFF_SECONDS,
    STEADY_SECONDS,
    Supervisor,
    restart_delay_seconds,
)


class Script:
    """A server that runs a few lines of Python."""

    def __init__(self, name: str, source: str, folder: Path) -> None:
        self.name = name
        argv = (sys.executable, "-c", source)
        self.process = Process(Program(name, argv, dict(os.environ), folder / f"{name}.log"))
        self.launches = 0
        self.becomes_ready = True
        self.tells = Progress()

    def launch(self) -> None:
        self.launches += 1
        self.process.start()

    def is_ready(self) -> bool:
        return self.becomes_ready

    def progress(self) -> Progress:
        return self.tells

    def stop(self) -> None:
        self.process.stop()

    def run_to_its_end(self) -> None:
        """Wait until the script has ended by itself."""
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Script]:
    script = Script("crasher", "raise SystemExit(3)", tmp_path)
    yield script
    script.stop()


@given(st.integers(1, 10_000))
def test_each_death_in_a_row_waits_longer_up_to_a_bound(deaths: int) -> None:
    assert restart_delay_seconds(1) == FIRST_BACKOFF_SECONDS
    assert restart_delay_seconds(deaths) <= restart_delay_seconds(deaths + 1) <= LONGEST_BACKOFF_SECONDS


def test_a_dead_server_is_restarted_when_its_backoff_is_over_and_not_before(crashing: Script) -> None:
    lines: list[str] = []
    supervisor = Supervisor(lines.append)
    supervisor.launch(crashing)
    now = 1e9
    for deaths in (1, 2, 3):
        crashing.run_to_its_end()
        supervisor.run_once(now)
        delay = restart_delay_seconds(deaths)
        supervisor.run_once(now + delay - 0.01)
        assert crashing.launches == deaths
        supervisor.run_once(now + delay)
        assert crashing.launches == deaths + 1
        now += delay
    assert lines[:2] == ["crasher ended with status 3, restarting in 0.5 s", "crasher restarted"]
    assert lines[4] == "crasher ended with status 3, restarting in 2 s"


def test_a_server_that_ran_steadily_starts_over_with_the_shortest_backoff(crashing: Script) -> None:
    lines: list[str] = []
    supervisor = Supervisor(lines.append)
    supervisor.launch(crashing)
    for died_at in (1e9, 1e9 + 1, 1e9 + 2 + STEADY_SECONDS):
        crashing.run_to_its_end()
        supervisor.run_once(died_at)
        supervisor.run_once(died_at + 1)
    deaths = [line for line in lines if "ended" in line]
    assert [line.rpartition("in ")[2] for line in deaths] == ["0.5 s", "1 s", "0.5 s"]


def test_a_restart_that_fails_is_tried_again_while_the_others_go_on(crashing: Script, tmp_path: Path) -> None:
    lines: list[str] = []
    supervisor = Supervisor(lines.append)
    supervisor.launch(crashing)
    crashing.run_to_its_end()
    supervisor.run_once(1e9)
    log = crashing.process.program.log_path
    log.unlink()
    log.mkdir()
    supervisor.run_once(1e9 + 1)
    assert "can't be started" in lines[-1]
    assert lines[-1].endswith("restarting in 1 s")
    log.rmdir()
    supervisor.run_once(1e9 + 2)
    assert lines[-1] == "crasher restarted"


@pytest.mark.anyio
async def test_the_server_that_is_not_ready_in_time_is_named_and_not_those_that_are(tmp_path: Path) -> None:
    supervisor = Supervisor(lambda line: None)
    first, late = (Script(name, "import time; time.sleep(600)", tmp_path) for name in ("first", "late"))
    late.becomes_ready = False
    try:
        supervisor.launch(first, late)
        with pytest.raises(StackError, match=r"^late was not ready after 0\.1 s"):
            await supervisor.wait_ready(first, late, timeout_seconds=0.1)
    finally:
        supervisor.kill()


SLEEP = "import time; time.sleep(600)"


def test_how_it_died_and_its_last_words_are_told(tmp_path: Path) -> None:
    source = "import os; print(*range(20), sep='\\n', flush=True); os.kill(os.getpid(), 11)"
    server, lines = Script("crasher", source, tmp_path), list[str]()
    supervisor = Supervisor(lines.append)
    supervisor.launch(server)
    server.run_to_its_end()
    supervisor.run_once(1e9)
    expected = [f"  | {number}" for number in range(15, 20)]
    assert lines == ["crasher ended with signal 11 (SIGSEGV), restarting in 0.5 s", *expected]


def test_one_that_dies_for_ever_neither_stops_nor_delays_another(crashing: Script, tmp_path: Path) -> None:
    lines: list[str] = []
    steady, supervisor = Script("steady", SLEEP, tmp_path), Supervisor(lines.append)
    try:
        supervisor.launch(crashing)
        supervisor.launch(steady)
        now = 1e9
        for deaths in range(1, 12):
            crashing.run_to_its_end()
            supervisor.run_once(now)
            now += restart_delay_seconds(deaths)
            supervisor.run_once(now)
        assert steady.process.is_running
        assert steady.launches == 1
        assert "crasher ended with status 3, restarting in 30 s" in lines
        steady.process.kill()
        supervisor.run_once(now)
        assert "steady ended with signal 9 (SIGKILL), restarting in 0.5 s" in lines
    finally:
        steady.stop()


def test_a_server_that_hangs_in_its_restart_is_ended_and_tried_again_ever_later(tmp_path: Path) -> None:
    lines: list[str] = []
    server, supervisor = Script("loader", SLEEP, tmp_path), Supervisor(lines.append)
    try:
        supervisor.launch(server)
        server.process.kill()
        server.tells = Progress("loading model a", ("no file for a",))
        now = 1e9
        supervisor.run_once(now)
        for delay in (0.5, 1.0, 2.0):
            now += delay
            supervisor.run_once(now)
            supervisor.run_once(now)
            now += SETTLE_SECONDS
            supervisor.run_once(now)
            assert not server.process.is_running
        server.tells = Progress()
        supervisor.run_once(now + 4)
        for after in (100, 200):
            supervisor.run_once(now + after)
    finally:
        server.stop()
    assert lines[2:4] == ["loader can't start, restarting in 1 s", "  | no file for a"]
    assert lines[-3:] == ["loader can't start, restarting in 4 s", "  | no file for a", "loader restarted"]


def test_a_start_that_takes_long_is_told_when_it_changes_and_now_and_then(tmp_path: Path) -> None:
    lines: list[str] = []
    server = Script("loader", SLEEP, tmp_path)
    start = Start(server, 0, lines.append)

    def told(now: float, doing: str) -> list[str]:
        lines.clear()
        server.tells = Progress(doing)
        start.look(now)
        return list(lines)

    assert told(0, "loading model a") == []
    assert told(QUIET_SECONDS, "loading model a") == ["waiting for loader: loading model a"]
    assert told(QUIET_SECONDS + 1, "loading model b") == []
    assert told(2 * QUIET_SECONDS, "loading model b") == ["waiting for loader: loading model b"]
    assert told(3 * QUIET_SECONDS, "loading model b") == []
    assert told(2 * QUIET_SECONDS + REMIND_SECONDS, "loading model b") == ["waiting for loader: loading model b"]
    assert told(3 * REMIND_SECONDS, "") == ["waiting for loader"]


@pytest.mark.anyio
async def test_stopping_is_legal_before_the_start_and_twice() -> None:
    supervisor = Supervisor(lambda line: None)
    await supervisor.stop()
    await supervisor.stop()
