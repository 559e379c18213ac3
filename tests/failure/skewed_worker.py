"""An inference worker on a machine whose clock is wrong: `python skewed_worker.py SECONDS`.

Owns the wrong clock: what Python code of this process reads as the time of day. gRPC keeps the true one, since its
native half reads the kernel's and the two halves must agree. The rest is the product's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

SKEW_SECONDS = float(sys.argv[1])
_true_time, _true_time_ns = time.time, time.time_ns


def _is_asked_by_grpc() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith("grpc")


def skewed_time() -> float:
    return _true_time() + (0 if _is_asked_by_grpc() else SKEW_SECONDS)


def skewed_time_ns() -> int:
    return _true_time_ns() + int(SKEW_SECONDS * 1_000_000_000)


class SkewedDatetime(datetime):
    """`datetime` with the wrong `now`."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> SkewedDatetime:
        true = super().now(tz)
        return true + timedelta(seconds=SKEW_SECONDS)


def main() -> int:
    """Set the clock wrong before anything of the product is imported, and serve."""
    import datetime as datetime_module

    patched: dict[str, Callable[[], float]] = {"time": skewed_time, "time_ns": skewed_time_ns}
    for name, function in patched.items():
        setattr(time, name, function)
    setattr(datetime_module, "datetime", SkewedDatetime)  # noqa: B010 - mypy refuses to assign to a class
    from workers.__main__ import main as serve

    return serve(["inference"])


if __name__ == "__main__":
    sys.exit(main())
