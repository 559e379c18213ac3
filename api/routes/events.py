"""`GET /jobs/{job_id}/events`: a job's life as server-sent events, from any api process.

It owns the stream's order and its end; what a job looks like is `jobs.view`'s business.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.auth import Caller
from api.hangup import end_on_hang_up
from api.longpoll import next_look_seconds
from api.routes.access import JobReference, caller, job_reference, services, unknown_job
from api.routes.answers import job_object
from api.services import Services
from api.waiters import Watch
from jobs import view
from jobs.connection import StoreError
from jobs.store import Inspection

MEDIA_TYPE: Final = "text/event-stream"
_HEARTBEAT: Final = b": still here\n\n"
_RETRY_MS: Final = 1000
_AWAY_SECONDS: Final = 1.0


async def job_events(request: Request) -> Response:
    """The job as it is (`snapshot`), as it is after each change (`change`), and last as it ended (`done`)."""
    reference = job_reference(request)
    shared = services(request)
    found = await shared.look(*reference)
    if found is None:
        raise unknown_job()
    if found.job.state.is_terminal and request.headers.get("last-event-id") == event_id(found):
        return Response(status_code=204)  # the client has seen the end, and this is how it is told to stay away
    return _EventStream(shared, reference, caller(request))


def event_id(found: Inspection) -> str:
    """Says which state an event told of, the same in every process."""
    return view.etag(found.job).removeprefix("W/").strip('"')


class _EventStream(Response):
    """The stream; nothing of it is left when the client hangs up."""

    media_type = MEDIA_TYPE

    def __init__(self, shared: Services, reference: JobReference, caller: Caller) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # proxies pass on each event as it comes
        del self.headers["content-length"]
        self._shared = shared
        self._reference = reference
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        with self._shared.waiters.watch(self._reference.job_id) as watch:
            hang_up = asyncio.create_task(end_on_hang_up(scope, receive, watch))
            try:
                async for piece in _pieces(self._shared, self._reference, self._caller, watch):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            finally:
                hang_up.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _pieces(shared: Services, reference: JobReference, caller: Caller, watch: Watch) -> AsyncIterator[bytes]:
    """Events until the job's end or the stream's; a revoked key ends it, an outage of Redis only makes a pause."""
    clock = asyncio.get_running_loop().time
    beat_seconds = shared.settings.heartbeat_seconds
    yield f"retry: {_RETRY_MS}\n\n".encode()
    told = ""
    next_beat = clock() + beat_seconds
    while not watch.has_ended() and shared.gate.still_admits(caller):
        try:
            found = await shared.look(*reference)
            events = [] if found is None or event_id(found) == told else await _events(shared, found, is_first=not told)
        except StoreError:
            pause = _AWAY_SECONDS
        else:
            if found is None:
                return  # deleted: there is nothing more to tell
            told = event_id(found)
            for event in events:
                yield event
                next_beat = clock() + beat_seconds
            if found.job.state.is_terminal:
                return
            pause = next_look_seconds(found)
        await watch.woken(max(min(pause, next_beat - clock()), 0.0))
        if clock() >= next_beat and not watch.has_ended():
            yield _HEARTBEAT
            next_beat = clock() + beat_seconds


async def _events(shared: Services, found: Inspection, *, is_first: bool) -> list[bytes]:
    """What there is to tell of a state that the client does not know: a first look at an ended job is two events."""
    names = [*(["snapshot"] if is_first else []), *(["done"] if found.job.state.is_terminal else [])] or ["change"]
    data = orjson.dumps(await job_object(shared, found))  # one line, for JSON text has no line ends
    return [f"event: {name}\nid: {event_id(found)}\ndata: ".encode() + data + b"\n\n" for name in names]
