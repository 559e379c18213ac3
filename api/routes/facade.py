"""Every path of the façade.

It owns the table and what is refused; what a call does is in `api.routes.v2` and `api.routes.infer`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from api.endpoint import Endpoint
from api.problems import Problem, ProblemCode
from api.routes import infer, v2

_MODEL: Final = "/v2/models/{name}"
_VERSION: Final = f"{_MODEL}/versions/{{version}}"
_READING: Final = (200, 404, 503)
_TELLING: Final = (200, 400, 503)
_INFERRING: Final = (200, 202, 400, 404, 408, 413, 415, 499, 500, 501, 503, 504)
_INFER_PARAMETERS: Final = ("prefer-async", "idempotency-key", "header-length", "content-encoding", "accept-encoding")

ENDPOINTS: Final = (
    Endpoint("GET", "/v2", v2.server, "facade", (200,), (), ((200, "ServerMetadata"),)),
    Endpoint("GET", "/v2/health/live", v2.live, "facade", (200,), (), ((200, "yes"),)),
    Endpoint("GET", "/v2/health/ready", v2.ready, "facade", (200, 400), (), ((200, "yes"),)),
    Endpoint("GET", "/v2/models/stats", v2.statistics, "facade", (200, 503), (), ((200, "Statistics"),)),
    *(
        endpoint
        for path, names in ((_MODEL, ("name",)), (_VERSION, ("name", "version")))
        for endpoint in (
            Endpoint("GET", path, v2.metadata, "facade", _READING, names, ((200, "ModelMetadata"),)),
            Endpoint(
                "GET", f"{path}/config", v2.config, "facade", (200, 400, 404, 503), names, ((200, "ModelConfig"),)
            ),
            Endpoint("GET", f"{path}/ready", v2.model_ready, "facade", _TELLING, names, ((200, "yes"),)),
            Endpoint("GET", f"{path}/stats", v2.statistics, "facade", _TELLING, names, ((200, "Statistics"),)),
            Endpoint(
                "POST",
                f"{path}/infer",
                infer.infer,
                "facade",
                _INFERRING,
                (*names, *_INFER_PARAMETERS),
                ((200, "infer"), (202, "job")),
                "infer",
            ),
        )
    ),
    Endpoint(
        "POST", "/v2/repository/index", v2.repository_index, "facade", (200, 400, 413), (), ((200, "Index"),), "index"
    ),
)
_GENERATE: Final = ("/generate", "/generate_stream")


class _Refused(NamedTuple):
    """Paths that Triton has and this façade refuses, whatever the method."""

    prefix: str
    handler: Callable[[Request], Any]


_REFUSED: Final = (
    _Refused("/v2/repository/", v2.refuse_control),
    _Refused("/v2/systemsharedmemory/", v2.refuse_shared_memory),
    _Refused("/v2/cudasharedmemory/", v2.refuse_shared_memory),
    _Refused("/v2/trace/", v2.refuse_settings),
    _Refused("/v2/logging", v2.refuse_settings),
)
_TRACE_OF_MODEL: Final = "/trace/setting"
REST: Final = "/v2/{rest:path}"
"""Everything else below /v2."""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


async def rest(request: Request) -> Response:
    """What Triton has and is refused here, another method than a path takes, or nothing at all."""
    path = request.url.path
    allowed = sorted(_methods(request))
    if allowed:
        headers = {"Allow": ", ".join(allowed)}
        raise Problem(ProblemCode.METHOD_NOT_ALLOWED, f"This path takes {', '.join(allowed)}.", headers=headers)
    for refused in _REFUSED:
        if path.startswith(refused.prefix):
            await refused.handler(request)
    if path.endswith(_GENERATE):
        await v2.refuse_generate(request)
    if path.endswith(_TRACE_OF_MODEL):
        await v2.refuse_settings(request)
    raise Problem(ProblemCode.NOT_FOUND, "This path leads nowhere.")


def _methods(request: Request) -> set[str]:
    """The methods that this path takes, were it asked for with one of them."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if getattr(route, "path", REST) != REST and route.matches(request.scope)[0] is Match.PARTIAL:
            found |= route.methods
    return found
