"""What a client can ask about a job that exists: look, wait, cancel, forget, list."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from api import query
from api.longpoll import follow
from api.problems import Problem, ProblemCode
from api.routes.access import caller, job_reference, services, tenant, unknown_job
from api.routes.answers import is_unchanged, job_response, json_response, not_modified
from jobs import view
from jobs.listing import CursorError, list_jobs
from jobs.record import Job
from jobs.state import State
from jobs.store import Canceled, Deleted

_DEFAULT_PAGE = 50
_LARGEST_PAGE = 200


async def read_job(request: Request) -> Response:
    """The job as it is; with `wait`, once it is done or, given `If-None-Match`, once it has changed."""
    job_id, owner = job_reference(request)
    shared = services(request)
    seconds = query.seconds(request, "wait", shared.settings.max_wait_seconds)
    if seconds is None:
        found = await shared.look(job_id, owner)
    else:
        knows_a_state = "if-none-match" in request.headers

        def is_news(job: Job) -> bool:
            return job.state.is_terminal or (knows_a_state and not is_unchanged(request, view.etag(job)))

        found = await follow(shared, request, job_id, caller(request), seconds, is_news)
    if found is None:
        raise unknown_job()
    etag = view.etag(found.job)
    if is_unchanged(request, etag):
        return not_modified(etag)
    return await job_response(request, found)


async def cancel_job(request: Request) -> Response:
    """The canceled job. 202 when a worker was running it: that worker is told, and what it still makes is dropped."""
    job_id, owner = job_reference(request)
    shared = services(request)
    word = await shared.store.cancel(job_id, owner)
    found = await shared.look(job_id, owner) if word is not Canceled.NOT_FOUND else None
    if found is None:
        raise unknown_job()
    return await job_response(request, found, 202 if word is Canceled.STOPPING else 200)


async def delete_job(request: Request) -> Response:
    """Nothing is left of the job: record, input, output. One that is not done is only deleted with `force`."""
    job_id, owner = job_reference(request)
    force = query.truth(request, "force")
    word = await services(request).store.delete(job_id, owner, force=force)
    if word is Deleted.NOT_FOUND:
        raise unknown_job()
    if word is Deleted.NOT_DONE:
        raise Problem(ProblemCode.NOT_DONE, "The job is not done. Cancel it first, or delete it with ?force=true.")
    return Response(status_code=204)


async def list_page(request: Request) -> Response:
    """The tenant's jobs, newest first, without outputs; `Link` leads to the next page."""
    status = query.choice(request, "status", State)
    model = query.text(request, "model")
    limit = query.whole(request, "limit", _DEFAULT_PAGE, _LARGEST_PAGE)
    connection = services(request).store.connection
    try:
        page = await list_jobs(
            connection,
            tenant(request),
            limit=limit,
            cursor=query.text(request, "cursor"),
            state=status,
            model=model,
        )
    except CursorError:
        raise query.invalid("cursor", "must be the next_cursor of a page") from None
    body = {"jobs": [view.summary(job) for job in page.jobs], "next_cursor": page.next_cursor}
    if page.next_cursor is None:
        return json_response(body)
    following = {"status": status, "model": model, "limit": limit, "cursor": page.next_cursor}
    link = urlencode({name: value for name, value in following.items() if value is not None})
    return json_response(body, 200, {"Link": f'</jobs?{link}>; rel="next"'})
