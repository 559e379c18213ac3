"""Looking at operating-system processes from outside, through /proc.

Owns what "alive" and "descendant" mean. Must not start or end a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has collected yet doesn't."""
    return _fields(pid)[0] not in ("", "Z")


def descendants(pid: int) -> set[int]:
    """Children, grandchildren and so on of a process, running now."""
    parents = {int(entry.name): _fields(int(entry.name))[1] for entry in Path("/proc").glob("[0-9]*")}
    found: set[int] = set()
    generation = {pid}
    while generation:
        generation = {child for child, parent in parents.items() if parent in {str(pid) for pid in generation}}
        found |= generation
    return {pid for pid in found if is_alive(pid)}


def group_members(group: int) -> set[int]:
    """Processes of a process group, running now."""
    pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return {pid for pid in pids if _fields(pid)[2] == str(group) and is_alive(pid)}


def session_id(pid: int) -> int:
    """The session that a process belongs to."""
    return int(_fields(pid)[3])


def command_line(pid: int) -> str:
    """Program and arguments, joined by spaces; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _fields(pid: int) -> list[str]:
    """State, parent, group, session, … of a process; empty strings when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["", "", "", ""]


def wait_for(condition: Callable[[], object], timeout_seconds: float = 30) -> None:
    """Return once the condition holds; fails the test when it doesn't in time. For tests without an event loop."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true within {timeout_seconds:g} s"
        time.sleep(0.01)
