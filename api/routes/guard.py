"""What each path asks of a caller's API key, and the check of it before anything else of a request is looked at.

It owns which paths are open and which scope the others need; a new path is guarded without being named here.
"""

from functools import wraps
from time import monotonic
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from api.endpoint import Handler
from api.problems import Problem
from api.routes.access import services, tenant
from jobs.apikeys import KeyScope

OPEN: Final = frozenset(
    {
        "/",
        "/docs",
        "/docs/{asset}",
        "/openapi.json",
        "/health/live",
        "/health/ready",
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
    }
)
"""Paths that tell nothing of anybody's jobs and models, for probes and people."""

_SCOPES: Final = {
    ("POST", "/deliveries/redeliver"): KeyScope.ADMIN,  # of all jobs of a tenant at once
    ("DELETE", "/jobs/{job_id}"): KeyScope.CANCEL,
    ("POST", "/jobs/{job_id}/cancel"): KeyScope.CANCEL,
    ("POST", "/v2/repository/index"): KeyScope.READ,
}

METERED: Final = frozenset(
    ("POST", path)
    for path in (
        "/jobs",
        "/jobs/batch",
        "/v2/models/{name}/infer",
        "/v2/models/{name}/versions/{version}/infer",
    )
)
"""What makes jobs, and so uses up quotas."""


def scope_of(method: str, path: str) -> KeyScope | None:
    """What a key must permit for this path as it stands in the table of routes; None where no key is needed."""
    if path in OPEN:
        return None
    return _SCOPES.get((method, path), KeyScope.READ if method in ("GET", "HEAD") else KeyScope.SUBMIT)


async def _metered(request: Request, handler: Handler) -> Response:
    """The answer, a refusal too, with what is left of the tenant's quotas; where it met a limit, with that one."""
    pressure, owner = services(request).pressure, tenant(request)
    try:
        response = await handler(request)
    except Problem as problem:
        problem.headers = {**pressure.standing(owner, monotonic()), **problem.headers}
        raise
    standing = pressure.standing(owner, monotonic())
    response.raw_headers.extend((name.lower().encode(), value.encode()) for name, value in standing.items())
    return response


def guarded(path: str, handler: Handler) -> Handler:
    """The handler behind the check of the caller's key, known to `api.routes.access`; metrics learn its path."""

    @wraps(handler)
    async def opened(request: Request) -> Response:
        request.state.route = path
        return await handler(request)

    @wraps(handler)
    async def guard(request: Request) -> Response:
        request.state.route = path
        scope = scope_of(request.method, path)
        assert scope is not None
        try:
            request.state.caller = await services(request).gate.admit(request, scope)
        except Problem as problem:
            problem.close = request.method not in ("GET", "HEAD")  # its body is not going to be read
            raise
        with services(request).uploads.open() as request.state.upload:
            return await (_metered(request, handler) if (request.method, path) in METERED else handler(request))

    return opened if path in OPEN else guard
