"""Who may write where in a block of shared memory. Pure: it holds no memory and keeps no clock.

A place that was given back may still be read by a call that nobody waits for any more, so it can rest for a while; all
that rest do so equally long.
"""

from collections import deque
from typing import Final

ALIGNMENT: Final = 64


class Arena:
    """Places in `nbytes` bytes, the first that fits; each is as large as asked for, rounded up to 64 bytes."""

    def __init__(self, nbytes: int) -> None:
        self._free: list[tuple[int, int]] = [(0, nbytes)]
        self._resting: deque[tuple[float, int, int]] = deque()

    def take(self, nbytes: int, now: float) -> int | None:
        """The offset of a place of that size, None where there is none at the moment."""
        while self._resting and self._resting[0][0] <= now:
            _, start, end = self._resting.popleft()
            self._add(start, end)
        for i, (start, end) in enumerate(self._free):
            taken = start + _rounded(nbytes)
            if taken <= end:
                self._free[i : i + 1] = [(taken, end)] if taken < end else []
                return start
        return None

    def give_back(self, offset: int, nbytes: int, now: float, rest_seconds: float = 0.0) -> None:
        """The place may be taken again, after a rest."""
        end = offset + _rounded(nbytes)
        if rest_seconds:
            self._resting.append((now + rest_seconds, offset, end))
        else:
            self._add(offset, end)

    def _add(self, start: int, end: int) -> None:
        """Insert in order, joined to free neighbours."""
        joined: list[tuple[int, int]] = []
        for piece in sorted([*self._free, (start, end)]):
            if joined and joined[-1][1] == piece[0]:
                joined[-1] = joined[-1][0], piece[1]
            else:
                joined.append(piece)
        self._free = joined


def _rounded(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
