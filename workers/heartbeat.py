"""Keeps this worker's leases alive and says that it lives.

A lease that turns out lost, or a job that is canceled, is dropped from the flights; nothing else happens here.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from jobs.connection import StoreError
from jobs.keys import CANCEL_CHANNEL
from jobs.listener import Listener
from jobs.registry import LaneBeat, Registry, WorkerBeat
from workers.tools import Tools

_BEATS_PER_LEASE: Final = 5
_LONGEST_PAUSE_SECONDS: Final = 3.0
_RETRY_SECONDS: Final = 0.3

log = logging.getLogger(__name__)


class Heartbeat:
    """Several beats a lease, so that one that gets lost harms nothing; one at once when a lane's state changes."""

    def __init__(
        self,
        tools: Tools,
        registry: Registry,
        version: str,
        beats: Callable[[], Mapping[str, LaneBeat]],
        unloaded: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._tools = tools
        self._registry = registry
        self._version = version
        self._beats = beats
        self._unloaded = unloaded
        self._listener = Listener(tools.store.connection, [CANCEL_CHANNEL], self._on_canceled, lambda: None)
        self.missed = 0
        """Beats in a row that did not reach Redis."""

    async def run(self) -> None:
        """Beat for ever."""
        pause_seconds = min(_LONGEST_PAUSE_SECONDS, self._tools.settings.lease_seconds / _BEATS_PER_LEASE)
        while True:
            self._tools.changed.clear()  # what changes from here on is told in this beat or at once after it
            try:
                await self.run_once()
                self.missed = 0
            except StoreError as exc:
                self.missed += 1
                log.log(logging.WARNING if self.missed == 1 else logging.DEBUG, "a heartbeat was missed: %s", exc)
            if self.missed:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await self._pause(pause_seconds)

    async def run_once(self) -> None:
        """Renew the leases in hand and publish the lanes' state. Raises StoreError."""
        for lost in await self._tools.store.extend(self._tools.flights.leases(), self._tools.lease_ms):
            if self._tools.flights.drop(lost):
                log.info("job %s: attempt %d is not ours any more", *lost)
        await self._registry.beat(
            WorkerBeat(
                self._tools.worker_id,
                socket.gethostname(),
                os.getpid(),
                self._version,
                dict(self._beats()),
                unloaded=dict(self._unloaded()),
            )
        )

    async def listen(self) -> None:
        """Hear of canceled jobs for ever; what is missed while disconnected shows at the next beat."""
        await self._listener.run()

    def _on_canceled(self, _channel: str, ids: list[str]) -> None:
        for job_id in ids:
            if self._tools.flights.drop_job(job_id):
                log.info("job %s was canceled", job_id)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not while the world is told a wrong lane state."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tools.changed.wait()
