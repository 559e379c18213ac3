"""What the C library does with freed memory: it keeps some, so that the kernel need not clear pages for every payload.

It owns the figures. Where the C library has no such switch, nothing changes but speed.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_SINGLE_BYTES: Final = 8 << 20
"""Blocks from this size on are the kernel's, as ever, and go back to it at once."""
_KEPT_BYTES: Final = 64 << 20
"""As much free memory stays with the process at most (for each of its heaps, at its end)."""


def keep_freed_memory() -> None:
    """Call it once, at the start of a process that moves payloads.

    Without it glibc gives large blocks back as soon as they are free, and each new one costs a page fault for every
    4 KiB: more than copying does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _SINGLE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
