"""One line of JSON per answered request on stderr, in the form of the process' other log lines.

It goes its own way because it is the one line that every request pays for; no query, header or body ever gets into it.
"""

import os
import sys
from datetime import UTC, datetime
from typing import Final

import orjson

_LONGEST_PATH: Final = 200


class AccessLog:
    """Writes to a file descriptor, each line with one system call."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stderr.fileno() if descriptor is None else descriptor

    def write(self, method: str, path: str, status: int, seconds: float, request_id: str) -> None:
        """Log a request; status 0 says that no answer was begun."""
        line = {
            "event": "request",
            "method": method,
            "path": path[:_LONGEST_PATH],
            "status": status,
            "seconds": round(seconds, 6),
            "request_id": request_id,
            "level": "info",
            "logger": "api.access",
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "process": "api",
        }
        try:
            os.write(self._descriptor, orjson.dumps(line) + b"\n")
        except (OSError, orjson.JSONEncodeError):  # a full disk or a lone surrogate must not cost anybody an answer
            return
