"""The ASGI application: routes, what errors look like, and the layers around them.

It only puts the parts together; a request's way is in `api.routes`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from api import problems
from api.access_log import AccessLog
from api.envelope import Envelope
from api.openapi import COMPONENTS
from api.problems import Problem, ProblemCode
from api.refusal import refusal
from api.routes import add_routes, allowed_methods
from api.services import Services
from api.settings import ApiSettings
from api.shortcut import Shortcut
from jobs.codec import UnknownVersion
from jobs.connection import StoreError, StoreUnavailable
from jobs.store import JobStore

_EXPOSED_HEADERS: Final = (
    "ETag",
    "Idempotent-Replayed",
    "Inference-Header-Content-Length",
    "Link",
    "Location",
    "Preference-Applied",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-Job-Id",
    "X-Request-Id",
)

log = structlog.get_logger(__name__)


def create_app(settings: ApiSettings, store: JobStore) -> FastAPI:
    """The application over a store, which it closes at its end. Its lifespan must run, or it knows no models."""
    services = Services(settings, store)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with services.running():
            yield

    app = FastAPI(
        title="inferq",
        summary="A durable job queue in front of NVIDIA Triton Inference Server",
        version=product_version(),
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if settings.docs else None,
    )
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]  # FastAPI's own way to extend it
    app.state.services = services
    add_routes(app, has_docs=settings.docs)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(StoreError, _on_store_error)
    app.add_exception_handler(UnknownVersion, _on_newer_record)
    app.add_exception_handler(HTTPException, _on_http_exception)
    layers: ASGIApp = Shortcut(ExceptionMiddleware(app.router, handlers=app.exception_handlers), owner=app)
    if settings.allow_origins:
        layers = CORSMiddleware(
            layers,
            allow_origins=settings.allow_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=_EXPOSED_HEADERS,
            max_age=3600,
        )
    logs_requests = settings.access_log and settings.log_level in ("DEBUG", "INFO")
    access_log = AccessLog() if logs_requests else None
    # In place of the layers that FastAPI would build, which these handlers have no use for.
    app.middleware_stack = Envelope(layers, access_log=access_log, measures=services.measures)
    return app


def product_version() -> str:
    """The installed version, or 0 when the product runs from a folder without having been installed."""
    try:
        return version("inferq")
    except PackageNotFoundError:
        return "0"


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with what keys are."""
    document = FastAPI.openapi(app)
    document.setdefault("components", {}).update(COMPONENTS)
    return document


async def _on_problem(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, Problem)
    return refusal(request.scope, exc)


async def _on_store_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, StoreError)
    if not isinstance(exc, StoreUnavailable):
        log.warning("the store refused a call", error=str(exc), request_id=request.state.request_id)
    return refusal(request.scope, problems.from_store(exc))


async def _on_newer_record(request: Request, exc: Exception) -> Response:
    """While a new version is being rolled out, old processes meet records that only new ones can read."""
    problem = Problem(ProblemCode.STORE_UNAVAILABLE, "A newer version of this server wrote this job. Ask again.")
    return refusal(request.scope, problem)


async def _on_http_exception(request: Request, exc: Exception) -> Response:
    """What the router itself refuses: unknown paths, and methods that a path does not take."""
    assert isinstance(exc, HTTPException)
    if exc.status_code != 405:
        return refusal(request.scope, Problem(ProblemCode.NOT_FOUND, "This path leads nowhere."))
    allowed = ", ".join(allowed_methods(request.app, request.scope))
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"Allow": allowed})
    problem = Problem(ProblemCode.METHOD_NOT_ALLOWED, f"This path takes {allowed}.", headers={"Allow": allowed})
    return refusal(request.scope, problem)
