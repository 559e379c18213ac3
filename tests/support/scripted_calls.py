"""Calls to the scripted engine: made, waited for and gathered. Owns no server and no client."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from jobs.datatypes import Datatype
from jobs.tensors import Tensor
from tests.support.scripted_triton import ScriptedTriton
from workers.triton.messages import InferCall

SECONDS = 5.0
"""Far more than any call to a scripted engine takes."""


def call(model: str = "echo", *, width: int = 3, **changes: Any) -> InferCall:
    """A call with one row of `width` FP32 numbers."""
    row = np.arange(width, dtype="<f4").tobytes()
    fields: dict[str, Any] = {"model": model, "version": "", "request_id": "r1"}
    return InferCall(**(fields | {"inputs": (Tensor("x", Datatype.FP32, (1, width), row),)} | changes))


async def in_flight(engine: ScriptedTriton, make: Callable[[], Any], count: int = 1) -> list[asyncio.Task[Any]]:
    """Tasks whose calls have all arrived at the engine."""
    wanted = engine.in_flight + count
    tasks = [asyncio.create_task(make()) for _ in range(count)]
    await engine.until(lambda: engine.in_flight == wanted)
    return tasks


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until the condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def ended(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """The tasks' results and exceptions."""
    return await asyncio.gather(*tasks, return_exceptions=True)
