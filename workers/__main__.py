"""`python -m workers inference|webhooks` serves; `python -m workers check` tells whether a worker of this host lives;
`python -m workers settings inference|webhooks`, before anything starts, whether the environment can be used.

It owns exit codes and the one line that explains a refused start; everything else is elsewhere. Each kind of worker is
imported by its own command: one has no use for the other's decoders and engine client.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Collection
from typing import Final, TypeVar

import uvloop

from jobs import logs, memory
from jobs.connection import Connection, StoreError, StoreMisconfigured, StoreUnavailable
from jobs.registry import Registry, WorkerRole
from jobs.settings import SettingsError, StoreSettings, load
from jobs.store import JobStore
from workers.process import ProcessWorker

_USAGE: Final = (
    "usage: python -m workers inference|webhooks, python -m workers check [inference|webhooks], "
    "python -m workers settings inference|webhooks"
)
_RETRY_SECONDS: Final = 1.0

SettingsT = TypeVar("SettingsT", bound=StoreSettings)

log = logging.getLogger("workers")


async def _open_store(settings: StoreSettings) -> JobStore:
    """A store on a proven server, waited for as long as it takes; raises StoreMisconfigured."""
    waiting = False
    while True:
        try:
            store, warnings = await JobStore.open(settings)
        except StoreUnavailable as exc:
            log.log(logging.DEBUG if waiting else logging.WARNING, "waiting for Redis: %s", exc)
            waiting = True
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        for warning in warnings:
            log.warning("%s", warning)
        return store


async def _infer() -> None:
    from workers.inference import InferenceWorker
    from workers.settings import WorkerSettings

    memory.keep_freed_memory()
    settings = _started(WorkerSettings, "worker")
    await _run(InferenceWorker(settings, await _open_store(settings)))


async def _deliver() -> None:
    from workers.webhooks.settings import WebhookWorkerSettings
    from workers.webhooks.worker import WebhookWorker

    settings = _started(WebhookWorkerSettings, "webhook-worker")
    if settings.log_level != "DEBUG":
        logging.getLogger("arq.worker").setLevel(logging.WARNING)  # it says as much as we do, twice a message
    await _run(WebhookWorker(settings, await _open_store(settings)))


async def _run(worker: ProcessWorker) -> None:
    try:
        await worker.async_run()
    finally:
        await worker.close()


async def _check(settings: StoreSettings, roles: Collection[WorkerRole]) -> bool:
    """Whether a worker of this host and of one of these roles has been heard of lately."""
    connection = Connection.from_settings(settings)
    try:
        beats = await Registry(connection).workers()
        return any(beat.host == socket.gethostname() and beat.role in roles for beat in beats)
    finally:
        await connection.close()


def _started(settings_class: type[SettingsT], process: str) -> SettingsT:
    settings = load(settings_class)
    logs.configure(settings.log_level, process)
    return settings


def main(arguments: list[str]) -> int:
    """The exit status: 0, 1 when a check fails, 2 when the start is refused."""
    try:
        match arguments:
            case ["inference"]:
                uvloop.run(_infer())
            case ["webhooks"]:
                uvloop.run(_deliver())
            case ["check"]:
                return 0 if uvloop.run(_check(load(StoreSettings), list(WorkerRole))) else 1
            case ["check", ("inference" | "webhooks") as role]:
                return 0 if uvloop.run(_check(load(StoreSettings), [WorkerRole(role)])) else 1
            case ["settings", "inference"]:
                from workers.settings import WorkerSettings

                load(WorkerSettings)
            case ["settings", "webhooks"]:
                from workers.webhooks.settings import WebhookWorkerSettings

                load(WebhookWorkerSettings)
            case _:
                print(_USAGE, file=sys.stderr)
                return 2
    except (SettingsError, StoreMisconfigured) as exc:
        print(f"inferq worker: {exc}", file=sys.stderr)
        return 2
    except StoreError as exc:
        print(f"inferq worker: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
