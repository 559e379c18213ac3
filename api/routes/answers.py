"""Answers that are not problems: JSON, and a job as it is now with the headers that clients steer by."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.services import Services
from jobs import view
from jobs.outputs import inline_output
from jobs.store import Inspection


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain data as JSON."""
    return Response(orjson.dumps(content), status, headers, "application/json")


async def job_response(
    services: Services, found: Inspection, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """The job object with its ETag; while it is not done, with the pause that a polling client should make."""
    job = found.job
    every = {"ETag": view.etag(job), **({} if job.state.is_terminal else {"Retry-After": "1"}), **(headers or {})}
    return json_response(await job_object(services, found), status, every)


async def job_object(services: Services, found: Inspection) -> dict[str, Any]:
    """The job object, for `orjson`, with the output where it is small enough; raises StoreError."""
    output, is_omitted = await inline_output(services.store, found, services.settings.inline_output_bytes)
    lanes = services.catalog.lanes(found.job.request.model)
    return view.job_object(found, lanes, output, is_omitted=is_omitted)


def is_unchanged(request: Request, etag: str) -> bool:
    """Whether the client has this state already, by If-None-Match; the comparison is weak, as RFC 9110 wants it."""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    strong = etag.removeprefix("W/")
    return known.strip() == "*" or any(part.strip().removeprefix("W/") == strong for part in known.split(","))


def not_modified(etag: str) -> Response:
    """304: what the client has is current."""
    return Response(status_code=304, headers={"ETag": etag})
