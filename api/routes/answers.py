"""Answers that are not problems: JSON, and a job as it is now with the headers that clients steer by."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.routes.access import caller, services
from api.services import Services
from jobs import view
from jobs.outputs import inline_output
from jobs.store import Inspection


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain data as JSON."""
    return Response(orjson.dumps(content), status, headers, "application/json")


async def job_response(
    request: Request,
    found: Inspection,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    is_submitters: bool = False,
) -> Response:
    """The job object with its ETag; while it is not done, with the pause that a polling client should make.

    Who may not read gets what names the job and its times, unless this request submitted it (`is_submitters`): they
    know what they sent, and what comes of it is what they asked for.
    """
    job = found.job
    every = {**({} if job.state.is_terminal else {"Retry-After": "1"}), **(headers or {})}
    if not (is_submitters or caller(request).may_read):
        return json_response(view.receipt(job), status, every)
    return json_response(await job_object(services(request), found), status, {"ETag": view.etag(job), **every})


async def job_object(shared: Services, found: Inspection) -> dict[str, Any]:
    """The job object, for `orjson`, with the output where it is small enough; raises StoreError."""
    output, is_omitted = await inline_output(shared.store, found, shared.settings.inline_output_bytes)
    lanes = shared.catalog.lanes(found.job.request.model)
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
