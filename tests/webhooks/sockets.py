"""Every attempt of this process to connect a socket, seen by the interpreter's own audit events.

Owns the hook, which stays installed for good and only listens while it is asked to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_listening: list[list[Any]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _listening and event == "socket.connect":
        for heard in _listening:
            heard.append(arguments[1])


sys.addaudithook(_hook)


@contextmanager
def connects() -> Iterator[list[Any]]:
    """The addresses that sockets were told to connect to inside the block."""
    heard: list[Any] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening.remove(heard)
