"""The systems that are compared: how each is started, asked, and known to be idle.

It owns that every system gets the same servers and the same uploads; it must not measure.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redis import Redis

from bench.load import Client, Response, request_bytes
from bench.processes import Process, StartError, free_port, python, wait_for_port
from bench.workloads import OCTETS, Workload, check, protocol_binary

POLL_SECONDS: Final = 0.002
"""How often a client of a peer asks for a result that it waits for."""

WARM_UP_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Servers:
    """Where Redis and the engine are, and where logs go."""

    redis_url: str
    engine: str
    logs: Path


@dataclass(frozen=True)
class System:
    """One way to do the work; `speed` is about how fast it is beside the fastest, so that none takes for ever.

    `pending` is the Redis command that counts jobs that have not ended. Where a queue has none, its results lie in
    database 1 and are counted.
    """

    key: str
    title: str
    api: tuple[str, ...]
    worker: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    speed: float = 1.0
    workloads: tuple[str, ...] = ("tiny", "megabyte", "photos", "prepared", "accelerator")

    @property
    def is_product(self) -> bool:
        """Ours."""
        return self.key == "inferq"

    @property
    def has_queue(self) -> bool:
        """Whether an answer comes later than its request's."""
        return bool(self.worker)


def _peer(module: str) -> tuple[str, ...]:
    return ("-m", "bench.peers.serve", module)


CELERY_WORKER: Final = (
    *("-m", "celery", "--app", "bench.peers.celery_tasks:celery", "worker", "--pool", "prefork"),
    *("--concurrency", "4", "--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"),
)
PRODUCT: Final = System(
    "inferq", "inferq", ("-P", "-m", "api"), ("-P", "-m", "workers", "inference"), ("ZCARD", "inferq:open")
)
SYSTEMS: Final = (
    PRODUCT,
    System("plain", "FastAPI + grpc.aio, no queue", _peer("plain")),
    System(
        "saq",
        "SAQ (256 at once)",
        _peer("saq_tuned"),
        ("-m", "saq", "bench.peers.saq_tuned.settings", "--quiet"),
        ("ZCARD", "saq:default:incomplete"),
        speed=0.3,
    ),
    System(
        "arq",
        "arq, tuned (10 ms poll, 256 at once)",
        _peer("arq_tuned"),
        ("-m", "arq", "bench.peers.arq_tuned.WorkerSettings"),
        ("ZCARD", "arq:queue"),
        speed=0.25,
    ),
    System(
        "celery",
        "Celery (4 processes)",
        _peer("celery_tasks"),
        CELERY_WORKER,
        speed=0.15,
        workloads=("tiny", "photos"),
    ),
    System(
        "arq-stock",
        "arq, as it comes",
        _peer("arq_stock"),
        ("-m", "arq", "bench.peers.arq_stock.WorkerSettings"),
        ("ZCARD", "arq:queue"),
        speed=0.05,
        workloads=("tiny", "photos"),
    ),
)


