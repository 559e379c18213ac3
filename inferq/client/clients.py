"""The two clients: what a caller holds, one that blocks and one that is awaited.

They own the connection and carry out what `inferq.client.flows` decides; nothing about the contract may stand here.
"""

from __future__ import annotations

import asyncio
import builtins
import ipaddress
import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

import httpx

from inferq.client import requests
from inferq.client.batches import blocks_of
from inferq.client.errors import InferqError, ProblemError
from inferq.client.flows import Flow, Flows, Page, Patience, Pause, Send
from inferq.client.job import Job
from inferq.client.requests import Options
from inferq.client.threads import side_by_side

if TYPE_CHECKING:
    from inferq.client.batches import Arrays
    from inferq.client.requests import Inputs

DEFAULT_URL: Final = "http://127.0.0.1:8080"
KEY_VARIABLE: Final = "INFERQ_API_KEY"
_PAGE: Final = 100

_MAX_CONNECTIONS: Final = 1000
"""Each job that is waited for occupies one."""
_WAITING: Final = 8
"""Connections that wait for many jobs, unless the caller says otherwise."""

Models = list[dict[str, Any]]
T = TypeVar("T")


class _Base:
    """What both clients are made of."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float,
        retry_seconds: float,
        first_contact_seconds: float | None,
    ) -> None:
        url = httpx.URL(base_url)
        api_key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"{base_url!r} is not the address of a server: http://HOST:PORT")
        first = retry_seconds if first_contact_seconds is None else first_contact_seconds
        self._flows = Flows(
            str(url).rstrip("/"), Patience(timeout, retry_seconds, first), time.monotonic, random.uniform
        )
        self._settings: dict[str, Any] = {
            "base_url": url,
            "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
            "limits": httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=20),
            "trust_env": not _is_loopback(url.host),  # no proxy leads back to this machine
        }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _request(http: httpx.Client | httpx.AsyncClient, step: Send) -> httpx.Request:
    call = step.call
    return http.build_request(
        call.method,
        call.path,
        params=call.params,
        headers=call.headers,
        content=call.content or None,
        timeout=step.timeout_seconds,
    )


class Client(_Base):
    """A server's jobs and models, blocking. Safe to share between threads; close it, or use it in a `with`.

    `api_key` is what `inferq keys create` printed; where it is not given, the environment's INFERQ_API_KEY.

    `timeout` bounds each step of one exchange (connect, send, answer). A server that does not answer, or answers that
    it can't now, is tried again for `retry_seconds`, at its own pace where it names one; `first_contact_seconds` says
    so for a server that never answered yet. A submit that is tried again never makes a second job.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        timeout: float = 30.0,
        *,
        retry_seconds: float = 30.0,
        first_contact_seconds: float | None = None,
    ) -> None:
        super().__init__(base_url, api_key, timeout, retry_seconds, first_contact_seconds)
        self._http = httpx.Client(**self._settings)

    def submit(
        self, model: str, inputs: Inputs, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """Submit a job and return as soon as it is stored.

        `inputs` is the model's one input or a mapping of its inputs by name: numpy arrays, a `Path` or open file,
        `bytes`, or a `str` as text; TypeError for anything else. Raises RequestRefused when the server would not run
        it, before there is a job.
        """
        return self._run(
            self._flows.submit(requests.submit(model, inputs, options, idempotency_key or uuid.uuid4().hex))
        )

    def submit_many(
        self, model: str, items: Iterable[Arrays], *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> builtins.list[Job | ProblemError]:
        """Submit many jobs of tensors in few requests; for each, in order, the job or the refusal that it met.

        Each item maps the model's inputs to numpy arrays; the options hold for all. What there is no room for is tried
        again like a `submit`. Raises TypeError and ValueError before anything is sent, and what `submit` raises where
        a whole request fails; blocks before that one are stored, and a call with the same `idempotency_key` and items
        finds their jobs rather than making them again.
        """
        blocks = blocks_of(model, items, options, idempotency_key or uuid.uuid4().hex)
        return self._run(self._flows.submit_many(blocks))

    def get(self, job_id: str | Job, *, wait: float = 0.0) -> Job:
        """The job now, or as soon as it is done within `wait` seconds (at most 60)."""
        return self._run(self._flows.get(_id(job_id), wait))

    def wait(self, job_id: str | Job, timeout: float | None = None) -> Job:
        """The job once it is done, however it ended; raises WaitTimeout after `timeout` seconds, None = never."""
        return self._run(self._flows.wait(_id(job_id), timeout))

    def wait_many(
        self, jobs: Iterable[str | Job | ProblemError], timeout: float | None = None, *, connections: int = _WAITING
    ) -> builtins.list[Job]:
        """The jobs in their order once all are done, over so many connections at most.

        Raises WaitTimeout where one is not done `timeout` seconds from now, and at once a refusal that stands among
        the jobs. The jobs go on, whatever is raised.
        """
        ids, begun_at = _ids(jobs), self._flows.now()
        waits = [partial(self._run, self._flows.wait(job_id, timeout, begun_at)) for job_id in ids]
        return side_by_side(waits, connections)

    def result(self, job_id: str | Job) -> dict[str, Any]:
        """Outputs by name: numpy arrays, bit for bit what the engine gave, or lists of `{label, index, score}`.

        Raises JobNotDone, JobFailed, or ResultExpired.
        """
        return self._run(self._flows.result(_id(job_id)))

    def result_json(self, job_id: str | Job) -> Mapping[str, Any]:
        """Outputs by name as JSON shows them, for people and logs: a number that is not finite is None there."""
        return self._run(self._flows.result_json(_id(job_id)))

    def cancel(self, job_id: str | Job) -> Job:
        """Cancel the job; harmless where it is done already. The returned job says how it stands."""
        return self._run(self._flows.cancel(_id(job_id)))

    def delete(self, job_id: str | Job, *, force: bool = False) -> None:
        """Forget the job with input and output; one that is not done only with `force`."""
        self._run(self._flows.delete(_id(job_id), force=force))

    def list(self, *, status: str | None = None, model: str | None = None, page_size: int = _PAGE) -> Iterator[Job]:
        """Jobs, newest first, without outputs; pages are fetched as the iteration needs them."""
        page = Page([], "")
        while page.next_cursor is not None:
            page = self._run(
                self._flows.page(status=status, model=model, limit=page_size, cursor=page.next_cursor or None)
            )
            yield from page.jobs

    def models(self) -> Models:
        """Every model with its inputs, outputs and queue, as the server describes it."""
        return self._run(self._flows.models())

    def model(self, name: str) -> dict[str, Any]:
        """One model as the server describes it; raises NotFound."""
        return self._run(self._flows.model(name))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T], is_over: Callable[[], bool] = lambda: False) -> T:
        """The flow's result; it is given up before its next step once nobody wants it any more."""
        response: httpx.Response | None = None
        error: httpx.TransportError | None = None
        while True:
            try:
                step = flow.send(response) if error is None else flow.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            response = error = None
            if is_over():
                raise InferqError("nobody waits for this any more")
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                continue
            try:
                response = self._http.send(_request(self._http, step))
            except httpx.TransportError as exc:
                error = exc


