"""How many bytes of one kind a process holds at once, all requests together: bodies that arrive, results that are sent.

It owns the budgets. What counts is what is held and not what was announced, so that large announcements block nobody.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from api.problems import Problem, ProblemCode


class Share:
    """What one request holds so far."""

    __slots__ = ("_budget", "nbytes")

    def __init__(self, budget: "Budget") -> None:
        self._budget = budget
        self.nbytes = 0

    def add(self, nbytes: int) -> None:
        """So much more is held; raises Problem where the process can't hold it beside what others do."""
        self.nbytes += nbytes
        self._budget.used_bytes += nbytes
        if self._budget.used_bytes > self._budget.most_bytes and self._budget.used_bytes > self.nbytes:
            raise self._budget.refusal()


class Budget:
    """The budget of a process. A request that is alone may always go on, whatever its size."""

    def __init__(self, most_bytes: int, refusal: Callable[[], Problem]) -> None:
        self.most_bytes = most_bytes
        self.refusal = refusal
        self.used_bytes = 0

    @contextmanager
    def open(self) -> Iterator[Share]:
        """A request's share; what it holds is given back at its end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.used_bytes -= share.nbytes


def too_many_uploads() -> Problem:
    """The body is refused as it arrives, so that the connection can't be used again."""
    return Problem(
        ProblemCode.TOO_MANY_UPLOADS, "Too many uploads are on their way at once. Try again soon.", close=True
    )


def too_many_results() -> Problem:
    """The result stays where it is."""
    return Problem(ProblemCode.TOO_MANY_RESULTS, "Too many large results are being sent at once. Try again soon.")
