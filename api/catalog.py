"""The models and workers that this process knows of: a copy of the registry that is at most about a second old.

It outlives outages of Redis: what was known stays usable. It judges nothing, and it keeps no copy of any job.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Final

from jobs.connection import StoreError
from jobs.registry import LaneBeat, LaneState, Registry, WorkerBeat, WorkerRole
from jobs.spec import MAX_NAME_LENGTH, ModelSpec

REFRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 3.0
"""A copy that is older says that Redis does not answer."""

log = logging.getLogger(__name__)


class Catalog:
    """Models by name, live workers, and how fresh that is."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._models: dict[str, ModelSpec] = {}
        self._lanes: dict[str, list[LaneBeat]] = {}
        self._refreshed_at: float | None = None
        self._fault: str | None = None
        self.workers: Sequence[WorkerBeat] = ()
        self.webhook_workers: Sequence[WorkerBeat] = ()

    @property
    def models(self) -> Mapping[str, ModelSpec]:
        """Every model that is known."""
        return MappingProxyType(self._models)

    def fault(self) -> str | None:
        """Why this copy is not current, in words for anybody; None where it is."""
        if self._fault is None and self._refreshed_at is not None:
            age = monotonic() - self._refreshed_at
            return f"Redis has not answered for {age:.0f} seconds" if age > STALE_SECONDS else None
        return self._fault or "Redis has not answered yet"

    def lanes(self, model: str) -> Sequence[LaneBeat]:
        """The lanes of live workers that serve this model."""
        return self._lanes.get(model, ())

    def is_ready(self, model: ModelSpec) -> bool:
        """Whether a job for this model would be accepted, and run by a worker that is alive and has its engine."""
        return model.refusal is None and any(lane.state is LaneState.READY for lane in self.lanes(model.name))

    async def find(self, name: str) -> ModelSpec | None:
        """One model; Redis is asked where the copy lacks it, so a model counts from the moment of its registration.

        Raises StoreError only where the copy does not know the model.
        """
        known = self._models.get(name)
        if known is not None or not 0 < len(name) <= MAX_NAME_LENGTH:
            return known
        found = await self._registry.model(name)
        if found is not None:
            self._models[name] = found
        return found

    async def refresh(self) -> None:
        """Copy the registry; raises StoreError and keeps the old copy."""
        models = await self._registry.models()
        workers = await self._registry.workers()
        lanes: dict[str, list[LaneBeat]] = {}
        for worker in workers:
            for model, lane in worker.lanes.items():
                lanes.setdefault(model, []).append(lane)
            for model, reason in worker.unloaded.items():
                models.setdefault(model, ModelSpec.unloaded(model, reason))
        self._models, self._lanes = models, lanes
        self.workers = [worker for worker in workers if worker.role is WorkerRole.INFERENCE]
        self.webhook_workers = [worker for worker in workers if worker.role is WorkerRole.WEBHOOKS]
        self._refreshed_at = monotonic()

    async def refresh_once(self) -> None:
        """Refresh, or note why that failed."""
        try:
            await self.refresh()
        except StoreError as exc:
            if self._fault is None:
                log.warning("models and workers can't be read: %s", exc)
            self._fault = "Redis does not answer"
        else:
            self._fault = None

    async def run(self) -> None:
        """Refresh every second until cancelled."""
        while True:
            await self.refresh_once()
            await asyncio.sleep(REFRESH_SECONDS * random.uniform(0.8, 1.2))
