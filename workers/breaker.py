"""When a lane stops claiming because its engine does not answer, and when it asks again.

Pure: instants are the caller's monotonic seconds.
"""

from typing import Final

_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 2.0


class Breaker:
    """Open from the first unavailable answer until a probe succeeds; the pause between probes doubles, to 2 s."""

    def __init__(self) -> None:
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._probe_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether to leave the queue alone."""
        return self._probe_at is not None

    def seconds_to_probe(self, now: float) -> float:
        """How long to wait before asking the engine again; 0 when it is time, or when the breaker is closed."""
        return max(0.0, self._probe_at - now) if self._probe_at is not None else 0.0

    def trip(self, now: float) -> None:
        """The engine did not answer, or not to a probe. Trips while a pause is running change nothing."""
        if self._probe_at is not None and now < self._probe_at:
            return
        self._probe_at = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        """A probe was answered: claim again. The pause stays long until a call succeeds."""
        self._probe_at = None

    def succeed(self) -> None:
        """A call was answered: all is well."""
        self._probe_at = None
        self._pause_seconds = _FIRST_PAUSE_SECONDS
