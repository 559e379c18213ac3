"""Takes jobs back from workers that died, and ends jobs that waited too long or that nobody holds.

Every worker runs one; the scripts are atomic, so any number of them does no harm.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from jobs.connection import StoreError
from jobs.registry import Registry
from workers.tools import Tools

_EVERY_SECONDS: Final = 1.0
_MODELS_EVERY_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class Reaper:
    """Looks once a second at every model that is known, not only at those served here."""

    def __init__(self, tools: Tools, registry: Registry, own_models: Callable[[], set[str]]) -> None:
        self._tools = tools
        self._registry = registry
        self._own_models = own_models
        self._known: set[str] = set()
        self._known_until = 0.0
        self._not_before = 0.0

    async def run(self) -> None:
        """Look for ever. After an outage of Redis, wait a lease first: live workers must get to renew theirs."""
        while True:
            try:
                await self.run_once(time.monotonic())
            except StoreError as exc:
                log.debug("can't reap: %s", exc)
                self._not_before = time.monotonic() + self._tools.settings.lease_seconds
            await asyncio.sleep(_EVERY_SECONDS * (0.75 + 0.5 * self._tools.rng.random()))

    async def run_once(self, now: float) -> None:
        """Reap and expire what is due at `now` (monotonic seconds). Raises StoreError."""
        if now >= self._known_until:
            self._known = set(await self._registry.models())
            self._known_until = now + _MODELS_EVERY_SECONDS
        swept = await self._tools.store.expire()
        if swept.expired or swept.lost:
            log.warning("%d jobs expired, %d were lost", len(swept.expired), len(swept.lost))
        if now < self._not_before:
            return
        reaped = await self._tools.store.reap(sorted(self._known | self._own_models()))
        for model, (requeued, failed) in reaped.items():
            if requeued or failed:
                log.warning("model %s: %d jobs run again, %d failed: worker lost", model, len(requeued), len(failed))
