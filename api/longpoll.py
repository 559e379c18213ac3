"""Waiting for news of a job on behalf of one request.

It owns when a wait ends; what is news is the caller's, and how often Redis is asked follows from the messages it sends.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from api.auth import Caller, unauthenticated
from api.hangup import end_on_hang_up
from api.services import Services
from jobs.record import Job
from jobs.state import State
from jobs.store import Inspection

_LOOK_AGAIN_SECONDS: Final = 5.0
"""A job that goes back to the queue is not announced, so those who wait for any change look now and then."""
_LATE_SECONDS: Final = 0.05


async def follow(
    services: Services,
    request: Request,
    job_id: str,
    caller: Caller,
    seconds: float,
    is_news: Callable[[Job], bool] = lambda job: job.state.is_terminal,
) -> Inspection | None:
    """The job as soon as `is_news`, and otherwise as it is after `seconds`; None where there is no such job.

    Ends early, with the job as it is, when the process stops; a client that hangs up frees everything at once. Raises
    Problem as soon as the caller would not be admitted any more.
    Raises StoreError when Redis does not answer at the moment that it is asked, but outlives outages in between.
    """
    clock = asyncio.get_running_loop().time
    ends_at = clock() + seconds
    with services.waiters.watch(job_id) as watch:
        found = await services.look(job_id, caller.tenant)
        if found is None or is_news(found.job) or watch.has_ended():
            return found
        hang_up = asyncio.create_task(end_on_hang_up(request.scope, request.receive, watch))
        try:
            while (left := ends_at - clock()) > 0:
                await watch.woken(min(left, next_look_seconds(found)))
                if watch.has_ended():
                    break
                if not services.gate.still_admits(caller):
                    raise unauthenticated()
                found = await services.look(job_id, caller.tenant)
                if found is None or is_news(found.job):
                    break
        finally:
            hang_up.cancel()
    return found


def next_look_seconds(found: Inspection) -> float:
    """When to look again without having been told: a queued job also ends by its deadline, silently."""
    if found.job.state is not State.QUEUED:
        return _LOOK_AGAIN_SECONDS
    return max(found.job.queue_deadline_ms - found.now_ms, 0) / 1000 + _LATE_SECONDS
