"""Waiting for what another process or task does, without a sleep that hopes.

Owns the loop and its bound. A condition that never holds fails the test with the condition's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_LOOK_EVERY_SECONDS: Final = 0.01


async def eventually(condition: Callable[[], Awaitable[bool]], timeout_seconds: float = 20) -> None:
    """Return as soon as the condition holds; fail when it does not within the time."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_seconds
    while not await condition():
        assert loop.time() < ends_at, f"{condition.__qualname__} did not hold within {timeout_seconds} s"
        await asyncio.sleep(_LOOK_EVERY_SECONDS)
