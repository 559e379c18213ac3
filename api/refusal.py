"""A refusal in the form of the path that was asked: a problem of RFC 9457, or below /v2 what Triton's clients read.

It owns which paths speak which of the two; the forms themselves are `api.problems`' and `api.facade.errors`' business.
"""

from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from api import problems
from api.facade import errors
from api.problems import Problem

_FACADE: Final = "/v2"


def refusal(scope: Scope, problem: Problem) -> Response:
    """The answer to this request."""
    path = scope["path"]
    if path == _FACADE or path.startswith(f"{_FACADE}/"):
        return errors.response(problem)
    return problems.response(problem, scope["state"]["request_id"])
