"""The one exception that ends a command; it weighs nothing to import.

Owns what the last lines on stderr say and the exit status. Must not print.
"""


class CommandFailed(Exception):
    """The command ends: one sentence about why, one about what to do next, and the exit status."""

    def __init__(self, reason: str, next_step: str = "", *, status: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.next_step = next_step
        self.status = status
