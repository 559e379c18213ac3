"""Whether the Redis that answers can be used safely, asked again after every lost connection.

It judges the server, not whether it answers; that is the catalog's.
"""

import asyncio
import logging
from typing import Final

from jobs.connection import Connection, StoreError, StoreMisconfigured

_RETRY_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


class StoreProbe:
    """Holds the fault of the server that was last reached: `fault` is one sentence, or None."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_wanted = asyncio.Event()
        self._warnings: list[str] = []
        self.fault: str | None = None

    def look_again(self) -> None:
        """Ask soon: another server, or the same with other settings, may have taken over."""
        self._is_wanted.set()

    async def check(self) -> bool:
        """Ask now; False where there was no answer. Changes are logged."""
        try:
            warnings = await self._connection.check()
        except StoreMisconfigured as exc:
            if str(exc) != self.fault:
                log.error("jobs are refused: %s", exc)
            self.fault = str(exc)
            return True
        except StoreError:
            return False
        for warning in warnings:
            if warning not in self._warnings:
                log.warning("%s", warning)
        self._warnings, self.fault = warnings, None
        return True

    async def run(self) -> None:
        """Ask when told to, and every few seconds while there is a fault or no answer; until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            if not await self.check() or self.fault:
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._is_wanted.set)
