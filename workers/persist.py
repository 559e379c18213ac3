"""Calls to the store that must go through although Redis blinks or the caller is being cancelled.

It owns patience and shielding; it must not know what is stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from jobs.connection import StoreFull, StoreUnavailable

_PAUSES_SECONDS: Final = (0.05, 0.1, 0.25, 0.5)
PATIENCE_SECONDS: Final = 60.0
"""Longer than that, the leases are gone anyway and other workers take over."""

T = TypeVar("T")
log = logging.getLogger(__name__)


async def persist(call: Callable[[], Awaitable[T]]) -> T:
    """The result of `call`, made again while Redis is away or full; raises its last error once patience ends."""
    ends_at = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    attempt = 0
    while True:
        try:
            return await call()
        except (StoreUnavailable, StoreFull) as exc:
            if asyncio.get_running_loop().time() > ends_at:
                raise
            if attempt == 0:
                log.warning("waiting for Redis: %s", exc)
            await asyncio.sleep(_PAUSES_SECONDS[min(attempt, len(_PAUSES_SECONDS) - 1)])
            attempt += 1


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which runs to its end even if the caller is cancelled; the cancellation comes after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            log.error("failed while being cancelled", exc_info=task.exception())
        raise
