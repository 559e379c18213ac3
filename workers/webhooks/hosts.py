"""How much each receiver may have in flight, so that a slow one never takes the room of others.

Pure: instants are the caller's monotonic seconds. It must not send, wait or know what is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

FIRST_LIMIT: Final = 8
"""What a host that nothing is known of may have in flight: room to prove itself."""
OPENS_AFTER: Final = 5
"""So many sends in a row that ran out of time open a host's breaker."""
MOST_GOOD: Final = 500
"""So many hosts that did well are remembered, those that were sent to last."""
MOST_GATES: Final = 2_000
"""So many hosts with a bad past are, besides those that have something in flight."""
FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class Pace(Enum):
    """What a send says about its host's pace: an error that comes at once costs nobody any room."""

    PROMPT = auto()
    SLOW = auto()


@dataclass(slots=True)
class Gate:
    """One host: a limit that grows with prompt sends and halves with slow ones, and a breaker behind it."""

    most: int
    limit: int
    in_flight: int = 0
    slow_in_a_row: int = 0
    closed_until: float = 0.0
    pause_seconds: float = FIRST_PAUSE_SECONDS

    @property
    def is_open(self) -> bool:
        """Whether the breaker lets only one send at a time through, and that only now and then."""
        return self.slow_in_a_row >= OPENS_AFTER

    @property
    def is_plain(self) -> bool:
        """Whether a new gate would do as well."""
        return self.in_flight == 0 and self.slow_in_a_row == 0

    def room(self, now: float) -> int:
        """How many more sends may begin."""
        if self.is_open:
            return int(self.in_flight == 0 and now >= self.closed_until)
        return max(0, self.limit - self.in_flight)

    def ended(self, pace: Pace, now: float) -> None:
        """One send less."""
        self.in_flight -= 1
        if pace is Pace.PROMPT:
            self.limit = min(self.limit + 1, self.most)
            self.slow_in_a_row, self.pause_seconds = 0, FIRST_PAUSE_SECONDS
            return
        self.limit = max(1, self.limit // 2)
        self.slow_in_a_row += 1
        if self.is_open and now >= self.closed_until:
            self.closed_until = now + self.pause_seconds
            self.pause_seconds = min(2 * self.pause_seconds, LONGEST_PAUSE_SECONDS)


class Hosts:
    """The gates of all hosts that have something in flight or a bad past, and the names of those that did well."""

    def __init__(self, most: int) -> None:
        """`most` is what one host may have in flight at its best."""
        self._most = most
        self._gates: dict[str, Gate] = {}
        self._good: dict[str, None] = {}

    @property
    def good(self) -> Sequence[str]:
        """Hosts whose last send was prompt."""
        return tuple(self._good)

    @property
    def slow(self) -> Sequence[str]:
        """Hosts whose last send was slow."""
        return tuple(host for host, gate in self._gates.items() if gate.slow_in_a_row)

    @property
    def first_room(self) -> int:
        """What a host without a gate may be given."""
        return min(FIRST_LIMIT, self._most)

    def rooms(self, now: float) -> dict[str, int]:
        """What hosts with a gate may be given."""
        return {host: gate.room(now) for host, gate in self._gates.items()}

    def begun(self, host: str) -> None:
        """A message for this host was taken in hand."""
        gate = self._gates.setdefault(host, Gate(self._most, self.first_room))
        gate.in_flight += 1

    def ended(self, host: str, pace: Pace, now: float) -> None:
        """It was sent, or not: how its host kept pace."""
        gate = self._gates[host]
        gate.ended(pace, now)
        self._gates[host] = self._gates.pop(host)
        if gate.is_plain:
            del self._gates[host]
        elif len(self._gates) > MOST_GATES:
            self._forget_oldest()
        self._good.pop(host, None)
        if pace is Pace.PROMPT:
            self._good[host] = None
            if len(self._good) > MOST_GOOD:
                del self._good[next(iter(self._good))]

    def _forget_oldest(self) -> None:
        idle = next((host for host, gate in self._gates.items() if not gate.in_flight), None)
        if idle is not None:
            del self._gates[idle]
