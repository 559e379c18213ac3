"""`GET /jobs/{id}/events`: a snapshot, each change, the end, heartbeats, and what a client that comes back gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI

from api.app import create_app
from jobs.apikeys import ApiKeys
from jobs.registry import Registry
from jobs.store import JobStore
from tests.api.harness import MODEL, Api, Backend, api_settings, floats, identity_spec, open_hand, running_api, until
from tests.support.stores import a_submission

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Event:
    """One event; a comment has only its text."""

    name: str = ""
    id: str = ""
    data: dict[str, Any] | None = None
    comment: str = ""


class Stream:
    """An open stream: the application is spoken to directly, for httpx buffers what an ASGI application sends."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.hang_up = asyncio.Event()
        self._text = ""
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            if message.get("body"):
                self._arrived.put_nowait(message["body"])
            if not message.get("more_body"):
                self._arrived.put_nowait(None)

    async def receive(self) -> dict[str, Any]:
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def next(self) -> Event | None:
        """The next event or comment, None at the end."""
        async with asyncio.timeout(10):
            while "\n\n" not in self._text:
                piece = await self._arrived.get()
                if piece is None:
                    return None
                self._text += piece.decode()
        block, _, self._text = self._text.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "retry" in fields:
            return await self.next()
        data = json.loads(fields["data"]) if "data" in fields else None
        return Event(fields.get("event", ""), fields.get("id", ""), data, fields.get("", ""))

    async def rest(self) -> list[Event]:
        """All events until the end."""
        return [event async for event in self._events()]

    async def _events(self) -> AsyncIterator[Event]:
        while (event := await self.next()) is not None:
            yield event


@asynccontextmanager
async def streaming(app: FastAPI, job_id: str, **headers: str) -> AsyncIterator[Stream]:
    """The stream of a job's events; leaving hangs up, and the application must let go at once."""
    stream = Stream()
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
        "path": f"/jobs/{job_id}/events", "raw_path": b"", "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("api", 80), "state": {},
    }  # fmt: skip
    task = asyncio.create_task(app(scope, stream.receive, stream.send))
    try:
        yield stream
    finally:
        stream.hang_up.set()
        await asyncio.wait_for(task, 10)


@asynccontextmanager
async def running_app(backend: Backend, **settings: Any) -> AsyncIterator[FastAPI]:
    """An application with its loops, to be spoken to as a server would."""
    merged = api_settings(backend, **settings)
    app = create_app(merged, JobStore(backend.connect(merged), merged))
    await Registry(app.state.services.store.connection).publish_models([identity_spec()])
    async with app.state.services.running():
        yield app


def statuses(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.name, event.data["status"]) for event in events if event.data]


