"""Both clients over real sockets: they carry out what the flows decide, and nothing else differs between them."""

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

from inferq.client import AsyncClient, Client, Job, NotFound, ServerUnreachable, WaitTimeout
from tests.support.scripted_http import HANG_UP, Answer, Seen, scripted_server

pytestmark = pytest.mark.anyio

ID = "0123456789abcdef" * 2
JOB = {"id": ID, "status": "queued", "done": False, "model": "m", "error": None}
DONE = {**JOB, "status": "succeeded", "done": True}
AWAY = Answer(503, {"code": "store_unavailable", "detail": "Try again."}, {"Retry-After": "0"})

Ask = Callable[[str, Callable[[Any], Any]], Awaitable[Any]]


async def ask_blocking(url: str, operation: Callable[[Any], Any]) -> Any:
    with Client(url) as client:
        return operation(client)


async def ask_awaiting(url: str, operation: Callable[[Any], Any]) -> Any:
    async with AsyncClient(url) as client:
        return await operation(client)


@pytest.fixture(params=[ask_blocking, ask_awaiting])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Runs an operation on either client."""
    chosen: Ask = request.param
    return chosen


async def test_a_submit_whose_answers_are_lost_is_sent_again_under_the_same_key(ask: Ask) -> None:
    with scripted_server([HANG_UP, AWAY, HANG_UP, Answer(202, JOB)]) as server:
        job: Job = await ask(server.url, lambda client: client.submit("m", b"bytes", priority="low"))
    assert job.id == ID
    assert len(server.seen) == 4
    assert len({(seen.headers["Idempotency-Key"], seen.body) for seen in server.seen}) == 1
    assert b"low" in server.seen[0].body


async def test_many_submits_whose_answers_are_lost_are_sent_again_under_the_same_key(ask: Ask) -> None:
    """B007."""
    stored = Answer(202, {"jobs": [{"status": 202, "replayed": False, "job": JOB}] * 2})
    items = [{"x": np.zeros(1)}, {"x": np.ones(1)}]
    with scripted_server([HANG_UP, AWAY, stored]) as server:
        jobs: list[Job] = await ask(server.url, lambda client: client.submit_many("m", iter(items), priority="low"))
        await ask(server.url, lambda client: client.submit_many("m", items, idempotency_key="mine"))
    assert [job.id for job in jobs] == [ID, ID]
    *first, last = server.seen
    assert len({(seen.headers["Idempotency-Key"], seen.body) for seen in first}) == 1
    assert {seen.path for seen in server.seen} == {"/jobs/batch"}
    assert last.headers["Idempotency-Key"] == "mine.0"


async def test_many_are_waited_for_over_no_more_connections_than_asked(ask: Ask) -> None:
    together, most, lock = 0, 0, threading.Lock()

    def done(seen: Seen) -> Answer:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.01)  # so that those that are asked at once overlap
        with lock:
            together -= 1
        return Answer(200, {**DONE, "id": seen.path[6:38]})

    ids = [f"{number:032x}" for number in range(40)]
    with scripted_server(done) as server:
        jobs: list[Job] = await ask(server.url, lambda client: client.wait_many(iter(ids), 30, connections=3))
    assert [job.id for job in jobs] == ids
    assert 1 < most <= 3


async def test_a_wait_for_many_ends_with_the_first_that_is_lost_and_is_no_longer_followed(ask: Ask) -> None:
    lost = "f" * 32

    def answered(seen: Seen) -> Answer:
        return Answer(404, {"code": "unknown_job"}) if lost in seen.path else Answer(200, JOB)

    with scripted_server(answered) as server:
        with pytest.raises(NotFound):
            await ask(server.url, lambda client: client.wait_many([ID, lost]))
        with pytest.raises(WaitTimeout):
            await ask(server.url, lambda client: client.wait_many([ID, ID], 0))


WAITS_FOR_A_LOST_JOB = """
import sys
from inferq.client import Client, NotFound
with Client(sys.argv[1]) as client:
    try:
        client.wait_many(["0" * 32, "f" * 32])
    except NotFound:
        print("lost")
