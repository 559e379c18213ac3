"""Who waits for which job in this process, however many wait: one subscription to Redis serves them all.

It wakes waiters and knows nothing of states: a waiter that is woken looks at its job again.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from jobs.keys import DONE_CHANNEL, STARTED_CHANNEL

CHANNELS: Final = (DONE_CHANNEL, STARTED_CHANNEL)


class Watch:
    """One request's interest in one job."""

    __slots__ = ("_has_ended", "_woken")

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._has_ended = False

    def has_ended(self) -> bool:
        """Whether waiting is over: the client hung up, or the process is about to stop."""
        return self._has_ended

    def wake(self) -> None:
        """Make the present or next `woken` return."""
        self._woken.set()

    def end(self) -> None:
        """Wake it for the last time."""
        self._has_ended = True
        self._woken.set()

    async def woken(self, seconds: float) -> None:
        """Return once woken since the last return, after `seconds` at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()


class Waiters:
    """The watches of this process by job. To miss nothing, watch first and look at the job then."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}
        self.is_quiet = False
        """Whether `quiet` was called."""

    def __len__(self) -> int:
        return sum(map(len, self._watches.values()))

    @contextmanager
    def watch(self, job_id: str) -> Iterator[Watch]:
        """A watch that is woken whenever the job may have changed."""
        watch = Watch()
        if self.is_quiet:
            watch.end()
        watches = self._watches.setdefault(job_id, set())
        watches.add(watch)
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches:
                self._watches.pop(job_id, None)

    def on_ids(self, channel: str, job_ids: Iterable[str]) -> None:
        """These jobs may have changed."""
        for job_id in job_ids:
            for watch in self._watches.get(job_id, ()):
                watch.wake()

    def wake_all(self) -> None:
        """Any job may have changed unseen, or whoever waits may not be let in any more."""
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    def quiet(self) -> None:
        """End every watch, now and from now on: the process is about to stop. Legal twice."""
        self.is_quiet = True
        for watches in self._watches.values():
            for watch in watches:
                watch.end()
