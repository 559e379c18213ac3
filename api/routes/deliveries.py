"""What became of a job's messages, and having them sent again."""

from enum import StrEnum
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from api import query
from api.problems import Problem, ProblemCode
from api.routes.access import caller, job_reference, services, tenant, unknown_job
from api.routes.answers import json_response
from api.services import Services
from jobs.deliveries import Attempt, Deliveries, Delivery, Redelivered
from jobs.record import Job
from jobs.view import timestamp
from jobs.webhook import DeliveryStatus

_REPLAY_SECONDS: Final = 2.0
"""How long one request goes on with a range replay, before it says where the next one begins."""


class Undelivered(StrEnum):
    """What a range replay can be about."""

    FAILED = "failed"
    PENDING = "pending"


async def list_deliveries(request: Request) -> Response:
    """A job's messages, oldest first, each with its attempts."""
    shared = services(request)
    job = await _job(request, shared)
    return json_response(await _shown(shared, job))


async def redeliver_job(request: Request) -> Response:
    """Send a job's messages again, delivered or not, from the start of the schedule. Who may read sees them, too."""
    shared = services(request)
    job = await _job(request, shared)
    deliveries = Deliveries(shared.store.connection)
    ids = [delivery.id for delivery in await deliveries.of_job(job.id)]
    if not ids:
        raise Problem(ProblemCode.NO_DELIVERIES, "The job has sent no message, so there is none to send again.")
    words = await deliveries.redeliver(job.tenant, ids)
    shown = await _shown(shared, job) if caller(request).may_read else {}
    return json_response({"redelivered": words.count(Redelivered.OK), "next_since": None, **shown}, 202)


async def redeliver_range(request: Request) -> Response:
    """Send all messages again that failed since an instant, or that wait for their next attempt."""
    since_ms = query.instant(request, "since") or 0
    wanted = DeliveryStatus(query.choice(request, "status", Undelivered) or Undelivered.FAILED)
    deliveries = Deliveries(services(request).store.connection)
    owner, count, ends_at = tenant(request), 0, monotonic() + _REPLAY_SECONDS
    next_ms: int | None = since_ms
    while next_ms is not None and monotonic() < ends_at:
        step = await deliveries.redeliver_since(owner, next_ms, wanted)
        count, next_ms = count + step.redelivered, step.next_since_ms
    next_since = None if next_ms is None else timestamp(next_ms)
    return json_response({"redelivered": count, "next_since": next_since}, 202)


async def _job(request: Request, shared: Services) -> Job:
    job_id, owner = job_reference(request)
    found = await shared.look(job_id, owner)
    if found is None:
        raise unknown_job()
    return found.job


async def _shown(shared: Services, job: Job) -> dict[str, Any]:
    url = job.request.webhook.url if job.request.webhook else None
    deliveries = await Deliveries(shared.store.connection).of_job(job.id)
    return {"deliveries": [_delivery(delivery, url) for delivery in deliveries]}


def _delivery(delivery: Delivery, url: str | None) -> dict[str, Any]:
    is_pending = delivery.status is DeliveryStatus.PENDING
    return {
        "id": delivery.id,
        "type": delivery.event.value,
        "url": url,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "created_at": timestamp(delivery.created_ms),
        "next_attempt_at": timestamp(delivery.next_ms) if is_pending else None,
        "log": [_attempt(attempt) for attempt in delivery.log],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "at": timestamp(attempt.at_ms),
        "status": attempt.status or None,
        "duration_seconds": attempt.duration_ms / 1000,
        "error": attempt.fault or None,
    }
