"""`inferq chaos`: the promises, tried: a stack under load whose parts are killed at random, and a count of the jobs.

Owns how the experiment is set up and what it is judged by; load, killer and tally are `inferq.chaos`'s.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from inferq.chaos.killer import Killer
from inferq.chaos.load import Load
from inferq.chaos.tally import Tally, tally
from inferq.client import AsyncClient, InferqError
from inferq.commands import screen
from inferq.commands.exit import CommandFailed
from inferq.commands.up import report
from inferq.stack import EmbeddedStack, StackError, StackOptions

KILL_EVERY_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 120.0
"""How long a client tries again while parts are down, and how long the last jobs may take."""


def chaos(*, jobs: int, minutes: float, seed: int, apis: int, workers: int) -> None:
    """Run the experiment and print its table; CommandFailed when a job was lost, doubled, wrong or failed."""
    with tempfile.TemporaryDirectory(prefix="inferq-chaos-") as folder:
        environment = {**os.environ, "INFERQ_DURABLE": "1", "INFERQ_DRAIN_SECONDS": "5", "INFERQ_ACCESS_LOG": "0"}
        options = StackOptions(port=0, api=apis, workers=workers, data=Path(folder), environment=environment)
        report(f"seed {seed}: {jobs} jobs in {minutes:g} min, INFERQ_DURABLE=1")
        try:
            result = asyncio.run(_run(options, Random(seed), jobs, minutes * 60))
        except (StackError, InferqError) as exc:
            raise CommandFailed(str(exc)) from exc
    screen.facts(result.rows())
    if not result.is_kept:
        raise CommandFailed("a promise was broken", f"`inferq chaos --seed {seed}` kills in the same order again.")


async def _run(options: StackOptions, rng: Random, jobs: int, seconds: float) -> Tally:
    started_at = time.monotonic()

    def told(line: str) -> None:
        report(f"{time.monotonic() - started_at:6.1f} s  {line}")

    async with (
        EmbeddedStack(options, report=told) as stack,
        AsyncClient(stack.url, retry_seconds=PATIENCE_SECONDS) as client,
    ):
        load = Load(client, Random(rng.random()), jobs, seconds)
        killer = Killer(stack, Random(rng.random()), KILL_EVERY_SECONDS)
        async with _running(killer.watch()):
            async with _running(killer.run()):
                await load.run()
            told(f"the load is over, {len(killer.kills)} parts were killed; waiting for the last jobs")
            await load.finish(PATIENCE_SECONDS)
        return await tally(client, load, killer.kills)


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """This goes on in the background inside the context; a fault of it is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
