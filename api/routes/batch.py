"""`POST /jobs/batch`: many jobs in one request, each stored or refused by itself.

It owns what a client hears about each of them; how a body is cut into jobs is the business of `api.intake.batch`.
"""

import asyncio
import time
from functools import partial
from typing import Any, NamedTuple, NoReturn

from starlette.requests import Request
from starlette.responses import Response

from api import problems
from api.intake import read_batch
from api.problems import Problem, ProblemCode
from api.routes.access import known_model, services, tenant, unknown_job
from api.routes.answers import job_object, json_response
from api.routes.submit import fresh, intake_limits, refuse, refuse_if_full
from api.services import Services
from jobs.connection import StoreError
from jobs.store import Submission, SubmitReply, Submitted


class _Entry(NamedTuple):
    """What became of one job, and after how many seconds it may have more luck; 0 where waiting does not help."""

    shown: dict[str, Any]
    retry_after_seconds: int = 0


async def submit_batch(request: Request) -> Response:
    """The jobs in their order, each stored or with the problem that it has: 202 if all are stored, else 207.

    With `Retry-After` where some of the others may be stored later; sent again with its key, the rest stays as it is.
    """
    shared = services(request)
    refuse_if_full(shared)
    now_ms = time.time_ns() // 1_000_000
    items = await read_batch(
        request,
        models=partial(known_model, request),
        limits=intake_limits(request),
        tenant=tenant(request),
        now_ms=now_ms,
    )
    submissions = [item for item in items if isinstance(item, Submission)]
    ids = [submission.id for submission in submissions]
    replies = dict(zip(ids, await shared.submit_all(submissions), strict=True))
    if submissions and all(isinstance(reply, StoreError) for reply in replies.values()):
        raise next(reply for reply in replies.values() if isinstance(reply, StoreError))
    entries = await asyncio.gather(*(_entry(shared, item, replies) for item in items))
    accepted = sum("job" in entry.shown for entry in entries)
    body = {"accepted": accepted, "refused": len(entries) - accepted, "jobs": [entry.shown for entry in entries]}
    pause = max(entry.retry_after_seconds for entry in entries)
    headers = {"Retry-After": str(pause)} if pause else {}
    return json_response(body, 202 if accepted == len(entries) else 207, headers)


async def refuse_method(request: Request) -> NoReturn:
    """The name would pass for a job's id."""
    raise Problem(ProblemCode.METHOD_NOT_ALLOWED, "This path takes POST.", headers={"Allow": "OPTIONS, POST"})


async def _entry(shared: Services, item: Submission | Problem, replies: dict[str, SubmitReply | StoreError]) -> _Entry:
    """What one job of the batch came to: the status that it would have had by itself, and the job or the problem."""
    try:
        if isinstance(item, Problem):
            raise item
        return await _stored(shared, item, replies[item.id])
    except Problem as problem:
        return _refused(problem)
    except StoreError as exc:
        return _refused(problems.from_store(exc))


def _refused(problem: Problem) -> _Entry:
    return _Entry({"status": problem.status, "problem": problem.to_plain()}, problem.retry_after_seconds)


async def _stored(shared: Services, item: Submission, reply: SubmitReply | StoreError) -> _Entry:
    if isinstance(reply, StoreError):
        raise reply
    refuse(shared, reply, item)
    is_new = reply.word is Submitted.OK
    found = fresh(item, reply.created_ms) if is_new else await shared.look(reply.job_id, item.tenant)
    if found is None:
        raise unknown_job()
    status = 200 if found.job.state.is_terminal else 202
    return _Entry({"status": status, "replayed": not is_new, "job": await job_object(shared, found)})
