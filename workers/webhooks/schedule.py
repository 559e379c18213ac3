"""When a message is tried again.

Pure: instants and chance are the caller's.
"""

from collections.abc import Sequence
from typing import Final

JITTER: Final = 0.2
"""Each pause is up to this share shorter or longer, so that messages which failed together come apart."""

_MOST_ASKED_MS: Final = 24 * 3_600_000
"""The longest pause that a receiver may ask for with Retry-After."""


def next_pause_ms(
    pauses_seconds: Sequence[float], tried: int, waited_ms: int, chance: float, asked_ms: int = 0
) -> int | None:
    """How long to wait after the attempt number `tried` (from 1); None when the message is given up.

    `pauses_seconds[n]` lies before attempt n + 1. `waited_ms` is the message's age: an end of its own, because a
    breaker may leave a message waiting without trying it. `chance` is a number from 0 to 1. `asked_ms` is what the
    receiver asked for; it lengthens a pause and never shortens one.
    """
    if tried >= len(pauses_seconds) or waited_ms > longest_ms(pauses_seconds):
        return None
    jittered = pauses_seconds[tried] * (1 + JITTER * (2 * chance - 1))
    return max(round(jittered * 1000), min(asked_ms, _MOST_ASKED_MS))


def longest_ms(pauses_seconds: Sequence[float]) -> int:
    """The age at which a message is given up even if it was tried less often than the schedule says."""
    return round(sum(pauses_seconds) * (1 + JITTER) * 1000) + _MOST_ASKED_MS