@dataclass
class Running:
    """A started system."""

    system: System
    redis: Any
    results: Any
    port: int
    apis: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    polls: dict[str, int] = field(default_factory=dict)
    """Commands that counting unfinished jobs has cost, by name."""

    def groups(self) -> dict[str, list[int]]:
        """Process groups by role."""
        return {"api": [p.pid for p in self.apis], "worker": [p.pid for p in self.workers]}

    submitted: int = 0

    def unfinished(self) -> int:
        """How many submitted jobs have not ended."""
        if not self.system.has_queue:
            return 0
        command = self.system.pending or ("DBSIZE",)
        name = command[0].lower()
        self.polls[name] = self.polls.get(name, 0) + 1
        if self.system.pending:
            return int(self.redis.execute_command(*command))
        return self.submitted - int(self.results.execute_command(*command))

    def submit_request(self, workload: Workload, number: int, wait_seconds: int = 0) -> bytes:
        """Upload `number` as a request; with `wait_seconds` the product answers when the job is done."""
        upload = workload.uploads[number % len(workload.uploads)]
        headers = [("Content-Type", workload.content_type)]
        path = f"/jobs?model={workload.shape.name}"
        if self.system.is_product:
            if wait_seconds:
                headers.append(("Prefer", f"wait={wait_seconds}"))
            if workload.shape.datatype == "UINT8" and workload.content_type == OCTETS:
                upload, header_length = protocol_binary(workload.shape, upload)
                headers.append(("Inference-Header-Content-Length", str(header_length)))
        return request_bytes("POST", path, upload, headers)

    @staticmethod
    def result_request(job_id: str) -> bytes:
        """Ask for a result."""
        return request_bytes("GET", f"/jobs/{job_id}/result", headers=[("Accept", OCTETS)])

    async def result(self, client: Client, job_id: str) -> bytes:
        """The output, asked for until it is there."""
        deadline = time.monotonic() + ANSWER_SECONDS
        request = self.result_request(job_id)
        while (answer := await client.ask(request)).status == 202:
            if time.monotonic() > deadline:
                raise StartError(f"{self.system.key}: job {job_id} does not end")
            await asyncio.sleep(POLL_SECONDS)
        assert answer.status == 200, f"{self.system.key}: {answer.status} {answer.body[:500]!r}"
        return answer.body

    async def run_one(self, client: Client, workload: Workload, number: int) -> None:
        """One job from its upload until its end is known, in the way that a client of this system learns of it."""
        sent = await client.ask(self.submit_request(workload, number, wait_seconds=30))
        if self.system.is_product:
            assert sent.status == 201, f"inferq: {sent.status} {sent.body[:500]!r}"
        elif self.system.has_queue:
            self.accepted(sent)
            check(workload, number, await self.result(client, sent.id))
        else:
            check(workload, number, sent.body)

    def accepted(self, response: Response) -> None:
        """Raises AssertionError where a submit was refused."""
        wanted = 202 if self.system.has_queue else 200
        assert response.status == wanted, f"{self.system.key}: {response.status} {response.body[:500]!r}"
        self.submitted += 1

    def stop(self) -> None:
        """End all processes."""
        for process in (*self.workers, *self.apis):
            process.stop()


def start(
    system: System,
    servers: Servers,
    *,
    apis: int = 1,
    workers: int = 1,
    listen_fd: int | None = None,
    port: int = 0,
    worker: tuple[str, ...] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Running:
    """The system on an empty Redis, its api ready and, of the product, its workers too."""
    redis = Redis.from_url(servers.redis_url)
    redis.flushall()
    port = port or free_port()
    env = {
        "BENCH_REDIS": servers.redis_url,
        "BENCH_ENGINE": servers.engine,
        "INFERQ_REDIS_URL": servers.redis_url,
        "INFERQ_ENGINE": servers.engine,
        "INFERQ_ENGINE_KEEPALIVE_SECONDS": "10",
        "INFERQ_LOG_LEVEL": "WARNING",
        "INFERQ_ACCESS_LOG": "0",  # no peer logs requests either
        "INFERQ_PORT": str(port),
        **({"INFERQ_LISTEN_FD": str(listen_fd)} if listen_fd is not None else {}),
        **(environment or {}),
    }
    running = Running(system, redis, Redis.from_url(f"{servers.redis_url.rpartition('/')[0]}/1"), port)
    try:
        command = worker or system.worker
        for number in range(workers if command else 0):
            running.workers.append(python(f"{system.key}-worker-{number}", command, env, servers.logs))
        arguments = system.api if system.is_product else (*system.api, str(port))
        fds = (listen_fd,) if listen_fd is not None else ()
        for number in range(apis):
            running.apis.append(python(f"{system.key}-api-{number}", arguments, env, servers.logs, fds))
        _wait_until_ready(running, workers)
    except BaseException:
        running.stop()
        raise
    return running


def _wait_until_ready(running: Running, workers: int) -> None:
    deadline = time.monotonic() + WARM_UP_SECONDS
    for api in running.apis:
        while True:
            body = wait_for_port(api, running.port)
            if not running.system.is_product or json.loads(body)["workers"] >= workers:
                break
            if time.monotonic() > deadline:
                raise StartError("the product's workers do not register")
            time.sleep(0.05)
