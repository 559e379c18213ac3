"""One pub/sub connection per process, kept alive, for the ids that scripts publish.

It owns reconnecting; what to do with an id is the callback's, and so is looking again after a gap.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from jobs.connection import Connection, StoreError
from jobs.keys import ID_LENGTH

_RECONNECT_SECONDS: Final = (0.05, 0.2, 0.5, 1.0)

log = logging.getLogger(__name__)


class Listener:
    """Calls `on_ids(channel, ids)` for each message, and `on_gap()` whenever messages may have been missed."""

    def __init__(
        self,
        connection: Connection,
        channels: Sequence[str],
        on_ids: Callable[[str, list[str]], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._channels = channels
        self._on_ids = on_ids
        self._on_gap = on_gap

    async def run(self) -> None:
        """Listen until cancelled; a lost connection is opened again with a growing pause."""
        failures = 0
        while True:
            try:
                async with self._connection.subscribe(*self._channels) as messages:
                    failures = 0
                    self._on_gap()
                    async for channel, data in messages:
                        self._on_ids(channel, split_ids(data))
            except StoreError as exc:
                pause = _RECONNECT_SECONDS[min(failures, len(_RECONNECT_SECONDS) - 1)]
                log.log(logging.DEBUG if failures else logging.WARNING, "listening interrupted: %s", exc)
                failures += 1
                await asyncio.sleep(pause)


def split_ids(data: bytes) -> list[str]:
    """The ids of a message: 32 characters each, back to back."""
    text = data.decode("ascii", "replace")
    return [text[i : i + ID_LENGTH] for i in range(0, len(text), ID_LENGTH)]
