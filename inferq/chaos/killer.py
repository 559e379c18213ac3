"""Kills parts of a running stack at random instants, and remembers which and when.

Owns the choice and its seed. Must not bring anything back: that is the supervisor's work, and part of the proof.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from random import Random
from typing import Final

from inferq.stack import EmbeddedStack

FEWEST_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 0.2
KINDS: Final = ("worker", "api", "valkey", "triton")


@dataclass(slots=True)
class Kill:
    """One SIGKILL, and when the part ran again (0 = not yet); both in Unix seconds."""

    name: str
    at: float
    back_at: float = 0.0

    @property
    def kind(self) -> str:
        """`worker` of `worker-2`."""
        return self.name.partition("-")[0]


class Killer:
    """One SIGKILL after another, `every_seconds` on average, each time to a part of a randomly chosen kind."""

    def __init__(self, stack: EmbeddedStack, rng: Random, every_seconds: float) -> None:
        self._stack = stack
        self._rng = rng
        self._every_seconds = every_seconds
        self.kills: list[Kill] = []

    async def run(self) -> None:
        """Kill until cancelled; every kind gets its turn before one gets a second."""
        turn: list[str] = []
        while True:
            await asyncio.sleep(FEWEST_SECONDS + self._rng.expovariate(1 / (self._every_seconds - FEWEST_SECONDS)))
            if not turn:
                turn = self._rng.sample(KINDS, len(KINDS))
            kind = turn.pop()
            candidates = [name for name in self._stack.running if name.partition("-")[0] == kind]
            if candidates:
                await self._kill(self._rng.choice(candidates))

    async def watch(self) -> None:
        """Note when parts run again, until cancelled."""
        while True:
            running = set(self._stack.running)
            for kill in self.kills:
                if not kill.back_at and kill.name in running:
                    kill.back_at = time.time()
            await asyncio.sleep(WATCH_SECONDS)

    async def _kill(self, name: str) -> None:
        at = time.time()
        await asyncio.to_thread(self._stack.kill, name)
        self.kills.append(Kill(name, at))
