"""At most one job of a process that may be what kills workers.

It owns that one place; it must not know how such a job is told from others.
"""


class Quarantine:
    """Two suspects in one process could each be blamed for the other; lanes take turns here."""

    def __init__(self) -> None:
        self._is_taken = False

    @property
    def is_taken(self) -> bool:
        """Whether a suspect runs in this process."""
        return self._is_taken

    def enter(self) -> bool:
        """Take the place; False when another lane was faster."""
        if self._is_taken:
            return False
        self._is_taken = True
        return True

    def leave(self) -> None:
        """Free the place."""
        self._is_taken = False
