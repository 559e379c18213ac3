"""One operating-system process of the stack: start it, see whether it lives, stop it with everything it started.

Owns process groups, signals and log files. Must not know what the program is or when it counts as ready.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class Program:
    """What to run and how to end it.

    `environment` is the whole environment. `stop_grace_seconds` lie between SIGTERM and SIGKILL. `orphan_signal` comes
    from the kernel when the parent dies without stopping it: SIGTERM for programs that must clean up behind them.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path
    stop_grace_seconds: float = 10.0
    orphan_signal: signal.Signals = signal.SIGKILL
    inherited_fds: tuple[int, ...] = ()


class Process:
    """A program's running instance, in a session and process group of its own; may be started again after it ended.

    The kernel ties the orphan signal to the *thread* that called `start`: call it from one that lives as long as the
    process should, in practice the main thread.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; also the id of the process group."""
        if self._popen is None:
            raise RuntimeError(f"{self.program.name} was never started")
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """How it ended: the exit status, or the negative signal number; None while it runs or before its start."""
        return None if self._popen is None else self._popen.poll()

    def start(self) -> None:
        """Start the program, output appended to its log; OSError when it can't be executed at all."""
        if self.is_running:
            return
        program = self.program
        program.log_path.parent.mkdir(parents=True, exist_ok=True)
        launcher = (sys.executable, "-I", "-S", str(LAUNCHER), str(int(program.orphan_signal)), str(os.getpid()))
        with program.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                [*launcher, *program.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(program.environment),
                pass_fds=program.inherited_fds,
                start_new_session=True,
            )

    def request_stop(self) -> None:
        """Send SIGTERM to the program alone: it ends its own children in its own order."""
        if self.is_running:
            self._signal(signal.SIGTERM, group=False)

    def stop(self, grace_seconds: float | None = None) -> None:
        """End the program and whatever is left of its group, SIGKILL after the grace; legal before start and twice."""
        if self._popen is None:
            return
        self.request_stop()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(self.program.stop_grace_seconds if grace_seconds is None else grace_seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the whole group and collect the program's exit status; legal at any time."""
        if self._popen is None:
            return
        self._signal(signal.SIGKILL, group=True)
        self._popen.wait()

    def last_log_lines(self, count: int = 20) -> list[str]:
        """The end of the log, for a person who asks why it failed."""
        with suppress(FileNotFoundError), self.program.log_path.open(errors="replace") as log:
            return [line.rstrip("\n") for line in deque(log, maxlen=count)]
        return []

    def _signal(self, number: signal.Signals, *, group: bool) -> None:
        with suppress(ProcessLookupError):  # it ended on its own in the meantime
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
