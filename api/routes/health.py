"""Whether this process answers, and whether it would accept a job now."""

from starlette.requests import Request
from starlette.responses import Response

from api.routes.access import services
from api.routes.answers import json_response


async def live(request: Request) -> Response:
    """The process answers; Redis, workers and engine may be away."""
    return json_response({"status": "live"})


async def ready(request: Request) -> Response:
    """Whether a job would be accepted now, and if not, why."""
    shared = services(request)
    reasons = shared.faults()
    body = {
        "status": "not_ready" if reasons else "ready",
        "reasons": reasons,
        "models": len(shared.catalog.models),
        "workers": len(shared.catalog.workers),
        "webhook_workers": len(shared.catalog.webhook_workers),
    }
    if reasons:
        return json_response(body, 503, {"Retry-After": "1"})
    return json_response(body)
