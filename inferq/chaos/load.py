"""Jobs whose right answers are known, submitted through outages and followed to their ends.

Owns what was accepted and when its end was seen. Must not judge.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from inferq.client import AsyncClient, InferqError, Job
from inferq.stack.environment import PROJECT_ROOT

PHOTO: Final = PROJECT_ROOT / "examples" / "images" / "coffee.jpg"
CLASSIFIER, ECHO = "efficientnet_lite0", "identity"
LABEL: Final = "espresso"
PHOTO_SHARE: Final = 0.5
LARGEST_BURST: Final = 40
SUBMITTERS: Final = 16


@dataclass(slots=True)
class Followed:
    """One accepted job: its number, how its end first looked (None: not seen), and when that was (Unix seconds)."""

    number: int
    job: Job
    first_end: Job | None = None
    ended_at: float = 0.0


class Load:
    """`jobs` jobs over `seconds`, in bursts, so that some always wait or run; each is followed to its end."""

    def __init__(self, client: AsyncClient, rng: Random, jobs: int, seconds: float) -> None:
        self._client = client
        self._rng = rng
        self._jobs = jobs
        self._seconds = seconds
        self._submitting = asyncio.Semaphore(SUBMITTERS)
        self._following: set[asyncio.Task[None]] = set()
        self.accepted: list[Followed] = []
        self.refused: list[str] = []

    async def run(self) -> None:
        """Return when every submit was answered."""
        ends_at = time.monotonic() + self._seconds
        submits: list[asyncio.Task[None]] = []
        while len(submits) < self._jobs:
            burst = min(self._rng.randint(1, LARGEST_BURST), self._jobs - len(submits))
            submits += [asyncio.create_task(self._submit(len(submits) + n)) for n in range(burst)]
            left = max(0.0, ends_at - time.monotonic())
            await asyncio.sleep(left * burst / max(burst, self._jobs - len(submits) + burst))
        await asyncio.gather(*submits)

    async def finish(self, timeout_seconds: float) -> None:
        """Return when the end of every accepted job was seen, or the time is up."""
        if self._following:
            await asyncio.wait(self._following, timeout=timeout_seconds)
        for task in self._following:
            task.cancel()

    async def _submit(self, number: int) -> None:
        model, inputs = self._inputs(number)
        async with self._submitting:
            try:
                job = await self._client.submit(model, inputs, metadata={"number": number})
            except InferqError as exc:
                self.refused.append(str(exc))
                return
        followed = Followed(number, job)
        self.accepted.append(followed)
        task = asyncio.create_task(self._follow(followed))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    def _inputs(self, number: int) -> tuple[str, Path | Mapping[str, Any]]:
        if self._rng.random() < PHOTO_SHARE:
            return CLASSIFIER, PHOTO
        return ECHO, {"input": np.array([number], np.float32)}

    async def _follow(self, followed: Followed) -> None:
        while True:
            try:
                followed.first_end = await self._client.wait(followed.job)
                followed.ended_at = time.time()
                return
            except InferqError as exc:
                if getattr(exc, "status", 0) == 404:  # it is lost, and the tally will say so
                    return


def is_right(job: Job, number: int) -> bool:
    """Whether a succeeded job's answer is the one that its input must give."""
    output = job.output or {}
    if job.model == CLASSIFIER:
        return bool(output.get("probabilities") and output["probabilities"][0]["label"] == LABEL)
    return "output" in output and output["output"]["data"] == [float(number)]
