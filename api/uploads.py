"""How many bytes of bodies one process holds at once, all requests together.

It owns the budget. It counts what has arrived and not what was announced, so that large announcements block nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from api.problems import Problem, ProblemCode


class Upload:
    """What one request has brought in so far."""

    __slots__ = ("_budget", "nbytes")

    def __init__(self, budget: "UploadBudget") -> None:
        self._budget = budget
        self.nbytes = 0

    def add(self, nbytes: int) -> None:
        """So much more has arrived; raises Problem where the process can't hold it beside what others have sent."""
        self.nbytes += nbytes
        self._budget.used_bytes += nbytes
        if self._budget.used_bytes > self._budget.most_bytes and self._budget.used_bytes > self.nbytes:
            raise Problem(
                ProblemCode.TOO_MANY_UPLOADS, "Too many uploads are on their way at once. Try again soon.", close=True
            )


class UploadBudget:
    """The budget of a process. A request that is alone may always go on, whatever its size."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0

    @contextmanager
    def open(self) -> Iterator[Upload]:
        """A request's account; what it brought in is given back at its end."""
        upload = Upload(self)
        try:
            yield upload
        finally:
            self.used_bytes -= upload.nbytes
