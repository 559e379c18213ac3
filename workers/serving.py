"""Which models the engine serves, kept known to the world, with a lane for each.

It owns the lanes' births; it must not claim or settle jobs.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from jobs.connection import StoreError
from jobs.errors import EngineUnavailable, JobFailure
from jobs.registry import Registry
from jobs.spec import ModelSpec
from workers.lane import Lane
from workers.tools import Tools
from workers.triton.errors import sentence
from workers.triton.messages import IndexEntry

_ENGINE_TIMEOUT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.5
_SHOWN_MODELS: Final = 20

log = logging.getLogger(__name__)


class Serving:
    """Reads the engine's models every few seconds, publishes what is new, and starts lanes for new models."""

    def __init__(self, tools: Tools, registry: Registry, start_lane: Callable[[Lane], None]) -> None:
        self._tools = tools
        self._registry = registry
        self._start_lane = start_lane
        self._published: dict[str, ModelSpec] = {}
        self.lanes: dict[str, Lane] = {}
        self.unloaded: Mapping[str, str] = {}
        """Why the engine could not load models that it has; without those that have a lane since they once were."""
        self._absent: set[str] = set()

    async def run(self) -> None:
        """Look again for ever; soon after a failure, at leisure otherwise."""
        has_failed = False
        while True:
            try:
                await self.run_once()
                if has_failed:
                    log.info("the engine answers again")
                has_failed = False
            except (JobFailure, StoreError) as exc:
                level = logging.DEBUG if has_failed else logging.WARNING
                log.log(level, "can't register models: %s%s", exc, self._advice(exc))
                has_failed = True
            pause_seconds = _RETRY_SECONDS if has_failed else self._tools.settings.registry_seconds
            await asyncio.sleep(pause_seconds * (0.9 + 0.2 * self._tools.rng.random()))

    def _advice(self, exc: Exception) -> str:
        """What to look at where the engine is away: gRPC does not tell a closed port from a certificate it refuses."""
        if not isinstance(exc, EngineUnavailable):
            return ""
        addresses = ", ".join(self._tools.settings.engine)
        if not self._tools.settings.engine_tls:
            return f" (INFERQ_ENGINE={addresses})"
        return (
            f" (INFERQ_ENGINE={addresses}, over TLS: its certificate must come from INFERQ_ENGINE_CA_FILE and bear its "
            "name or INFERQ_ENGINE_SERVER_NAME; where it asks who calls, INFERQ_ENGINE_CERT_FILE answers)"
        )

    async def run_once(self) -> None:
        """Describe every ready model of the engine; publish what changed or Redis lost, and what the engine counted.

        Raises JobFailure when the engine does not answer, and StoreError when Redis does not.
        """
        index = await self._tools.engine.index(_ENGINE_TIMEOUT_SECONDS)
        wanted = self._tools.settings.models
        names = sorted({entry.name for entry in index if entry.is_ready and (not wanted or entry.name in wanted)})
        self._note_absent({entry.name for entry in index})
        self._note_unloaded(index)
        specs = [spec for name in names if (spec := await self._describe(name)) is not None]
        changed = [spec for spec in specs if self._published.get(spec.name) != spec]
        known = await self._registry.model_names()
        await self._registry.publish_models([spec for spec in specs if spec in changed or spec.name not in known])
        for spec in changed:
            self._published[spec.name] = spec
            self._adopt(spec)
        if changed:
            self._tools.changed.set()
        await self._publish_statistics(set(names))

    def _note_absent(self, names: set[str]) -> None:
        """Tell which models are wanted that the engine does not even know: misspelled, as a rule."""
        absent = set(self._tools.settings.models) - names
        if absent - self._absent:
            has = sorted(names)[:_SHOWN_MODELS]
            more = f" and {len(names) - len(has)} more" if len(names) > len(has) else ""
            log.warning(  # `inferq up` looks for this sentence
                "INFERQ_MODELS names %s, which the engine does not have; it has %s%s",
                ", ".join(sorted(absent)),
                ", ".join(has) or "none",
                more,
            )
        self._absent = absent

    def _note_unloaded(self, index: Sequence[IndexEntry]) -> None:
        wanted, ready = self._tools.settings.models, {entry.name for entry in index if entry.is_ready}
        unloaded = {
            entry.name: sentence(entry.reason)
            for entry in index
            if entry.has_failed and not (entry.name in ready or entry.name in self.lanes)
            if not wanted or entry.name in wanted
        }
        if unloaded != self.unloaded:
            for name in unloaded.keys() - self.unloaded.keys():
                log.warning("model %s: the engine could not load it: %s", name, unloaded[name])
            self.unloaded = unloaded
            self._tools.changed.set()

    async def _publish_statistics(self, names: set[str]) -> None:
        """Nothing that serves depends on them, and an engine may have been built without."""
        try:
            counted = await self._tools.engine.statistics_by_model(_ENGINE_TIMEOUT_SECONDS)
        except JobFailure as failure:
            log.debug("no statistics: %s", failure)
            return
        await self._registry.publish_statistics({name: each for name, each in counted.items() if name in names})

    async def _describe(self, name: str) -> ModelSpec | None:
        try:
            return await self._tools.engine.describe(name, "", _ENGINE_TIMEOUT_SECONDS)
        except JobFailure as failure:  # unloaded since the index was read, or broken: its neighbours still count
            log.warning("model %s can't be described: %s", name, failure)
            return None

    def _adopt(self, spec: ModelSpec) -> None:
        for each in (spec, *spec.variants):
            which = "" if each is spec else f", version {', '.join(each.versions)}"
            for note in (*each.notes, *([each.refusal] if each.refusal else [])):
                log.warning("model %s%s: %s", spec.name, which, note)
        if (lane := self.lanes.get(spec.name)) is not None:
            lane.adopt(spec)
        else:
            lane = self.lanes[spec.name] = Lane(self._tools, spec)
            log.info("serving model %s", spec.name)
            self._start_lane(lane)
