"""Processes that are measured: started as the product's own stack starts them, and what CPU time they have used.

It owns their environment and ports; it must not know what they do.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from inferq.stack.ports import free_port
from inferq.stack.process import Process, Program
from inferq.stack.readiness import http_get

ROOT: Final = Path(__file__).parents[1]
TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
START_SECONDS: Final = 60.0


class StartError(Exception):
    """A process did not become ready; says the end of its log."""


def python(
    name: str,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    logs: Path,
    inherited_fds: tuple[int, ...] = (),
) -> Process:
    """A started `python ARGUMENT…`, which sees the project first and our environment below `environment`."""
    process = Process(
        Program(
            name=name,
            argv=(sys.executable, *arguments),
            environment={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            log_path=logs / f"{name}.log",
            stop_grace_seconds=5.0,
            inherited_fds=inherited_fds,
        )
    )
    process.start()
    return process


def wait_for_port(process: Process, port: int, path: str = "/health/ready") -> bytes:
    """Return the body once the path answers 200; raises StartError."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.is_running:
        try:
            status, body = http_get("127.0.0.1", port, path)
        except OSError:
            status, body = 0, b""
        if status == 200:
            return body
        time.sleep(0.05)
    raise StartError(f"{process.program.name} is not ready:\n" + "\n".join(process.last_log_lines()))


def cpu_seconds(process_group: int) -> float:
    """User and system time of all processes of a group that live, and of its dead children."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended just now
            continue
        if int(fields[2]) == process_group:
            ticks += sum(map(int, fields[11:15]))
    return ticks * TICK_SECONDS


def resident_bytes(process_group: int) -> int:
    """Resident memory of all processes of a group."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[2]) == process_group:
                    total += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                continue
    return total


__all__ = ["Process", "StartError", "cpu_seconds", "free_port", "python", "resident_bytes", "wait_for_port"]
