"""A small site for one test: real api and worker processes, a real Valkey, and an engine that the test drives.

Owns the life of the processes and the questions that several tests ask. Must not assert what one test is about.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from inferq.client import AsyncClient, Job
from inferq.stack.ports import free_port
from inferq.stack.process import Process, Program
from jobs.connection import Connection
from jobs.registry import Registry, WorkerBeat
from jobs.settings import StoreSettings
from jobs.store import JobStore
from tests.support.eventually import eventually
from tests.support.scripted_triton import ScriptedModel, ScriptedTriton, scripted_model

MODEL = "echo"
START_SECONDS = 60.0
API = ("-m", "api")
WORKER = ("-m", "workers", "inference")


class Site:
    """Processes by name, on one Redis and one engine. `settings` are what every process is told on top of those."""

    def __init__(self, engine: ScriptedTriton, folder: Path, redis_url: str, settings: dict[str, object]) -> None:
        self.engine = engine
        self.folder = folder
        self.redis_url = redis_url
        self.settings = settings
        self.processes: dict[str, Process] = {}
        self.urls: list[str] = []
        chosen = StoreSettings(redis_url=redis_url, redis_timeout_seconds=2)
        self.store = JobStore(Connection.from_settings(chosen), chosen)
        self.closing = AsyncExitStack()

    def process(self, name: str, arguments: Sequence[str], **settings: object) -> Process:
        """Start a process of the product, or of the test, with these settings; it inherits `listen_fd`."""
        inherited_fds = tuple(int(str(value)) for key, value in settings.items() if key == "listen_fd")
        own = {"redis_url": self.redis_url, "engine": self.engine.address, **self.settings, **settings}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("INFERQ_")}
        environment = kept | {f"INFERQ_{key.upper()}": str(value) for key, value in own.items()}
        command = (sys.executable, "-P", *arguments)
        log_path = self.folder / f"{name}.log"
        process = Process(Program(name, command, environment, log_path, inherited_fds=inherited_fds))
        process.start()
        self.processes[name] = process
        return process

    def worker(self, name: str = "worker", arguments: Sequence[str] = WORKER, **settings: object) -> Process:
        """Start a worker; `until_served` tells when it works."""
        return self.process(name, arguments, **settings)

    async def api(self, name: str = "api", **settings: object) -> AsyncClient:
        """Start an api and wait until it listens; a client of it."""
        port = int(str(settings.setdefault("port", free_port())))
        url = f"http://127.0.0.1:{port}"
        self.process(name, API, **settings)
        client = await self.closing.enter_async_context(AsyncClient(url, retry_seconds=60))
        self.urls.append(url)

        async def is_live() -> bool:
            assert self.processes[name].is_running, self.log(name)
            return await _status(url, "/health/live") == 200

        await eventually(is_live, START_SECONDS)
        return client

    def raw(self, number: int = 0, timeout_seconds: float = 30) -> httpx.AsyncClient:
        """Plain HTTP to an api, without second attempts; use it in an `async with`."""
        return httpx.AsyncClient(base_url=self.urls[number], timeout=timeout_seconds, trust_env=False)

    def log(self, name: str) -> str:
        """What a process wrote so far."""
        return self.processes[name].program.log_path.read_text()

    async def workers(self) -> list[WorkerBeat]:
        """The live workers, by their heartbeats."""
        return await Registry(self.store.connection).workers()

    async def until_served(self, *processes: Process, model: str = MODEL) -> None:
        """Return once these workers serve the model."""
        wanted = {process.pid for process in processes}

        async def is_served() -> bool:
            for process in processes:
                assert process.is_running, process.last_log_lines()
            return wanted <= {beat.pid for beat in await self.workers() if model in beat.lanes}

        await eventually(is_served, START_SECONDS)

    async def stop(self) -> None:
        """End every process."""
        for process in self.processes.values():
            process.kill()
        await self.closing.aclose()
        await self.store.close()


@asynccontextmanager
async def site(
    redis_url: str, folder: Path, models: Sequence[ScriptedModel] = (), **settings: object
) -> AsyncIterator[Site]:
    """A site without processes yet; `models` are the engine's, one `echo` if not given."""
    async with ScriptedTriton(list(models) or [scripted_model(MODEL)]) as engine:
        opened = Site(engine, folder, redis_url, {"registry_seconds": 1, **settings})
        try:
            yield opened
        finally:
            await opened.stop()


def number(value: float) -> dict[str, Any]:
    """The inputs of a job for an echoing model."""
    return {"x": np.array([value], np.float32)}


def values(job: Job) -> list[float]:
    """The numbers that an echoing model answered."""
    assert job.output is not None, job
    return [float(value) for value in job.output["y"]["data"]]


@asynccontextmanager
async def load(
    clients: Sequence[AsyncClient], model: str = MODEL, per_second: float = 50, **options: Any
) -> AsyncIterator[list[Job]]:
    """Numbered jobs one after the other, through each of these apis, for as long as the context lasts.

    A submit is tried again until it is answered: what stands in the list was accepted.
    """
    jobs: list[Job] = []
    numbers = itertools.count()

    async def keep_submitting(client: AsyncClient) -> None:
        for n in numbers:
            jobs.append(await client.submit(model, number(n), metadata={"number": n}, **options))
            await asyncio.sleep(len(clients) / per_second)

    submitting = [asyncio.create_task(keep_submitting(client)) for client in clients]
    try:
        yield jobs
        assert not any(task.done() for task in submitting), f"the load broke off: {submitting}"
    finally:
        for task in submitting:
            task.cancel()
        await asyncio.wait(submitting)


async def assert_all_succeed(client: AsyncClient, jobs: Sequence[Job], within_seconds: float = 60) -> list[Job]:
    """Each job ends with its own number, no failure is counted, and asked again it says exactly the same."""
    ends_at = time.monotonic() + within_seconds
    done = [await client.wait(job, max(0.0, ends_at - time.monotonic())) for job in jobs]
    for job in done:
        assert (job.status, job.raw["failures"]) == ("succeeded", 0), job.raw
        assert values(job) == [job.raw["metadata"]["number"]]
    for job in done[:: max(1, len(done) // 50)]:
        assert (await client.get(job)).raw == job.raw, "a result has changed"
    return done


async def until(client: AsyncClient, jobs: Iterable[Job], status: str, timeout_seconds: float = 20) -> None:
    """Return once all these jobs have this status."""
    waiting = list(jobs)

    async def have() -> bool:
        return all([(await client.get(job)).status == status for job in waiting])

    await eventually(have, timeout_seconds)


async def holds(condition: Callable[[], Awaitable[bool] | bool], timeout_seconds: float) -> float:
    """How many seconds it took until the condition held."""
    started = time.monotonic()

    async def is_so() -> bool:
        found = condition()
        return found if isinstance(found, bool) else await found

    await eventually(is_so, timeout_seconds)
    return time.monotonic() - started


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """These processes stand still inside the context."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def _status(url: str, path: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        try:
            return (await client.get(f"{url}{path}")).status_code
        except httpx.TransportError:
            return 0
