"""`POST /v2/models/{name}/infer`: a job like any other, whose end the call waits for unless it prefers not to.

It owns that a call which nobody waits for any more is canceled, and that one which succeeded leaves nothing behind.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import Any, Final

import orjson
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from api import compression, problems
from api.body import RequestHeaders, body_unread, read_encoded_body
from api.facade import errors
from api.facade.answer import Answer, infer_answer
from api.facade.request import InferRequest, read_infer, version_name
from api.hangup import has_half_closed
from api.intake.assemble import build, fingerprint_of
from api.intake.limits import IntakeLimits
from api.intake.submission import INLINE_DOCUMENT_BYTES, INLINE_UPLOAD_BYTES, idempotency_key_of, work
from api.intake.validate import check_served
from api.longpoll import follow
from api.negotiation import prefers_async
from api.problems import Problem, ProblemCode
from api.routes.access import caller, known_model, services, tenant
from api.routes.answers import job_response
from api.routes.submit import fresh, intake_limits, refuse, refuse_if_full
from api.sending import holding, sent
from api.services import Services
from jobs import view
from jobs.connection import StoreError
from jobs.errors import ErrorCode, JobError
from jobs.outputs import split
from jobs.record import Job
from jobs.registry import LaneState
from jobs.spec import ModelSpec
from jobs.state import State
from jobs.store import Inspection, Submission, Submitted, new_job_id

_RESULT_SECONDS: Final = 60
"""How long the result of a call is kept that nobody fetched, since the api died before it answered."""

_LEFT: Final = (
    "The client closed its side of the connection while the call waited, which counts as hanging up. Keep it open, or "
    "prefer respond-async."
)
_SLACK_SECONDS: Final = 5.0
_JOB_HEADER: Final = "X-Job-Id"

log = logging.getLogger(__name__)


async def infer(request: Request) -> Response:
    """The model's answer once the job is done, or 202 and the job where the request prefers `respond-async`."""
    shared = services(request)
    refuse_if_full(shared)
    headers = RequestHeaders(request.scope)
    now_ms = time.time_ns() // 1_000_000
    is_async = prefers_async(request.headers.getlist("prefer"))
    with body_unread():
        model = await known_model(request, request.path_params["name"])
        version = version_name(request.path_params.get("version", ""))
        check_served(model, version)
        model = model.of_version(version)
        if model.decoupled and not is_async:
            raise Problem(
                ProblemCode.NOT_SUPPORTED,
                f"Model '{model.name}' answers with any number of responses (decoupled), and this call gives one; "
                "prefer respond-async, or post a job.",
            )
        key = idempotency_key_of(headers)
    limits = intake_limits(request)
    asked, is_quick = await _read(request, headers, model, limits)
    options = {"model_version": version} | _options(asked, shared, is_async=is_async)
    draft = replace(asked.draft, options=options)
    job, payload = await work(is_quick, build, draft, model, limits, now_ms)
    fingerprint = fingerprint_of(job, draft, payload) if key else ""
    submission = Submission(new_job_id(), tenant(request), job, payload, key, fingerprint)
    reply = await shared.submit(submission)
    refuse(shared, reply, submission)
    job_id = reply.job_id
    if is_async:
        stored = (
            fresh(submission, reply.created_ms)
            if reply.word is Submitted.OK
            else await shared.look(job_id, submission.tenant)
        )
        return await _accepted(request, stored, is_new=reply.word is Submitted.OK)
    return await _answered(request, shared, submission, job_id, asked)


