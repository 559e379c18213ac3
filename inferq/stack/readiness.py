"""What a server of the stack is, waiting for one to become ready, and the probe that most of them answer.

Owns the loop, what it tells meanwhile, and its error. Must not start or stop anything.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Protocol

from inferq.stack.errors import StackError
from inferq.stack.loading import Progress
from inferq.stack.process import Process

Report = Callable[[str], None]

POLL_SECONDS = 0.05
PROBE_TIMEOUT_SECONDS = 2.0
LOOK_SECONDS = 0.5
SETTLE_SECONDS = 3.0
"""So long a server may still end by itself, which says more, once it has told why it will never be ready."""
QUIET_SECONDS = 5.0
"""A start that is no longer than this, or has told something less long ago, needs no words."""
REMIND_SECONDS = 30.0


class Server(Protocol):
    """A process that can say whether it would accept work now."""

    @property
    def name(self) -> str: ...

    @property
    def process(self) -> Process: ...

    def launch(self) -> None:
        """Start the process without waiting for it."""

    def is_ready(self) -> bool:
        """Whether it would accept work now; answers within seconds, never raises."""
        ...

    def progress(self) -> Progress:
        """What it tells of its start, if it is one that tells; nothing once it has started."""
        ...

    def stop(self) -> None:
        """End the process and clean up after it; legal before start and twice."""


class Start:
    """One start of a server, from its launch on: what it does is told when it takes long, and that it is in vain.

    Instants are of the monotonic clock. A restart, which nobody waits for, is over when the server tells nothing of it.
    """

    def __init__(self, server: Server, now: float, report: Report, *, is_restart: bool = False) -> None:
        self.server = server
        self._is_restart = is_restart
        self.is_over = False
        self._report = report
        self._look_at = now
        self._tell_at, self._remind_at = now + QUIET_SECONDS, now + QUIET_SECONDS
        self._told = ""
        self._hopeless_since: float | None = None

    def look(self, now: float) -> None:
        """Tell what it does, as often as is of use; StackError when it says that it will never be ready."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        doing, faults = self.server.progress()
        self.is_over = self._is_restart and not doing and not faults
        if self.is_over:
            return
        if not faults:
            self._hopeless_since = None
            self._tell(doing, now)
        elif self._hopeless_since is None:
            self._hopeless_since = now
        elif now >= self._hopeless_since + SETTLE_SECONDS:
            raise StackError(f"{self.server.name} will never be ready (log: {log_path(self.server)})", faults)

    def _tell(self, doing: str, now: float) -> None:
        if now >= self._remind_at or (doing != self._told and now >= self._tell_at):
            self._told, self._tell_at, self._remind_at = doing, now + QUIET_SECONDS, now + REMIND_SECONDS
            self._report(f"waiting for {self.server.name}{': ' if doing else ''}{doing}")


def wait_until_ready(server: Server, timeout_seconds: float) -> None:
    """Return once the server is ready; StackError with the end of its log when it ends or the time is up."""
    started_at = time.monotonic()
    start = Start(server, started_at, lambda line: None)
    while not server.is_ready():
        raise_if_ended(server)
        start.look(time.monotonic())
        raise_if_late(server, started_at + timeout_seconds, timeout_seconds)
        time.sleep(POLL_SECONDS)


def raise_if_ended(server: Server) -> None:
    """StackError with the end of the server's log when its process has ended."""
    if not server.process.is_running:
        raise _failed(server, f"ended with {ending(server.process)} before it was ready")


def raise_if_late(server: Server, deadline: float, timeout_seconds: float) -> None:
    """StackError with the end of the server's log when the deadline has passed."""
    if time.monotonic() >= deadline:
        raise _failed(server, f"was not ready after {timeout_seconds:g} s")


def _failed(server: Server, what: str) -> StackError:
    return StackError(f"{server.name} {what} (log: {log_path(server)})", server.process.last_log_lines())


def log_path(server: Server) -> Path:
    """Where it writes its log."""
    return server.process.program.log_path


def ending(process: Process) -> str:
    """How a process ended, in words."""
    status = process.exit_status
    if status is None or status >= 0:
        return f"status {status}"
    with suppress(ValueError):
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"signal {-status}"


def http_get(host: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body of one GET; (0, b"") when nobody answers in time."""
    connection = HTTPConnection(host, port, timeout=PROBE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException):
        return 0, b""
    finally:
        connection.close()
