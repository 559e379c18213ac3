"""Processes of the stack: what ends them, what they leave, and that nothing outlives a killed parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferq.stack.environment import PROJECT_ROOT
from inferq.stack.process import LARGEST_LOG_BYTES, Process, Program
from tests.support.processes import descendants, is_alive, wait_for

pytestmark = pytest.mark.process

RunScript = Callable[..., Process]

READY = "import sys, time, signal, subprocess, os\nprint('up', flush=True)\n"


@pytest.fixture
def run_script(tmp_path: Path) -> Iterator[RunScript]:
    """Runs Python lines as a process of the stack and waits until they have printed `up`."""
    processes: list[Process] = []

    def run(source: str, *, grace_seconds: float = 10.0) -> Process:
        name = f"script-{len(processes)}"
        argv = (sys.executable, "-c", READY + source)
        process = Process(Program(name, argv, dict(os.environ), tmp_path / f"{name}.log", grace_seconds))
        processes.append(process)
        process.start()
        wait_for(lambda: "up" in process.last_log_lines() or not process.is_running)
        return process

    yield run
    for process in processes:
        process.stop(0)


def test_a_stop_lets_the_program_end_in_its_own_way(run_script: RunScript) -> None:
    process = run_script(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('bye'))\nprint('armed', flush=True)\nsignal.pause()"
    )
    wait_for(lambda: "armed" in process.last_log_lines())
    process.stop()
    assert process.exit_status == 1
    assert process.last_log_lines()[-1] == "bye"
    process.stop()


def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(run_script: RunScript) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: signal.pause()"
    process = run_script(ignore, grace_seconds=0.2)
    wait_for(lambda: "deaf" in process.last_log_lines())
    process.stop()
    assert process.exit_status == -signal.SIGKILL


def test_children_of_a_program_that_crashed_are_gone_before_it_can_be_restarted(run_script: RunScript) -> None:
    process = run_script("child = subprocess.Popen(['sleep', '600'])\nprint(child.pid, flush=True)\nos._exit(3)")
    wait_for(lambda: not process.is_running)
    assert process.exit_status == 3
    child = int(process.last_log_lines()[-1])
    wait_for(lambda: not is_alive(child))


def test_the_log_keeps_all_runs_and_the_last_lines_are_those_of_the_last_run(run_script: RunScript) -> None:
    process = run_script("print('first' if len(sys.argv) < 9 else '', os.getpid(), flush=True)")
    wait_for(lambda: not process.is_running)
    first = process.last_log_lines()
    process.start()
    wait_for(lambda: not process.is_running)
    second = process.last_log_lines()
    assert first[0] == second[0] == "up"
    assert first[1] != second[1]
    assert process.program.log_path.read_text().splitlines() == first + second


def test_a_log_that_has_grown_large_is_set_aside_at_the_next_start(tmp_path: Path) -> None:
    log_path = tmp_path / "true.log"
    with log_path.open("wb") as log:
        log.truncate(LARGEST_LOG_BYTES + 1)
    process = Process(Program("true", ("true",), dict(os.environ), log_path))
    process.start()
    process.stop()
    assert log_path.stat().st_size == 0
    assert (tmp_path / "true.log.1").stat().st_size == LARGEST_LOG_BYTES + 1


def test_stopping_is_legal_before_the_start(tmp_path: Path) -> None:
    process = Process(Program("never", ("true",), {}, tmp_path / "never.log"))
    process.stop()
    process.kill()
    assert not process.is_running
    assert process.exit_status is None


PARENT = """
import os, signal, sys, time
from pathlib import Path
from inferq.stack.process import Process, Program
folder = Path(sys.argv[1])
deaf = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\\n"
    "while True: signal.pause()"
)
orphan = (
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('tidy'));"
    "subprocess.Popen(['sleep', '600']); print('up', flush=True); signal.pause()"
)
for name, source, has_children in (("plain", deaf, False), ("family", orphan, True), ("deaf_family", deaf, True)):
    argv = (sys.executable, "-c", source)
    log_path = folder / f"{name}.log"
    program = Program(name, argv, dict(os.environ), log_path, stop_grace_seconds=0.5, has_children=has_children)
    process = Process(program)
    process.start()
    while "up" not in process.last_log_lines():
        time.sleep(0.01)
print("started", flush=True)
signal.pause()
"""


def test_nothing_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(argv, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        family = descendants(parent.pid)
        assert len(family) == 6  # one plain, two programs with their guards, and a child
        parent.kill()
    wait_for(lambda: not any(is_alive(pid) for pid in family))
    assert (tmp_path / "family.log").read_text().endswith("tidy\n")


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 11)", -11)])
def test_a_guard_ends_like_its_program_and_the_children_go_too(tmp_path: Path, ending: str, status: int) -> None:
    source = f"import os, subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); {ending}"
    log_path = tmp_path / "family.log"
    process = Process(Program("family", (sys.executable, "-c", source), dict(os.environ), log_path, has_children=True))
    process.start()
    wait_for(lambda: not process.is_running)
    assert process.exit_status == status
    child = int(process.last_log_lines()[0])
    wait_for(lambda: not is_alive(child))


def test_a_guard_passes_the_request_to_stop_on(tmp_path: Path) -> None:
    source = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('bye'));"
        "print('up', flush=True); signal.pause()"
    )
    log_path = tmp_path / "family.log"
    process = Process(Program("family", (sys.executable, "-c", source), dict(os.environ), log_path, has_children=True))
    process.start()
    wait_for(lambda: "up" in process.last_log_lines())
    process.stop()
    assert process.exit_status == 1
    assert process.last_log_lines() == ["up", "bye"]
