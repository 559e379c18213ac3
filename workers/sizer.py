"""How many rows a lane claims at a time: the size with the best throughput that it has seen.

Pure: it learns from what the lane tells it and must not know clocks, queues or engines.
"""

from dataclasses import dataclass
from typing import Final

_DECAY: Final = 0.9
_PROBE_EVERY: Final = 32
_ENOUGH: Final = 3.0
_BETTER: Final = 1.05


@dataclass(slots=True)
class _Seen:
    """What calls of one size came to; older ones weigh less."""

    calls: float = 0.0
    rows: float = 0.0
    busy_seconds: float = 0.0
    call_seconds: float = 0.0

    def add(self, rows: int, busy_seconds: float, call_seconds: float) -> None:
        self.calls = self.calls * _DECAY + 1
        self.rows = self.rows * _DECAY + rows
        self.busy_seconds = self.busy_seconds * _DECAY + busy_seconds
        self.call_seconds = self.call_seconds * _DECAY + call_seconds

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.busy_seconds if self.busy_seconds > 0 else 0.0

    @property
    def mean_call_seconds(self) -> float:
        return self.call_seconds / self.calls if self.calls else 0.0


class BatchSizer:
    """Climbs along the divisors of `max_batch_size` towards the best throughput, and looks left and right now and then.

    It starts in the middle: on a CPU small batches often win, on a GPU large ones. Once settled it leaves its size
    only to measure a neighbour, one call in 32.
    """

    def __init__(self, max_batch_size: int, target_latency_seconds: float = 0.0) -> None:
        """`max_batch_size` 0 or 1: there is only one size. `target_latency_seconds` 0: calls may take any time."""
        top = max(1, max_batch_size)
        self.sizes: Final = tuple(size for size in range(1, top + 1) if top % size == 0)
        self._target_seconds = target_latency_seconds
        self._seen = {size: _Seen() for size in self.sizes}
        self._current = len(self.sizes) // 2
        self._calls_since_probe = 0
        self._probe_up = True
        self._last_finished = float("-inf")

    @property
    def settled(self) -> int:
        """The size that is best so far."""
        return self.sizes[self._current]

    def next_size(self) -> int:
        """The number of rows to claim now."""
        unmeasured = self._unmeasured_neighbour()
        if unmeasured is not None:
            return self.sizes[unmeasured]
        self._calls_since_probe += 1
        if self._calls_since_probe < _PROBE_EVERY:
            return self.settled
        self._calls_since_probe = 0
        self._probe_up = not self._probe_up
        neighbour = self._current + (1 if self._probe_up else -1)
        return self.sizes[neighbour] if self._is_allowed(neighbour) else self.settled

    def observe(self, rows: int, started: float, finished: float) -> None:
        """A call of `rows` rows ran from `started` to `finished` (monotonic seconds) and succeeded.

        Counts the time in which the engine was busy with this call: since the last one ended, or since it started.
        Calls of a size that is not one of ours (the queue was nearly empty) teach nothing about throughput.
        """
        busy_seconds = finished - max(started, self._last_finished)
        self._last_finished = max(finished, self._last_finished)
        if rows in self._seen and busy_seconds > 0:
            self._seen[rows].add(rows, busy_seconds, finished - started)
            self._climb()

    def mean_call_seconds(self) -> float:
        """How long a call of the settled size takes, the engine's queue included; 0 while unknown."""
        return self._seen[self.settled].mean_call_seconds

    def _climb(self) -> None:
        """Move one step where a neighbour is clearly better, or where calls of this size take longer than allowed."""
        if self._is_too_slow(self._current) and self._current > 0:
            self._current -= 1
            return
        here = self._seen[self.settled]
        if here.calls < _ENOUGH * _DECAY:
            return
        for neighbour in (self._current + 1, self._current - 1):
            if not self._is_allowed(neighbour) or self._is_too_slow(neighbour):
                continue
            there = self._seen[self.sizes[neighbour]]
            if there.calls >= _ENOUGH * _DECAY and there.rows_per_second > _BETTER * here.rows_per_second:
                self._current = neighbour
                return

    def _unmeasured_neighbour(self) -> int | None:
        """A neighbour that too little is known of, once enough is known of the present size."""
        if self._seen[self.settled].calls < _ENOUGH * _DECAY:
            return None
        for neighbour in (self._current + 1, self._current - 1):
            if self._is_allowed(neighbour) and self._seen[self.sizes[neighbour]].calls < _ENOUGH * _DECAY:
                return neighbour
        return None

    def _is_allowed(self, index: int) -> bool:
        return 0 <= index < len(self.sizes)

    def _is_too_slow(self, index: int) -> bool:
        seen = self._seen[self.sizes[index]]
        return 0 < self._target_seconds < seen.mean_call_seconds