async def test_a_jobs_whole_life_arrives_in_order_and_the_stream_ends_with_it(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    async with running_app(backend) as app, open_hand(backend) as hand, streaming(app, job_id) as stream:
        first = await stream.next()
        assert first is not None
        assert (first.name, first.data and first.data["status"]) == ("snapshot", "queued")
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        claimed = await hand.take()
        second = await stream.next()
        assert second is not None
        assert (second.name, second.data and second.data["status"]) == ("change", "in_progress")
        await hand.succeed(claimed, floats(1.0), is_inline=True)
        (last,) = await stream.rest()
        assert (last.name, last.data and last.data["output"]["y"]["data"]) == ("done", [1.0])
        assert len({first.id, second.id, last.id}) == 3


async def test_a_job_that_has_ended_is_a_snapshot_and_the_end(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    await api.client.post(f"/jobs/{job_id}/cancel")
    async with running_app(backend) as app, streaming(app, job_id) as stream:
        assert statuses(await stream.rest()) == [("snapshot", "canceled"), ("done", "canceled")]


async def test_a_client_that_comes_back_to_another_api_goes_on_with_a_snapshot(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    async with running_app(backend) as here, running_app(backend) as there, open_hand(backend) as hand:
        async with streaming(here, job_id) as stream:
            seen = await stream.next()
            assert seen is not None
        claimed = await hand.take()
        async with streaming(there, job_id, last_event_id=seen.id) as stream:
            again = await stream.next()
            assert again is not None
            assert (again.name, again.data and again.data["status"]) == ("snapshot", "in_progress")
            await hand.succeed(claimed, floats(1.0))
            (last,) = await stream.rest()
        async with streaming(there, job_id, last_event_id=last.id) as stream:
            assert await stream.rest() == []
            assert stream.status == 204, "an EventSource comes back for ever unless it is told to stay away"


async def test_a_silent_stream_shows_that_it_lives(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    async with running_app(backend, heartbeat_seconds=0.05) as app, streaming(app, job_id) as stream:
        assert [event and event.name for event in [await stream.next()]] == ["snapshot"]
        assert [event and event.comment for event in [await stream.next(), await stream.next()]] == ["still here"] * 2


async def test_a_client_that_hangs_up_leaves_no_waiter(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    async with running_app(backend) as app:
        async with streaming(app, job_id) as stream:
            await stream.next()
            assert len(app.state.services.waiters) == 1
        assert len(app.state.services.waiters) == 0


async def test_a_process_that_stops_ends_its_streams_without_an_end_of_the_job(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    async with running_app(backend) as app, streaming(app, job_id) as stream:
        await stream.next()
        app.state.services.waiters.quiet()
        assert await stream.rest() == []


async def test_a_deleted_job_ends_its_streams(backend: Backend, api: Api) -> None:
    job_id = await api.submit()
    async with running_app(backend) as app, streaming(app, job_id) as stream:
        await stream.next()
        assert (await api.client.delete(f"/jobs/{job_id}?force=true")).status_code == 204
        assert statuses(await stream.rest()) in ([], [("done", "canceled")])


async def test_a_revoked_key_ends_its_streams_and_nobody_elses(backend: Backend) -> None:
    async with running_app(backend) as app, open_hand(backend) as hand:
        api_keys = ApiKeys(hand.store.connection)
        headers = {name: {"authorization": f"Bearer {await api_keys.create(name, tenant='t')}"} for name in "ab"}
        submission = a_submission(MODEL, tenant="t")
        await hand.store.submit(submission)
        await app.state.services.gate.refresh()
        async with (
            streaming(app, submission.id, **headers["a"]) as ended,
            streaming(app, submission.id, **headers["b"]) as going_on,
        ):
            for stream in (ended, going_on):
                assert (await stream.next() or Event()).name == "snapshot"
            await api_keys.revoke("a")
            async with asyncio.timeout(5):  # a second, and what a busy machine adds
                assert await ended.rest() == []
            await hand.take()
            assert statuses([await going_on.next() or Event()]) == [("change", "in_progress")]
        async with streaming(app, submission.id, **headers["a"]) as again:
            await until(lambda: again.status != 0)
            assert again.status == 401


async def test_there_are_no_events_of_an_unknown_job(api: Api) -> None:
    for job_id in ("0" * 32, "nonsense"):
        assert (await api.get(f"/jobs/{job_id}/events")).status_code == 404


async def test_a_stream_outlives_an_outage_of_redis(start_valkey: Callable[..., Any]) -> None:
    server = start_valkey()
    backend = Backend(server.url)
    async with running_api(backend, models=[identity_spec()]) as api, running_app(backend) as app:
        job_id = await api.submit()
        async with streaming(app, job_id) as stream:
            await stream.next()
            await asyncio.to_thread(server.stop)
            await until(lambda: app.state.services.catalog.fault() is not None)
            await asyncio.to_thread(server.start)
            async with open_hand(backend) as hand:
                await hand.succeed(await hand.take(), floats(1.0))
            assert ("done", "succeeded") in statuses(await stream.rest())
