"""The product's own processes as parts of the stack: api, inference workers, webhook workers.

Owns their command lines, environments and probes. Must not import them: they are commands that speak HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from inferq.stack.asking import PYTHON
from inferq.stack.loading import Progress
from inferq.stack.process import Process, Program
from inferq.stack.readiness import http_get

AFTER_DRAIN_SECONDS = 5.0
"""What a process gets on top of its drain time before it is killed."""
ABSENT = "INFERQ_MODELS names "
"""How a worker's sentence begins about models that its engine does not have."""
SERVING = "serving model "
"""And the one about each that it serves."""


def refused_models(api_address: tuple[str, int]) -> dict[str, str]:
    """The models that can't be served, and why; none where the api tells only those who have a key."""
    status, body = http_get(*api_address, "/models")
    if status != 200:
        return {}
    models: list[dict[str, Any]] = json.loads(body)["models"]
    return {model["name"]: model["refusal"] for model in models if model["refusal"]}


class Command:
    """One process of the product, `python -m …`; ready as soon as its subclass's probe says so."""

    kind: ClassVar[str]

    @classmethod
    def name_of(cls, number: int) -> str:
        """What the process of this number is called, counted from 1."""
        return f"{cls.kind}-{number}"

    def __init__(
        self,
        number: int,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        logs: Path,
        *,
        drain_seconds: float,
        inherited_fds: tuple[int, ...] = (),
    ) -> None:
        self.name = name = self.name_of(number)
        self.process = Process(
            Program(
                name=name,
                argv=(*PYTHON, *arguments),
                environment=environment,
                log_path=logs / f"{name}.log",
                stop_grace_seconds=drain_seconds + AFTER_DRAIN_SECONDS,
                inherited_fds=inherited_fds,
            )
        )

    def launch(self) -> None:
        """Start without waiting."""
        self.process.start()

    def progress(self) -> Progress:
        """Nothing: it starts within seconds."""
        return Progress()

    def stop(self) -> None:
        """Let it drain, then end it; legal before start and twice."""
        self.process.stop()


class ApiProcess(Command):
    """One of the api processes that accept on the same inherited socket, reachable at `address`."""

    kind = "api"

    def __init__(
        self,
        number: int,
        environment: Mapping[str, str],
        logs: Path,
        *,
        address: tuple[str, int],
        listen_fd: int,
        drain_seconds: float,
    ) -> None:
        super().__init__(
            number,
            ("api",),
            {**environment, "INFERQ_LISTEN_FD": str(listen_fd)},
            logs,
            drain_seconds=drain_seconds,
            inherited_fds=(listen_fd,),
        )
        self.address = address

    def is_ready(self) -> bool:
        """Whether the shared socket is answered; which of the processes answers can't be told, and needn't be."""
        return http_get(*self.address, "/health/live")[0] == 200


class WorkerProcess(Command):
    """A worker of either kind. It has no port of its own: it is ready when the api counts as many as there are."""

    arguments: ClassVar[tuple[str, ...]] = ("workers", "inference")
    counted_as: ClassVar[str] = "workers"
    ready_statuses: ClassVar[tuple[int, ...]] = (200,)
    kind = "worker"

    def __init__(
        self,
        number: int,
        environment: Mapping[str, str],
        logs: Path,
        *,
        api_address: tuple[str, int],
        workers: int,
        drain_seconds: float,
    ) -> None:
        super().__init__(number, self.arguments, environment, logs, drain_seconds=drain_seconds)
        self.api_address = api_address
        self.workers = workers

    def progress(self) -> Progress:
        """Nothing, or that it will never be ready, since its engine has no model that it shall serve."""
        return Progress(faults=() if self._told(SERVING) else tuple(self.absent_models()))

    def absent_models(self) -> list[str]:
        """A sentence about the models that it shall serve and its engine does not have, if there are such."""
        return self._told(ABSENT)[-1:]

    def _told(self, beginning: str) -> list[str]:
        """The events in its log, a JSON object a line, that begin so."""
        events: list[str] = []
        for line in self.process.log_lines():
            with suppress(ValueError, TypeError, KeyError):  # not every line is ours
                events.append(str(json.loads(line)["event"]))
        return [event for event in events if event.startswith(beginning)]

    def is_ready(self) -> bool:
        """Whether all workers of this kind have registered, and for inference the api would accept a job."""
        status, body = http_get(*self.api_address, "/health/ready")
        if status not in self.ready_statuses:
            return False
        health: dict[str, Any] = json.loads(body)
        return int(health[self.counted_as]) >= self.workers


class WebhookWorkerProcess(WorkerProcess):
    """The kind that sends webhooks; it is ready whatever else the api still waits for."""

    arguments = ("workers", "webhooks")
    counted_as = "webhook_workers"
    ready_statuses = (200, 503)
    kind = "webhook-worker"
