"""An inference worker whose process dies of one kind of input: `python fragile_worker.py`.

Owns the fault alone: a thread that prepares a payload with DEADLY in it reads address 0. The rest is the product's.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from jobs import logs
from jobs.settings import load
from jobs.store import JobStore
from workers.inference import InferenceWorker
from workers.settings import WorkerSettings
from workers.tools import Tools

DEADLY = b"a picture that kills its decoder"


class FragileThreads(ThreadPoolExecutor):
    """Threads in which preparing a deadly payload is a segmentation fault."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(_prepare, fn, *args, **kwargs)


def _prepare(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(argument, bytes) and DEADLY in argument for argument in args):
        ctypes.string_at(0)
    return fn(*args, **kwargs)


class FragileWorker(InferenceWorker):
    """The product's worker on fragile threads."""

    def _make_tools(self) -> Tools:
        tools = super()._make_tools()
        return replace(tools, threads=FragileThreads(2))


async def main() -> None:
    """Serve until SIGTERM."""
    settings = load(WorkerSettings)
    logs.configure(settings.log_level, "worker")
    store, _ = await JobStore.open(settings)
    worker = FragileWorker(settings, store)
    try:
        await worker.async_run()
    finally:
        await worker.close()


if __name__ == "__main__":
    asyncio.run(main())
