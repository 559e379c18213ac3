"""Every path of the api: one table, and how it becomes routes of the application.

Handlers take the request and give the response; FastAPI only matches paths and describes them in OpenAPI.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from api import query
from api.endpoint import Endpoint, Handler
from api.openapi import document
from api.openapi.parameters import OPTION_PARAMETERS, query_names
from api.routes import batch, deliveries, events, facade, health, jobs, models, pages, results, submit
from api.routes.guard import METERED, guarded, scope_of

_STRICT: Final = ("jobs", "webhooks", "models")
"""Endpoints of these tags take no unknown query parameter; where there is a body, options are its matter."""

_JOB: Final = ((200, "job"), (201, "job"), (202, "job"))
_CANCELED: Final = ((200, "job or receipt"), (202, "job or receipt"))

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/jobs",
        submit.submit_job,
        "jobs",
        (202, 200, 201, 400, 404, 408, 413, 415, 422, 503),
        ("prefer", "idempotency-key", "header-length", *OPTION_PARAMETERS),
        _JOB,
        "job",
    ),
    Endpoint(
        "POST",
        "/jobs/batch",
        batch.submit_batch,
        "jobs",
        (202, 207, 400, 408, 413, 415, 422, 503),
        ("idempotency-key",),
        ((202, "Batch"), (207, "Batch")),
        "batch",
    ),
    Endpoint(
        "GET",
        "/jobs",
        jobs.list_page,
        "jobs",
        (200, 422, 503),
        ("status", "model", "limit", "cursor"),
        ((200, "JobPage"),),
    ),
    Endpoint(
        "GET",
        "/jobs/{job_id}",
        jobs.read_job,
        "jobs",
        (200, 304, 404, 422, 503),
        ("job_id", "wait", "if-none-match"),
        _JOB,
    ),
    Endpoint("DELETE", "/jobs/{job_id}", jobs.delete_job, "jobs", (204, 404, 409, 422, 503), ("job_id", "force")),
    Endpoint(
        "GET",
        "/jobs/{job_id}/events",
        events.job_events,
        "jobs",
        (200, 204, 404, 422, 503),
        ("job_id", "last-event-id"),
        ((200, "events"),),
    ),
    Endpoint(
        "POST", "/jobs/{job_id}/cancel", jobs.cancel_job, "jobs", (200, 202, 404, 422, 503), ("job_id",), _CANCELED
    ),
    Endpoint(
        "GET",
        "/jobs/{job_id}/result",
        results.read_result,
        "jobs",
        (200, 202, 304, 404, 406, 409, 410, 422, 503),
        ("job_id", "output", "if-none-match"),
        ((200, "result"), (202, "job")),
    ),
    Endpoint(
        "GET",
        "/jobs/{job_id}/deliveries",
        deliveries.list_deliveries,
        "webhooks",
        (200, 404, 422, 503),
        ("job_id",),
        ((200, "Deliveries"),),
    ),
    Endpoint(
        "POST",
        "/jobs/{job_id}/deliveries/redeliver",
        deliveries.redeliver_job,
        "webhooks",
        (202, 404, 409, 422, 503),
        ("job_id",),
        ((202, "Redelivered"),),
    ),
    Endpoint(
        "POST",
        "/deliveries/redeliver",
        deliveries.redeliver_range,
        "webhooks",
        (202, 422, 503),
        ("since", "undelivered"),
        ((202, "Redelivered"),),
    ),
    Endpoint("GET", "/models", models.list_models, "models", (200, 422, 503), (), ((200, "Models"),)),
    Endpoint("GET", "/models/{name}", models.read_model, "models", (200, 404, 422, 503), ("name",), ((200, "Model"),)),
    Endpoint("GET", "/health/live", health.live, "operations", (200,), (), ((200, "Live"),)),
    Endpoint("GET", "/health/ready", health.ready, "operations", (200, 503), (), ((200, "Ready"), (503, "Ready"))),
    Endpoint("GET", "/", pages.root, "operations", (200, 307), (), ((200, "Product"),)),
)
_DOCS: Final = (
    Endpoint("GET", "/docs", pages.docs, "operations", (200,), (), ((200, "html"),)),
    Endpoint("GET", "/docs/{asset}", pages.asset, "operations", (200, 404), ("asset",), ((200, "asset"),)),
)


class DirectRoute(APIRoute):
    """A route whose handler checks its own parameters: nothing stands between the request and it."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """The handler as it is."""
        return self.endpoint


def add_routes(app: FastAPI, *, has_docs: bool) -> None:
    """Make the tables' endpoints routes of the application."""
    app.router.add_api_route(
        "/jobs/batch",
        guarded("/jobs/batch", batch.refuse_method),
        methods=["GET", "DELETE"],
        include_in_schema=False,
        response_model=None,
        route_class_override=DirectRoute,
    )
    for endpoint in (*ENDPOINTS, *_DOCS) if has_docs else ENDPOINTS:
        _add(app, endpoint)
    for endpoint in facade.ENDPOINTS:
        _add(app, endpoint)
    app.router.add_api_route(
        facade.REST,
        guarded(facade.REST, facade.rest),
        methods=list(facade.METHODS),
        include_in_schema=False,
        response_model=None,
        route_class_override=DirectRoute,
    )


def _add(app: FastAPI, endpoint: Endpoint) -> None:
    scope = scope_of(endpoint.method, endpoint.path)
    described = document(endpoint, scope, is_metered=(endpoint.method, endpoint.path) in METERED)
    handler = endpoint.handler
    if endpoint.tag in _STRICT and not endpoint.body:
        handler = _strict(handler, query_names(endpoint.parameters))
    app.router.add_api_route(
        endpoint.path,
        guarded(endpoint.path, handler),
        methods=[endpoint.method],
        name=endpoint.handler.__name__,
        summary=(endpoint.handler.__doc__ or "").split(".")[0],
        tags=[endpoint.tag],
        status_code=endpoint.answers[0],
        responses=described.responses,
        openapi_extra=described.extra,
        response_class=Response,
        response_model=None,
        route_class_override=DirectRoute,
    )


def _strict(handler: Handler, names: tuple[str, ...]) -> Handler:
    """The handler behind the check that the query has no other parameters than these."""

    @wraps(handler)
    async def checked(request: Request) -> Response:
        query.check_names(request, names)
        return await handler(request)

    return checked


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """Every method that the path of this request takes."""
    matching = [route for route in app.router.routes if route.matches(scope)[0] is not Match.NONE]
    described = [route for route in matching if _takes_its_methods(app, route)]
    literal = [route for route in described if getattr(route, "path", "") == scope["path"]]
    methods = {"OPTIONS"}.union(*(getattr(route, "methods", None) or set() for route in literal or described))
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


def _takes_its_methods(app: FastAPI, route: BaseRoute) -> bool:
    """Whether it is there to answer, rather than to refuse: what the document describes, and the document's own."""
    return getattr(route, "include_in_schema", False) or getattr(route, "path", "") == app.openapi_url
