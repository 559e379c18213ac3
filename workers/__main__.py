"""`python -m workers inference` serves; `python -m workers check` tells whether this host's worker is alive.

It owns exit codes and the one line that explains a refused start; everything else is elsewhere.
"""

import asyncio
import logging
import socket
import sys
from typing import Final

import uvloop

from jobs import logs
from jobs.connection import Connection, StoreError, StoreMisconfigured, StoreUnavailable
from jobs.registry import Registry
from jobs.settings import SettingsError, load
from jobs.store import JobStore
from workers.inference import InferenceWorker
from workers.settings import WorkerSettings

_USAGE: Final = "usage: python -m workers inference|check"
_RETRY_SECONDS: Final = 1.0

log = logging.getLogger("workers")


async def _open_store(settings: WorkerSettings) -> JobStore:
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


async def _serve(settings: WorkerSettings) -> None:
    worker = InferenceWorker(settings, await _open_store(settings))
    try:
        await worker.async_run()
    finally:
        await worker.close()


async def _check(settings: WorkerSettings) -> bool:
    """Whether a worker of this host has been heard of lately."""
    connection = Connection.from_settings(settings)
    try:
        return any(beat.host == socket.gethostname() for beat in await Registry(connection).workers())
    finally:
        await connection.close()


def main(arguments: list[str]) -> int:
    """The exit status: 0, 1 when a check fails, 2 when the start is refused."""
    try:
        settings = load(WorkerSettings)
        logs.configure(settings.log_level, "worker")
        match arguments:
            case ["inference"]:
                uvloop.run(_serve(settings))
            case ["check"]:
                return 0 if uvloop.run(_check(settings)) else 1
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
