"""What goes wrong, in the form that Triton's clients read: `{"error": "…"}`.

It owns which statuses differ from those of the jobs' own paths; the words are the problem's.
"""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from api import problems
from api.problems import Problem
from jobs.errors import JobError

MEDIA_TYPE: Final = "application/json"


class FacadeProblem(Problem):
    """A problem with Triton's status: what does not fit a model is 400 there, as any fault of a request."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return status_of(super().status)


def status_of(status: int) -> int:
    """The status that Triton would give."""
    return 400 if status == 422 else status


def response(problem: Problem) -> Response:
    """The problem in Triton's form, with its code beside it for programs that know us."""
    told = FacadeProblem(problem.code, problem.detail, headers=problem.headers, close=problem.close)
    return problems.respond(told, {"error": problem.detail, "code": problem.code.value}, MEDIA_TYPE)


def failure(error: JobError, headers: Mapping[str, str]) -> tuple[dict[str, Any], int, Mapping[str, str]]:
    """A job's failure: content, status and headers of the answer."""
    return {"error": error.detail, "code": error.code.value}, error.kind.status, headers
