"""One method of one path, as a row of the tables of routes."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """One method of one path; `answers` are the statuses that it can give, errors by `api.problems` included.

    `body` names what it takes and `shows` what an answer holds, as `api.openapi` describes them.
    """

    method: str
    path: str
    handler: Handler
    tag: str
    answers: tuple[int, ...]
    parameters: tuple[str, ...] = ()
    shows: tuple[tuple[int, str], ...] = ()
    body: str = ""
