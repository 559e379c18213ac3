"""How many payload bytes a worker holds at once, and how much memory its decoders take.

It counts; it must not know what the bytes are.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from jobs.store import Claimed


class ByteBudget:
    """A cap that one job alone may exceed, so that a large one is late but never stuck."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._held_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more should be claimed now."""
        return self._held_bytes >= self._capacity_bytes

    def admit(self, jobs: Sequence[Claimed]) -> tuple[list[Claimed], list[Claimed]]:
        """Take bytes for as many of these jobs, from the first on, as fit; returns those and the rest."""
        for count, job in enumerate(jobs):
            nbytes = job_bytes(job)
            if self._held_bytes and self._held_bytes + nbytes > self._capacity_bytes:
                return list(jobs[:count]), list(jobs[count:])
            self._held_bytes += nbytes
        return list(jobs), []

    def free(self, jobs: Sequence[Claimed]) -> None:
        """Give the bytes of admitted jobs back."""
        self._held_bytes -= sum(job_bytes(job) for job in jobs)


class DecodeRoom:
    """Memory for decoders, first come first served; one that wants more than there is goes alone."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0

    async def enter(self, nbytes: int) -> None:
        """Take so much, once there is room; whoever is cancelled while waiting has taken nothing."""
        turn = asyncio.get_running_loop().create_future()
        self._line.append((nbytes, turn))
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._serve()  # it may have stood before others for whom there is room
            else:
                self.leave(nbytes)
            raise

    def leave(self, nbytes: int) -> None:
        """Give it back."""
        self.held_bytes -= nbytes
        self._serve()

    def _serve(self) -> None:
        while self._line:
            nbytes, turn = self._line[0]
            if not turn.cancelled():
                if self.held_bytes and self.held_bytes + nbytes > self._capacity_bytes:
                    return
                self.held_bytes += nbytes
                turn.set_result(None)
            self._line.popleft()


def job_bytes(job: Claimed) -> int:
    """The size of a job's payload in bytes."""
    return sum(part.nbytes for part in job.request.inputs)
