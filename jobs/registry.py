"""What workers publish about themselves and their models, and what the api validates against.

A model stays known when its workers go away; a worker is forgotten soon after its last heartbeat.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from jobs import codec, keys
from jobs.connection import Call, Connection
from jobs.spec import ModelSpec

SILENCE_MS: Final = 10_000
"""A worker that has not been heard of for so long counts as dead."""


class LaneState(StrEnum):
    """How a worker stands with one model."""

    READY = "ready"
    ENGINE = "engine"
    """The engine does not answer for this model; its jobs wait."""


@dataclass(frozen=True, slots=True)
class LaneBeat:
    """One model's path through a worker: `in_flight` of `credits` batches, `batch_size` is what it claims at a time."""

    state: LaneState
    in_flight: int
    credits: int
    batch_size: int


class WorkerRole(StrEnum):
    """What a worker works on."""

    INFERENCE = "inference"
    WEBHOOKS = "webhooks"


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """What a live worker says of itself."""

    id: str
    host: str
    pid: int
    version: str
    lanes: Mapping[str, LaneBeat] = field(default_factory=dict)
    role: WorkerRole = WorkerRole.INFERENCE
    unloaded: Mapping[str, str] = field(default_factory=dict)
    """Models that its engine has and could not load, with the engine's reason."""


class Registry:
    """Models and workers in one Redis; raises what `Connection.run` raises."""

    def __init__(self, connection: Connection, clock_ms: Callable[[], int] = lambda: 0) -> None:
        """`clock_ms` overrides Redis' clock in tests."""
        self._connection = connection
        self._clock_ms = clock_ms

    async def publish_models(self, specs: Sequence[ModelSpec]) -> None:
        """Make these models known, each in place of what was known of it."""
        if specs:
            fields = [part for spec in specs for part in (spec.name, codec.encode(spec.to_plain()))]
            await self._connection.run(Call("HSET", keys.MODELS_KEY, *fields))

    async def models(self) -> dict[str, ModelSpec]:
        """Every model that a worker ever registered and nobody removed."""
        (flat,) = await self._connection.run(Call("HGETALL", keys.MODELS_KEY))
        return {spec.name: spec for raw in flat.values() if (spec := _spec(raw)) is not None}

    async def model_names(self) -> set[str]:
        """The names of the same models."""
        (names,) = await self._connection.run(Call("HKEYS", keys.MODELS_KEY))
        return {name.decode("utf-8", "replace") for name in names}

    async def model(self, name: str) -> ModelSpec | None:
        """One model, or None."""
        (raw,) = await self._connection.run(Call("HGET", keys.MODELS_KEY, name))
        return _spec(raw) if raw is not None else None

    async def forget_model(self, name: str) -> None:
        """Stop accepting jobs for a model; those that are queued stay."""
        await self._connection.run(Call("HDEL", keys.MODELS_KEY, name), Call("HDEL", keys.STATISTICS_KEY, name))

    async def publish_statistics(self, entries: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Make known what the engine counted: by model, an entry for each version, in the engine's own words."""
        if entries:
            fields = [part for name, versions in entries.items() for part in (name, codec.encode(list(versions)))]
            await self._connection.run(Call("HSET", keys.STATISTICS_KEY, *fields))

    async def statistics(self, models: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """What was last published for these models; those that nothing is known of are left out."""
        if not models:
            return {}
        (raws,) = await self._connection.run(Call("HMGET", keys.STATISTICS_KEY, *models))
        found = {name: _statistics(raw) for name, raw in zip(models, raws, strict=True) if raw is not None}
        return {name: versions for name, versions in found.items() if versions is not None}

    async def beat(self, beat: WorkerBeat) -> None:
        """Say that this worker is alive."""
        await self._connection.run(Call(self._clock_ms(), beat.id, codec.encode(asdict(beat)), script="beat"))

    async def leave(self, worker_id: str) -> None:
        """Say that this worker ends."""
        await self._connection.run(Call("HDEL", keys.WORKERS_KEY, worker_id))

    async def workers(self) -> list[WorkerBeat]:
        """The live workers."""
        (entries,) = await self._connection.run(Call(self._clock_ms(), SILENCE_MS, script="roster"))
        return [beat for raw in entries if (beat := _beat(raw)) is not None]

    async def depths(self, models: Sequence[str]) -> dict[str, tuple[int, int]]:
        """(queued, in progress) of each model."""
        if not models:
            return {}
        calls = [
            Call("ZCARD", key(model))
            for model in models
            for key in (keys.ready_key, keys.scheduled_key, keys.leased_key)
        ]
        counts: list[int] = await self._connection.run(*calls)
        return {model: (counts[3 * i] + counts[3 * i + 1], counts[3 * i + 2]) for i, model in enumerate(models)}

    async def ages_seconds(self, models: Sequence[str]) -> dict[str, float]:
        """For how long the job of each model that is next has been due; 0 where none is."""
        if not models:
            return {}
        calls = [
            call
            for model in models
            for call in (
                Call("ZRANGE", keys.ready_key(model), 0, 0),
                Call("ZRANGE", keys.scheduled_key(model), 0, 0, "WITHSCORES"),
            )
        ]
        (seconds, _), *firsts = await self._connection.run(Call("TIME"), *calls)
        next_ids = [ready[0].decode() if ready else "" for ready in firsts[::2]]
        dues = await self._connection.run(*(Call("HGET", keys.job_key(job_id), "due_ms") for job_id in next_ids))
        now_ms = self._clock_ms() or int(seconds) * 1000
        ages: dict[str, float] = {}
        for model, due, scheduled in zip(models, dues, firsts[1::2], strict=True):
            due_ms = min(float(instant) for instant in (due, *scheduled[1:], now_ms) if instant is not None)
            ages[model] = (now_ms - due_ms) / 1000
        return ages


def _spec(raw: bytes) -> ModelSpec | None:
    """The spec, or None where a newer version wrote it: this process then does not know the model."""
    try:
        with codec.reading("model spec"):
            return ModelSpec.from_plain(codec.decode(raw))
    except codec.CodecError:
        return None


def _statistics(raw: bytes) -> list[dict[str, Any]] | None:
    try:
        with codec.reading("statistics"):
            return [dict(version) for version in codec.decode(raw)]
    except codec.CodecError:
        return None


def _beat(raw: bytes) -> WorkerBeat | None:
    try:
        with codec.reading("heartbeat"):
            plain: dict[str, Any] = codec.decode(raw)
            lanes = {
                name: LaneBeat(LaneState(lane["state"]), lane["in_flight"], lane["credits"], lane["batch_size"])
                for name, lane in plain["lanes"].items()
            }
            role = WorkerRole(plain["role"])
            unloaded = {str(name): str(why) for name, why in plain.get("unloaded", {}).items()}
            return WorkerBeat(plain["id"], plain["host"], plain["pid"], plain["version"], lanes, role, unloaded)
    except codec.CodecError:
        return None
