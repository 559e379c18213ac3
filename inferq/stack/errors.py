"""The one error of the embedded stack: a part is missing, refused or didn't start.

Owns the class only; the sentence comes from whoever raises it, and the command line shows it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence


class StackError(Exception):
    """One sentence about what is wrong and what to do, then the last lines of the failing part's log, if it has one."""

    def __init__(self, reason: str, log_lines: Sequence[str] = ()) -> None:
        super().__init__("\n".join([reason, *(f"  | {line}" for line in log_lines)]))
        self.reason = reason
        self.log_lines = tuple(log_lines)
