"""What a server of the stack is, waiting for one to become ready, and the probe that most of them answer.

Owns the loop and its error. Must not start or stop anything.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException
from typing import Protocol

from inferq.stack.errors import StackError
from inferq.stack.process import Process

POLL_SECONDS = 0.05
PROBE_TIMEOUT_SECONDS = 2.0


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

    def stop(self) -> None:
        """End the process and clean up after it; legal before start and twice."""


def wait_until_ready(server: Server, timeout_seconds: float) -> None:
    """Return once the server is ready; StackError with the end of its log when it ends or the time is up."""
    deadline = time.monotonic() + timeout_seconds
    while not server.is_ready():
        raise_if_ended(server)
        raise_if_late(server, deadline, timeout_seconds)
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
    log_path = server.process.program.log_path
    return StackError(f"{server.name} {what} (log: {log_path})", server.process.last_log_lines())


def ending(process: Process) -> str:
    """How a process ended, in words."""
    status = process.exit_status
    return f"signal {-status}" if status is not None and status < 0 else f"status {status}"


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
