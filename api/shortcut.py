"""The short way to the handlers: one look into a table in place of layers that these routes have no use for.

It owns which requests may take it; what it does not know goes the long way, and either way gives the same answer.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.endpoint import Handler
from api.routes import DirectRoute
from jobs.keys import ID_LENGTH, is_job_id

_JOB: Final = "/jobs/{job_id}"
_JOB_ID: Final = slice(len("/jobs/"), len("/jobs/") + ID_LENGTH)


class Shortcut:
    """A layer that answers requests for fixed paths, and for those below one job, by itself."""

    def __init__(self, app: ASGIApp, owner: FastAPI) -> None:
        """`owner` has its routes and exception handlers by now; later ones are found on the long way only."""
        self._app = app
        self._handlers = _handlers(owner)
        self._direct = ExceptionMiddleware(_respond, handlers=owner.exception_handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._find(scope) if scope["type"] == "http" else None
        if handler is None:
            await self._app(scope, receive, send)
        else:
            scope["endpoint"] = handler
            await self._direct(scope, receive, send)

    def _find(self, scope: Scope) -> Handler | None:
        """The handler of a request, whose path parameters are then in the scope."""
        method, path = scope["method"], scope["path"]
        job_id = path[_JOB_ID]
        if not (path.startswith("/jobs/") and is_job_id(job_id)):
            return self._handlers.get((method, path))
        handler = self._handlers.get((method, _JOB + path[_JOB_ID.stop :]))
        if handler is not None:
            scope["path_params"] = {"job_id": job_id}
        return handler


def _handlers(owner: FastAPI) -> dict[tuple[str, str], Handler]:
    """The handlers by method and path as the routes have it; the first of several, as in the list of routes."""
    found: dict[tuple[str, str], Handler] = {}
    for route in owner.router.routes:
        if isinstance(route, DirectRoute) and "{" not in route.path.removeprefix(_JOB):
            for method in route.methods or ():
                found.setdefault((method, route.path), route.endpoint)
    return found


async def _respond(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive, send)
    handle: Callable[[Request], Awaitable[Response]] = scope["endpoint"]
    response: Any = await handle(request)
    await response(scope, receive, send)
