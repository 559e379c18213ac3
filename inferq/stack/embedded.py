"""The embedded stack: everything that a job needs, on one machine, started and supervised as one.

Owns the order of parts, what each is told about the others, and the life of the whole. Must not interpret a job.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from inferq.stack.asking import ask
from inferq.stack.components import (
    ApiProcess,
    Command,
    WebhookWorkerProcess,
    WorkerProcess,
    refused_models,
)
from inferq.stack.environment import StackEnvironment
from inferq.stack.errors import StackError
from inferq.stack.flags import check_flags
from inferq.stack.folder import STORE_TIMEOUT_SECONDS, lock, store_of
from inferq.stack.given import (
    REDIS_VARIABLE,
    check_engine,
    check_models,
    check_redis,
    check_settings,
    unknown_variables,
    without_password,
)
from inferq.stack.listening import is_for_strangers, open_listening_socket, reachable_address
from inferq.stack.metrics import MetricsPorts, metrics_ports
from inferq.stack.readiness import Report, Server
from inferq.stack.supervisor import Supervisor
from inferq.stack.triton import MODELS, TritonServer, check_paths
from inferq.stack.webhooks import webhook_environment

DATA = Path(".inferq")
DEFAULT_DRAIN_SECONDS = 30.0
ENGINE_KEEPALIVE_SECONDS = 10
ENGINE_TIMEOUT_SECONDS = 3600.0
"""Large models load for minutes, which is told meanwhile; a load that is in vain ends the start at once."""
PRODUCT_TIMEOUT_SECONDS = 60.0
TOLD_REFUSALS = 5
"""Of so many models a start says why they can't be served."""
ALLOW_VARIABLE = "INFERQ_ALLOW_UNAUTHENTICATED"
ENGINE_VARIABLE = "INFERQ_ENGINE"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class StackOptions:
    """What `inferq up` may be told.

    With `redis_url` or `engine` (`host:port`) that part is somebody else's and not started. `port` 0 takes a free one.
    `data` keeps the queue over restarts, and the logs. `engine_flags` are for a Triton of our own, beside those that it
    gets anyway. `environment` is what every process inherits.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api: int = 1
    workers: int = 1
    webhook_workers: int = 1
    models: Path = MODELS
    data: Path = DATA
    redis_url: str | None = None
    engine: str | None = None
    engine_flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        if self.api < 1 or min(self.workers, self.webhook_workers) < 0:
            raise StackError(
                f"a stack has at least one api and no negative workers, not {self.api}, {self.workers} and "
                f"{self.webhook_workers}"
            )

    @property
    def names(self) -> list[str]:
        """The processes that can be measured: those of the product by kind, then an engine of our own."""
        kinds = ((ApiProcess, self.api), (WorkerProcess, self.workers), (WebhookWorkerProcess, self.webhook_workers))
        names = [kind.name_of(number) for kind, count in kinds for number in range(1, count + 1)]
        return names if self.engine is not None else [*names, TritonServer.name]

    @property
    def settings_commands(self) -> list[tuple[str, ...]]:
        """What says of each kind of process whether it could use its environment."""
        kinds = (("inference", self.workers), ("webhooks", self.webhook_workers))
        return [("api", "settings"), *(("workers", "settings", kind) for kind, count in kinds if count)]

    @property
    def key_command(self) -> str:
        """What makes an API key for this stack, while it runs and while it does not."""
        if self.redis_url is None:
            return "inferq keys create NAME" + ("" if self.data == DATA else f" --data {shlex.quote(str(self.data))}")
        if self.environment.get(REDIS_VARIABLE) == self.redis_url:
            return "inferq keys create NAME"
        return f"{REDIS_VARIABLE}={without_password(self.redis_url)} inferq keys create NAME"

    @property
    def is_durable(self) -> bool:
        """Whether a 202 waits for the disk; an own Valkey then writes at once, so that the wait is short."""
        return self.environment.get("INFERQ_DURABLE", "").lower() in ("1", "true", "yes", "on", "t", "y")

    @property
    def drain_seconds(self) -> float:
        """How long api and workers take to finish what they hold; they judge a wrong value themselves."""
        with suppress(ValueError):
            return float(self.environment.get("INFERQ_DRAIN_SECONDS", DEFAULT_DRAIN_SECONDS))
        return DEFAULT_DRAIN_SECONDS


class EmbeddedStack:
    """Valkey, Triton, workers and api, ready for jobs inside the `async with`.

        async with EmbeddedStack(StackOptions(), report=print) as stack:
            await stack.wait()

    Entering returns once a job would be accepted, with `url` set, or raises StackError with everything stopped again.
    While inside, SIGINT, SIGTERM and SIGHUP end `wait`; the same during entering raises StackError; a second one while
    stopping kills. What dies is restarted. Leaving stops everything in reverse order: nothing accepted is lost. Must be
    entered in the main thread. `report` gets a line per event.
    """

    def __init__(self, options: StackOptions, report: Report = print) -> None:
        self.options = options
        self.url = ""
        self._report = report
        self._supervisor = Supervisor(report)
        self._stop_requested = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self._lock: int | None = None
        self._metrics = MetricsPorts()
        self._unread: dict[str, str] = {}

    async def __aenter__(self) -> EmbeddedStack:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        starting = asyncio.create_task(self._start())
        stop_requested = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise StackError("stopped before it was ready")
            await starting
        except BaseException:
            await self._cancel(starting)
            await asyncio.shield(self._stop())
            raise
        finally:
            await self._cancel(stop_requested)
        self._watching = asyncio.create_task(self._supervisor.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watching is not None:
            await self._cancel(self._watching)
        await asyncio.shield(self._stop())

    async def wait(self) -> None:
        """Return when a signal asks to stop; raises whatever ended the supervision itself."""
        stop_requested = asyncio.create_task(self._stop_requested.wait())
        watching = self._watching
        if watching is None:
            raise RuntimeError("the stack is not running")
        await asyncio.wait((stop_requested, watching), return_when=asyncio.FIRST_COMPLETED)
        await self._cancel(stop_requested)
        if watching.done():
            await watching

    @property
    def running(self) -> list[str]:
        """The parts that run now: `valkey`, `triton`, `worker-1` …, `api-1` …; given ones are not among them."""
        return self._supervisor.running()

    def kill(self, name: str) -> None:
        """SIGKILL for one part, which is then restarted like any that dies; KeyError for an unknown one."""
        self._supervisor.kill_one(name)

    def _on_signal(self) -> None:
        if self._stop_requested.is_set():
            self._supervisor.kill()
        self._stop_requested.set()

    async def _start(self) -> None:
        options = self.options
        await self._check_given()
        self._listener = open_listening_socket(options.host, options.port)
        self._lock = lock(options.data)
        self._metrics = metrics_ports(options.environment, options.names)
        environment = dict(options.environment)
        environment |= webhook_environment(options.data, environment, is_local=not is_for_strangers(self._listener))
        needs_server = options.redis_url is None or options.engine is None
        found = await asyncio.to_thread(StackEnvironment.find, options.environment) if needs_server else None
        if options.redis_url is not None:
            environment["INFERQ_REDIS_URL"] = options.redis_url
        elif found is not None:
            environment["INFERQ_REDIS_URL"] = await self._start_store(found)
        if is_for_strangers(self._listener) and environment.get(ALLOW_VARIABLE) != "1":
            await self._require_key(environment)
        if options.engine is not None:
            environment[ENGINE_VARIABLE] = options.engine
        elif found is not None:
            environment |= await self._start_engine(found)
        await self._start_product(environment, self._listener)

    async def _check_given(self) -> None:
        """Before anything is started or written: raise StackError about what isn't there, warn of what nobody reads."""
        options = self.options
        for sentence in await unknown_variables(options.environment):
            self._report(f"warning: {sentence}")
        await check_settings({**options.environment, **self._given()}, options.settings_commands)
        check_flags(options.engine_flags)
        if options.engine_flags and options.engine is not None:
            raise StackError(f"the engine at {options.engine} was started by somebody else: give it its flags there")
        if options.engine is None:
            check_models(options.models)
            check_paths([options.models], options.data / TritonServer.name)
        else:
            await check_engine(options.engine)
        if options.redis_url is not None:
            await check_redis(options.redis_url, options.environment, self._report)

    def _given(self) -> dict[str, str]:
        given = {REDIS_VARIABLE: self.options.redis_url, ENGINE_VARIABLE: self.options.engine}
        return {name: value for name, value in given.items() if value is not None}

    async def _start_store(self, found: StackEnvironment) -> str:
        """Start Valkey; returns its URL."""
        valkey = store_of(self.options.data, found, is_durable=self.options.is_durable)
        await self._start_stage(valkey, timeout_seconds=STORE_TIMEOUT_SECONDS)
        return valkey.url

    async def _start_engine(self, found: StackEnvironment) -> dict[str, str]:
        """Start Triton; returns what workers must know of it."""
        data = self.options.data.absolute()
        triton = TritonServer(
            found,
            [self.options.models],
            data / TritonServer.name,
            log_path=data / "logs" / "triton.log",
            metrics_host=self._metrics.address,
            metrics_port=self._metrics.ports.get(TritonServer.name, 0),
            extra_flags=self.options.engine_flags,
        )
        await self._start_stage(triton, timeout_seconds=ENGINE_TIMEOUT_SECONDS)
        self._unread = triton.unread_models()
        return {
            ENGINE_VARIABLE: triton.grpc_address,
            "INFERQ_ENGINE_KEEPALIVE_SECONDS": str(ENGINE_KEEPALIVE_SECONDS),
        }

    async def _require_key(self, environment: Mapping[str, str]) -> None:
        """Raise StackError unless there is an API key: the api would not serve, and nothing else need start."""
        asked = await ask(environment, "api", "keys", "check")
        if asked.status != 0:
            why, options = asked.complaint.removeprefix("inferq keys: "), self.options
            raise StackError(
                f"refusing to listen on {options.host}, where others reach this service: {why}; make one with "
                f"`{options.key_command}`, or set {ALLOW_VARIABLE}=1 if everybody there may use it"
            )

    async def _start_product(self, environment: Mapping[str, str], listener: socket.socket) -> None:
        options, address = self.options, reachable_address(listener)
        logs, drain_seconds = options.data.absolute() / "logs", options.drain_seconds

        def own(kind: type[Command], number: int) -> dict[str, str]:
            return {**environment, **self._metrics.environment(kind.name_of(number))}

        def team(kind: type[WorkerProcess], count: int) -> list[WorkerProcess]:
            return [
                kind(number, own(kind, number), logs, api_address=address, workers=count, drain_seconds=drain_seconds)
                for number in range(1, count + 1)
            ]

        workers = [*team(WorkerProcess, options.workers), *team(WebhookWorkerProcess, options.webhook_workers)]
        apis = [
            ApiProcess(
                number,
                own(ApiProcess, number),
                logs,
                address=address,
                listen_fd=listener.fileno(),
                drain_seconds=drain_seconds,
            )
            for number in range(1, options.api + 1)
        ]
        self._supervisor.launch(*workers)
        await self._start_stage(*apis, timeout_seconds=PRODUCT_TIMEOUT_SECONDS)
        await self._supervisor.wait_ready(*workers, timeout_seconds=PRODUCT_TIMEOUT_SECONDS)
        self.url = "http://{}:{}".format(f"[{address[0]}]" if ":" in address[0] else address[0], address[1])
        for sentence in dict.fromkeys(sentence for worker in workers for sentence in worker.absent_models()):
            self._report(f"warning: {sentence}")
        for name, why in self._unread.items():  # all of them, since they are told nowhere else
            self._report(f"model {name} can't be served: {why}")
        refused = await asyncio.to_thread(refused_models, address)
        for name in list(refused)[:TOLD_REFUSALS]:
            self._report(f"model {name} can't be served: {refused[name]}")
        if len(refused) > TOLD_REFUSALS:
            self._report(f"{len(refused) - TOLD_REFUSALS} more can't: `inferq models --url {self.url}` says why")
        for line in self._metrics.lines():
            self._report(line)
        self._report(f"ready: {self.url}")

    async def _start_stage(self, *servers: Server, timeout_seconds: float) -> None:
        self._supervisor.launch(*servers)
        await self._supervisor.wait_ready(*servers, timeout_seconds=timeout_seconds)

    async def _stop(self) -> None:
        await self._supervisor.stop()
        if self._listener is not None:
            self._listener.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    @staticmethod
    async def _cancel(task: asyncio.Task[None] | asyncio.Task[bool]) -> None:
        task.cancel()
        await asyncio.wait((task,))
