"""What every lane of a worker works with, opened once a process.

It only holds them together; who opens and closes them is the worker's business.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

from jobs.store import JobStore
from workers.budget import ByteBudget, DecodeRoom
from workers.flights import Flights
from workers.measures import Measures
from workers.quarantine import Quarantine
from workers.settings import WorkerSettings
from workers.triton.client import TritonClient


@dataclass(frozen=True, slots=True)
class Tools:
    """Store, engine and threads, and the bookkeeping that lanes share."""

    worker_id: str
    settings: WorkerSettings
    store: JobStore
    engine: TritonClient
    threads: ThreadPoolExecutor
    budget: ByteBudget
    decoders: DecodeRoom
    flights: Flights = field(default_factory=Flights)
    measures: Measures = field(default_factory=Measures)
    quarantine: Quarantine = field(default_factory=Quarantine)
    rng: Random = field(default_factory=Random)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a lane's state changes, so that the next heartbeat does not wait."""

    @property
    def lease_ms(self) -> int:
        """How long a claim lasts without a heartbeat."""
        return int(self.settings.lease_seconds * 1000)