"""


async def test_a_process_ends_although_others_are_still_asked_for() -> None:
    let_go = threading.Event()

    def answered(seen: Seen) -> Answer:
        if "f" * 32 in seen.path:
            return Answer(404, {"code": "unknown_job"})
        let_go.wait(60)
        return Answer(200, DONE)

    with scripted_server(answered) as server:
        try:
            command = [sys.executable, "-c", WAITS_FOR_A_LOST_JOB, server.url]
            ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=30)
        finally:
            let_go.set()
    assert (ended.returncode, ended.stdout) == (0, b"lost\n"), ended.stderr


async def test_a_refusal_among_the_jobs_that_are_waited_for_is_raised_before_anything_is_asked(ask: Ask) -> None:
    refused = NotFound(404, "unknown_model", "No", "Because.", members={})
    with scripted_server([Answer(200, DONE)]) as server:
        with pytest.raises(NotFound, match="Because"):
            await ask(server.url, lambda client: client.wait_many([ID, refused]))
        assert await ask(server.url, lambda client: client.wait_many([])) == []
    assert server.seen == []


async def test_two_submits_have_different_keys_unless_the_caller_names_one(ask: Ask) -> None:
    with scripted_server([Answer(202, JOB)]) as server:
        for key in (None, None, "mine"):
            await ask(server.url, partial(_submit, key))
    keys = [seen.headers["Idempotency-Key"] for seen in server.seen]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def _submit(key: str | None, client: Any) -> Any:
    return client.submit("m", b"x", idempotency_key=key)


async def test_a_wait_goes_on_through_outages_to_the_end_of_the_job(ask: Ask) -> None:
    with scripted_server([Answer(200, JOB), AWAY, HANG_UP, Answer(200, DONE)]) as server:
        job: Job = await ask(server.url, lambda client: client.wait(ID, 30))
    assert job.succeeded
    assert all(seen.path.startswith(f"/jobs/{ID}?wait=") for seen in server.seen)


async def test_a_server_that_is_not_there_is_named_when_patience_ends() -> None:
    with scripted_server([Answer()]) as server:
        pass
    client = Client(server.url, retry_seconds=0.3)
    with client, pytest.raises(ServerUnreachable, match=server.url):
        client.get(ID)


async def test_jobs_are_listed_page_by_page(ask: Ask) -> None:
    pages = [
        Answer(200, {"jobs": [JOB, DONE], "next_cursor": "c1"}),
        Answer(200, {"jobs": [], "next_cursor": "c2"}),
        Answer(200, {"jobs": [JOB], "next_cursor": None}),
    ]

    def listed(client: Client | AsyncClient) -> Any:
        jobs = client.list(status="queued", page_size=2)
        return list(jobs) if isinstance(jobs, Iterator) else collect(jobs)

    async def collect(jobs: AsyncIterator[Job]) -> list[Job]:
        return [job async for job in jobs]

    with scripted_server(pages) as server:
        jobs = await ask(server.url, listed)
    assert [job.status for job in jobs] == ["queued", "succeeded", "queued"]
    assert [seen.path for seen in server.seen] == [
        "/jobs?status=queued&limit=2",
        "/jobs?status=queued&limit=2&cursor=c1",
        "/jobs?status=queued&limit=2&cursor=c2",
    ]


async def test_the_other_calls_go_where_the_contract_says(ask: Ask) -> None:
    with scripted_server([Answer(200, DONE)]) as server:
        await ask(server.url, lambda client: client.cancel(ID))
        await ask(server.url, lambda client: client.delete(ID, force=True))
        await ask(server.url, lambda client: client.get(ID, wait=2))
        await ask(server.url, lambda client: client.model("m"))
        await ask(server.url, lambda client: client.result_json(ID))
    assert [(seen.method, seen.path) for seen in server.seen] == [
        ("POST", f"/jobs/{ID}/cancel"),
        ("DELETE", f"/jobs/{ID}?force=true"),
        ("GET", f"/jobs/{ID}?wait=2.000"),
        ("GET", "/models/m"),
        ("GET", f"/jobs/{ID}/result"),
    ]


async def test_an_api_key_is_sent_as_a_bearer_token() -> None:
    with scripted_server([Answer(200, DONE)]) as server, Client(server.url, "secret") as client:
        client.get(ID)
    assert server.seen[0].headers["Authorization"] == "Bearer secret"


async def test_no_proxy_is_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with scripted_server([Answer(200, DONE)]) as server:
        assert (await ask(server.url, lambda client: client.get(ID))).done


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", ""])
async def test_an_address_that_is_none_is_refused_when_the_client_is_made(url: str) -> None:
    with pytest.raises(ValueError, match="not the address of a server"):
        Client(url)


async def test_a_base_path_in_front_of_the_api_is_kept(ask: Ask) -> None:
    with scripted_server([Answer(200, DONE)]) as server:
        await ask(f"{server.url}/inference/", lambda client: client.get(ID))
    assert server.seen[0].path == f"/inference/jobs/{ID}"


def test_both_clients_have_the_same_operations_with_the_same_parameters() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(method).parameters == inspect.signature(getattr(AsyncClient, name)).parameters


async def test_what_httpx_itself_refuses_is_not_tried_again(ask: Ask) -> None:
    with scripted_server([Answer(202, JOB)]) as server, pytest.raises((httpx.HTTPError, ValueError)):
        await ask(server.url, lambda client: client.submit("m", b"x", idempotency_key="two\nlines"))
    assert server.seen == []