class AsyncClient(_Base):
    """The same for asyncio: every method is awaited, `list` is iterated with `async for`."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        timeout: float = 30.0,
        *,
        retry_seconds: float = 30.0,
        first_contact_seconds: float | None = None,
    ) -> None:
        super().__init__(base_url, api_key, timeout, retry_seconds, first_contact_seconds)
        self._http = httpx.AsyncClient(**self._settings)

    async def submit(
        self, model: str, inputs: Inputs, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Job:
        """As `Client.submit`."""
        call = requests.submit(model, inputs, options, idempotency_key or uuid.uuid4().hex)
        return await self._run(self._flows.submit(call))

    async def submit_many(
        self, model: str, items: Iterable[Arrays], *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> builtins.list[Job | ProblemError]:
        """As `Client.submit_many`."""
        blocks = blocks_of(model, items, options, idempotency_key or uuid.uuid4().hex)
        return await self._run(self._flows.submit_many(blocks))

    async def get(self, job_id: str | Job, *, wait: float = 0.0) -> Job:
        """As `Client.get`."""
        return await self._run(self._flows.get(_id(job_id), wait))

    async def wait(self, job_id: str | Job, timeout: float | None = None) -> Job:  # noqa: ASYNC109 - the contract's word
        """As `Client.wait`."""
        return await self._run(self._flows.wait(_id(job_id), timeout))

    async def wait_many(
        self,
        jobs: Iterable[str | Job | ProblemError],
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's word
        *,
        connections: int = _WAITING,
    ) -> builtins.list[Job]:
        """As `Client.wait_many`."""
        ids, begun_at = _ids(jobs), self._flows.now()
        room = asyncio.Semaphore(max(1, connections))

        async def wait(job_id: str) -> Job:
            async with room:
                return await self._run(self._flows.wait(job_id, timeout, begun_at))

        waits = [asyncio.ensure_future(wait(job_id)) for job_id in ids]
        try:
            return await asyncio.gather(*waits)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def result(self, job_id: str | Job) -> dict[str, Any]:
        """As `Client.result`."""
        return await self._run(self._flows.result(_id(job_id)))

    async def result_json(self, job_id: str | Job) -> Mapping[str, Any]:
        """As `Client.result_json`."""
        return await self._run(self._flows.result_json(_id(job_id)))

    async def cancel(self, job_id: str | Job) -> Job:
        """As `Client.cancel`."""
        return await self._run(self._flows.cancel(_id(job_id)))

    async def delete(self, job_id: str | Job, *, force: bool = False) -> None:
        """As `Client.delete`."""
        await self._run(self._flows.delete(_id(job_id), force=force))

    async def list(
        self, *, status: str | None = None, model: str | None = None, page_size: int = _PAGE
    ) -> AsyncIterator[Job]:
        """As `Client.list`."""
        page = Page([], "")
        while page.next_cursor is not None:
            page = await self._run(
                self._flows.page(status=status, model=model, limit=page_size, cursor=page.next_cursor or None)
            )
            for job in page.jobs:
                yield job

    async def models(self) -> Models:
        """As `Client.models`."""
        return await self._run(self._flows.models())

    async def model(self, name: str) -> dict[str, Any]:
        """As `Client.model`."""
        return await self._run(self._flows.model(name))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        response: httpx.Response | None = None
        error: httpx.TransportError | None = None
        while True:
            try:
                step = flow.send(response) if error is None else flow.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            response = error = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                response = await self._http.send(_request(self._http, step))
            except httpx.TransportError as exc:
                error = exc


def _id(job: str | Job) -> str:
    return job.id if isinstance(job, Job) else job


def _ids(jobs: Iterable[str | Job | ProblemError]) -> list[str]:
    """The ids; raises the first refusal among them."""
    ids = []
    for job in jobs:
        if isinstance(job, ProblemError):
            raise job
        ids.append(_id(job))
    return ids