async def _read(
    request: Request, headers: RequestHeaders, model: ModelSpec, limits: IntakeLimits
) -> tuple[InferRequest, bool]:
    """What is asked, and whether it is so small that working on it needs no thread."""
    with body_unread():
        coding = compression.coding_of(headers.one(b"content-encoding"))
        header_length = headers.one(b"inference-header-content-length")
    most = limits.max_body_bytes if header_length else min(limits.max_body_bytes, limits.max_json_bytes)
    body = await read_encoded_body(request, headers, max_bytes=most, grace_seconds=limits.body_grace_seconds)
    if coding:
        body = await work(len(body) < INLINE_DOCUMENT_BYTES // 8, compression.expanded, body, coding, most)
    is_quick = len(body) <= (INLINE_UPLOAD_BYTES if header_length else INLINE_DOCUMENT_BYTES)
    return await work(is_quick, read_infer, body, header_length, model, limits), is_quick


def _options(asked: InferRequest, shared: Services, *, is_async: bool) -> dict[str, Any]:
    """A call that waits hears of a failure at once, and does not wait in the queue beyond its bound."""
    seconds = asked.queue_seconds
    if is_async:
        return {} if seconds is None else {"queue_ttl_seconds": seconds}
    return {
        "queue_ttl_seconds": seconds or shared.settings.call_queue_seconds,
        "max_failures": 1,
        "result_ttl_seconds": _RESULT_SECONDS,
    }


async def _accepted(request: Request, stored: Inspection | None, *, is_new: bool) -> Response:
    if stored is None:
        raise Problem(ProblemCode.UNKNOWN_JOB, "The first job of this key was deleted this very moment.")
    headers = {"Location": f"/jobs/{stored.job.id}", "Preference-Applied": "respond-async"}
    headers |= {} if is_new else {"Idempotent-Replayed": "true"}
    return await job_response(request, stored, 202, headers, is_submitters=True)


async def _answered(
    request: Request, shared: Services, submission: Submission, job_id: str, asked: InferRequest
) -> Response:
    """Wait for the end and show it. Whatever ends the wait before that cancels the job."""
    wanted = submission.request
    bound = (wanted.queue_ttl_ms + wanted.timeout_ms) / 1000 + _SLACK_SECONDS
    is_done = False
    try:
        found = await follow(shared, request, job_id, caller(request), bound)
        is_done = found is None or found.job.state.is_terminal
    finally:
        if not is_done and not submission.idempotency_key:
            await asyncio.shield(_give_up(shared, job_id, submission.tenant))
    if found is None:
        raise Problem(ProblemCode.UNKNOWN_JOB, "The job of this call was deleted while it ran.")
    if not is_done:
        if shared.waiters.is_quiet:
            raise Problem(
                ProblemCode.SHUTTING_DOWN, "The server is shutting down; the call was canceled. Send it again."
            )
        if has_half_closed(request.scope):
            return _failed(found.job, JobError(ErrorCode.CANCELED, _LEFT))
        return _failed(found.job, JobError(ErrorCode.ENGINE_TIMEOUT, "The model has not answered in time."))
    if found.job.state is not State.SUCCEEDED:
        return _failed(found.job, _error(shared, found.job, asked))
    try:
        response = await _succeeded(request, shared, found, asked)
    except (Problem, StoreError) as exc:
        raise _kept(found.job, exc) from None
    if not submission.idempotency_key:
        response.background = BackgroundTask(_forget, shared, job_id, submission.tenant)
    return response


async def _succeeded(request: Request, shared: Services, found: Inspection, asked: InferRequest) -> Response:
    job = found.job
    with holding(shared.results, job.outcome) as hold:
        payload = await shared.store.output(job)
        if payload is None or job.outcome is None:
            return _failed(job, JobError(ErrorCode.LOST, "The result is gone from the store."))
        is_quick = len(payload) <= INLINE_DOCUMENT_BYTES
        answer: Answer = await work(is_quick, infer_answer, job, split(job.outcome.outputs, payload), asked.wanted)
        headers = {_JOB_HEADER: job.id, "Vary": "Accept-Encoding"}
        if answer.header_length is not None:
            headers["Inference-Header-Content-Length"] = str(answer.header_length)
        coding = compression.coding_for(", ".join(request.headers.getlist("accept-encoding")))
        parts = answer.parts
        if coding:
            parts = [await work(is_quick, compression.compressed, b"".join(parts), coding)]
            headers["Content-Encoding"] = coding
        media_type = "application/json" if answer.header_length is None else "application/octet-stream"
        response = sent(parts, headers, media_type)
        hold.hand_over(response)
    return response


def _kept(job: Job, exc: Problem | StoreError) -> Problem:
    """Why the answer can't be had now, although the job has run: its result can be asked for by itself."""
    problem = problems.from_store(exc) if isinstance(exc, StoreError) else exc
    problem.detail += f" The call has run, and its result is kept for a while: GET /jobs/{job.id}/result."
    problem.headers[_JOB_HEADER] = job.id
    return problem


def _failed(job: Job, error: JobError) -> Response:
    content, status, headers = errors.failure(error, {_JOB_HEADER: job.id})
    if status == 503:
        headers = {**headers, "Retry-After": "2"}
    return Response(orjson.dumps(content), status, headers, errors.MEDIA_TYPE)


def _error(shared: Services, job: Job, asked: InferRequest) -> JobError:
    """Why the job failed. One that nobody took because nobody could says so, rather than that it took too long."""
    if job.state is State.EXPIRED and not _is_served(shared, job.request.model):
        return JobError(ErrorCode.ENGINE_UNAVAILABLE, "No worker with a connection to the engine serves the model.")
    if job.state is State.EXPIRED:
        bound = "its `timeout`" if asked.queue_seconds else f"{job.request.queue_ttl_ms / 1000:g} seconds"
        return JobError(ErrorCode.EXPIRED, f"No worker took it within {bound}.")
    error = view.job_error(job)
    assert error is not None, "a job that ended otherwise than by success says why"
    return error


def _is_served(shared: Services, model: str) -> bool:
    return any(lane.state is LaneState.READY for lane in shared.catalog.lanes(model))


async def _give_up(shared: Services, job_id: str, owner: str) -> None:
    with contextlib.suppress(StoreError):
        await shared.store.cancel(job_id, owner)


async def _forget(shared: Services, job_id: str, owner: str) -> None:
    """A call that was answered leaves nothing; where this fails, the record goes when its time is up."""
    try:
        await shared.store.delete(job_id, owner, force=False)
    except StoreError as exc:
        log.debug("the job of an answered call stays for its time: %s", exc)
