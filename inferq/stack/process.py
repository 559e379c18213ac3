"""One operating-system process of the stack: start it, see whether it lives, stop it with everything it started.

Owns process groups, signals and log files. Must not know what the program is or when it counts as ready.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")
LARGEST_LOG_BYTES = 16 * 1024 * 1024
LOG_TAIL_BYTES = 65_536
POLL_SECONDS = 0.02
CHILDREN_SECONDS = 2.0


@dataclass(frozen=True)
class Program:
    """What to run and how to end it.

    `environment` is the whole environment. `stop_grace_seconds` lie between SIGTERM and SIGKILL. Should the parent die
    without stopping it, the program is killed; with `has_children` it is told to stop, and killed with them after the
    grace. `complaint` matches the start of the log lines that say what went wrong, in a log that is mostly something
    else; where it has a group `said`, that is shown of them. `umask` -1 is the parent's own.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path
    stop_grace_seconds: float = 10.0
    has_children: bool = False
    inherited_fds: tuple[int, ...] = ()
    umask: int = -1
    complaint: re.Pattern[str] = re.compile("")


class Process:
    """A program's running instance, in a session and process group of its own; may be started again after it ended.

    For the kernel the parent is the *thread* that called `start`: call it from one that lives as long as the process
    should, in practice the main thread. Everything else may be called from any thread.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Its process id, or its guard's when it has children; also the id of the process group."""
        if self._popen is None:
            raise RuntimeError(f"{self.program.name} was never started")
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen is not None and not self._has_ended()

    @property
    def exit_status(self) -> int | None:
        """How it ended: the exit status, or the negative signal number; None while it runs or before its start."""
        if self._popen is None or not self._has_ended():
            return None
        return self._popen.wait()

    def start(self) -> None:
        """Start the program, output appended to its log; OSError when its log or its process can't be made."""
        if self.is_running:
            return
        program = self.program
        self._prepare_log()
        orphan_grace = f"{program.stop_grace_seconds:g}" if program.has_children else "-"
        launcher = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), orphan_grace)
        with program.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(  # noqa: S603 - argv comes from this package, no shell is involved
                [*launcher, *program.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(program.environment),
                pass_fds=program.inherited_fds,
                start_new_session=True,
                umask=program.umask,
            )

    def _prepare_log(self) -> None:
        """Make the log's folder; a log that has grown large becomes its own predecessor."""
        path = self.program.log_path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LARGEST_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))

    def stop(self, grace_seconds: float | None = None) -> None:
        """End the program and whatever is left of its group, SIGKILL after the grace; legal before start and twice.

        SIGTERM goes to the program alone: it ends its own children in its own order.
        """
        if self._popen is None:
            return
        deadline = time.monotonic() + (self.program.stop_grace_seconds if grace_seconds is None else grace_seconds)
        if not self._has_ended():
            os.kill(self.pid, signal.SIGTERM)
        while not self._has_ended() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the whole group and wait for its end; legal at any time."""
        if self._popen is None or self._popen.returncode is not None:
            return
        with suppress(ProcessLookupError):  # another thread was faster
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        if self.program.has_children:
            self._wait_for_children(time.monotonic() + CHILDREN_SECONDS)

    def _wait_for_children(self, deadline: float) -> None:
        """Return once nobody of a killed group is left: they hold memory and ports until the kernel is through."""
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                time.sleep(POLL_SECONDS)

    def has_dead_children(self) -> bool:
        """Whether somebody of its group has ended whose parent takes no notice of it."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # gone meanwhile
                state, _, group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
                if state == "Z" and int(group) == self.pid:
                    return True
        return False

    def log_lines(self) -> list[str]:
        """What it wrote since its last start."""
        with suppress(OSError), self.program.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace").splitlines()
        return []

    def last_log_lines(self, count: int = 20) -> list[str]:
        """The end of what it wrote since its last start, complaints only if it made any: why it failed."""
        with suppress(OSError), self.program.log_path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
            found = [match for line in lines if (match := self.program.complaint.match(line))]
            complaints = [match.groupdict().get("said") or match.string for match in found]
            return (complaints or lines)[-count:]
        return []

    def _has_ended(self) -> bool:
        """Whether the program has ended; what it left behind in its group is killed before its id becomes free."""
        if self._popen is None or self._popen.returncode is not None:
            return True
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # collected by another thread just now
            return True
        if ended is not None:
            self.kill()
        return ended is not None
