"""Fresh ids: the kernel is asked for many at a time, because asking costs more than an id does."""

import os
from typing import Final

_BYTES: Final = 16
_DRAWN: Final = 256

_ready: list[str] = []
os.register_at_fork(after_in_child=_ready.clear)


def random_id() -> str:
    """128 random bits as 32 lower-case hex digits; any thread may ask."""
    try:
        return _ready.pop()
    except IndexError:
        digits, width = os.urandom(_BYTES * _DRAWN).hex(), 2 * _BYTES
        _ready.extend(digits[start : start + width] for start in range(width, len(digits), width))
        return digits[:width]
