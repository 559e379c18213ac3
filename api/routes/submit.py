"""From a request to a stored job: nothing is answered with 202 before Redis has it."""

import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from api.body import body_unread
from api.intake import IntakeLimits, read_submission
from api.longpoll import follow
from api.negotiation import preferred_wait
from api.problems import Problem, ProblemCode
from api.routes.access import caller, known_model, services, tenant, unknown_job
from api.routes.answers import job_response
from api.services import Services
from jobs.connection import StoreError
from jobs.record import Job
from jobs.state import State
from jobs.store import Inspection, Submission, SubmitReply, Submitted


async def submit_job(request: Request) -> Response:
    """202 and the stored job, or 201 and the finished one where `Prefer: wait` gave it the time to finish."""
    shared = services(request)
    refuse_if_full(shared)
    now_ms = time.time_ns() // 1_000_000
    submission = await _read(request, shared, now_ms)
    reply = await shared.submit(submission)
    refuse(shared, reply, submission)
    is_new = reply.word is Submitted.OK
    headers = {"Location": f"/jobs/{reply.job_id}"}
    headers |= {} if is_new else {"Idempotent-Replayed": "true"}
    stored = fresh(submission, reply.created_ms) if is_new else await shared.look(reply.job_id, submission.tenant)
    if stored is None:
        raise unknown_job()  # the first job of this key was deleted this very moment
    seconds = preferred_wait(request.headers.getlist("prefer"), shared.settings.max_wait_seconds)
    if seconds is not None and not stored.job.state.is_terminal:
        stored = await _wait(request, shared, stored, seconds)
        if stored.job.state.is_terminal:
            headers["Preference-Applied"] = f"wait={seconds:g}"
    status = (201 if is_new else 200) if stored.job.state.is_terminal else 202
    return await job_response(request, stored, status, headers, is_submitters=True)


async def _read(request: Request, shared: Services, now_ms: int) -> Submission:
    find_model, limits = partial(known_model, request), intake_limits(request)
    return await read_submission(request, models=find_model, limits=limits, tenant=tenant(request), now_ms=now_ms)


def intake_limits(request: Request) -> IntakeLimits:
    """What this request may ask of this process."""
    shared = services(request)
    return shared.limits[tenant(request) in shared.settings.webhook_secrets]


def refuse_if_full(shared: Services) -> None:
    """Raise Problem where the server behind the store was found unfit to keep jobs, or has no memory for more of them.

    Before the body is read, so that it is not sent for nothing.
    """
    with body_unread():
        if shared.probe.fault:
            raise Problem(ProblemCode.STORE_UNAVAILABLE, "The store can't be used safely. The server's log says why.")
        shared.pressure.refuse_if_full()


def refuse(shared: Services, reply: SubmitReply, submission: Submission) -> None:
    """Raise Problem where the store did not take a submission."""
    if reply.word is Submitted.CONFLICT:
        raise Problem(
            ProblemCode.IDEMPOTENCY_CONFLICT,
            f"This Idempotency-Key belongs to job {reply.job_id}, whose request was another one.",
            job_id=reply.job_id,
        )
    if reply.word not in (Submitted.OK, Submitted.REPLAYED):
        raise shared.pressure.refusal(reply.word, submission)


async def _wait(request: Request, shared: Services, stored: Inspection, seconds: float) -> Inspection:
    """The job when it is done or the time is over. It is stored, so nothing that happens now makes that an error."""
    job = stored.job
    try:
        return await follow(shared, request, job.id, caller(request), seconds) or stored
    except (StoreError, Problem):
        return stored


def fresh(submission: Submission, created_ms: int) -> Inspection:
    """A job that was stored just now, by Redis' clock: its place in the queue is not known yet."""
    request = submission.request
    due_ms = max(created_ms, request.run_at_ms)
    job = Job(
        id=submission.id,
        tenant=submission.tenant,
        state=State.QUEUED,
        request=request,
        attempt=0,
        failures=0,
        redeliveries=0,
        created_ms=created_ms,
        due_ms=due_ms,
        queue_deadline_ms=due_ms + request.queue_ttl_ms,
        started_ms=0,
        finished_ms=0,
        outcome=None,
    )
    return Inspection(job, rank=-1, depth=0, now_ms=created_ms)
