"""What workers say of themselves and of models; nonsense in it is passed over."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from jobs import codec, keys
from jobs.datatypes import Datatype
from jobs.registry import SILENCE_MS, LaneBeat, LaneState, WorkerBeat
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from jobs.store import Release
from tests.support.stores import MODEL, START_MS, Rig

pytestmark = pytest.mark.anyio

NONSENSE = [
    b"",
    b"\xff\xfe",
    b"\x80\x04pickle",
    codec.encode(None),
    codec.encode([]),
    codec.encode("x"),
    codec.encode({}),
]


def _spec(name: str = MODEL, **options: object) -> ModelSpec:
    inputs = (InputSpec("x", Datatype.FP32, (16,)),)
    outputs = (OutputSpec("y", Datatype.FP32, (-1,)),)
    return ModelSpec(name, ("1", "2"), 8, inputs, outputs, **options)  # type: ignore[arg-type]


def _beat(worker_id: str, **lanes: LaneBeat) -> WorkerBeat:
    return WorkerBeat(worker_id, "host", 42, "1.0", lanes)


async def test_models_are_known_as_their_workers_described_them(rig: Rig) -> None:
    await rig.registry.publish_models([])
    assert await rig.registry.models() == {}
    await rig.registry.publish_models([_spec("a"), _spec("b")])
    await rig.registry.publish_models([_spec("a", refusal="No.")])
    assert await rig.registry.models() == {"a": _spec("a", refusal="No."), "b": _spec("b")}
    assert await rig.registry.model("b") == _spec("b")
    assert await rig.registry.model_names() == {"a", "b"}
    assert await rig.registry.model("c") is None
    await rig.registry.forget_model("a")
    assert set(await rig.registry.models()) == {"b"}


async def test_a_model_of_a_newer_version_is_not_known_here_and_not_touched(rig: Rig) -> None:
    """B021."""
    newer = bytes([0x92, codec.VERSION + 1, 0x80])
    await rig.registry.publish_models([_spec("a")])
    await rig.redis.hset(keys.MODELS_KEY, mapping={"b": newer})
    assert set(await rig.registry.models()) == {"a"}
    assert await rig.registry.model("b") is None
    assert await rig.redis.hget(keys.MODELS_KEY, "b") == newer


async def test_fields_that_a_newer_process_adds_are_passed_over(rig: Rig) -> None:
    plain = _spec("a").to_plain() | {"something_new": 1}
    await rig.redis.hset(keys.MODELS_KEY, mapping={"a": codec.encode(plain)})
    assert await rig.registry.model("a") == _spec("a")


async def test_versions_that_differ_are_told_apart_and_an_older_worker_tells_one_spec_for_all(rig: Rig) -> None:
    variant = ModelSpec("a", ("1",), 0, (InputSpec("w", Datatype.INT64, (2,)),), (), refusal="No.")
    await rig.registry.publish_models([_spec("a", variants=(variant,)), _spec("b")])
    found = await rig.registry.models()
    assert found["a"] == _spec("a", variants=(variant,))
    assert (found["a"].of_version("1"), found["a"].of_version("2")) == (variant, found["a"])
    assert found["b"].of_version("1") is found["b"]
    (raw,) = await rig.redis.hmget(keys.MODELS_KEY, "b")
    assert "variants" not in codec.decode(raw)


@pytest.mark.parametrize("variants", [None, 1, "x", ["x"], [None], [{}], [{"name": "a"}], {"name": "a"}])
async def test_variants_that_make_no_sense_stop_nobody(rig: Rig, variants: object) -> None:
    """V05."""
    await rig.registry.publish_models([_spec("b")])
    plain = _spec("a").to_plain() | {"variants": variants}
    await rig.redis.hset(keys.MODELS_KEY, mapping={"a": codec.encode(plain)})
    assert set(await rig.registry.models()) == {"b"}


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_nonsense_in_the_registry_stops_nobody(rig: Rig, nonsense: bytes) -> None:
    """V05."""
    await rig.registry.publish_models([_spec("a")])
    await rig.redis.hset(keys.MODELS_KEY, mapping={b"\xff": nonsense, "n": nonsense})
    await rig.registry.beat(_beat("w"))
    for field, text in (
        (b"\xff", nonsense),
        (b"n", b"x " + nonsense),
        (b"l", str(START_MS).encode() + b" " + nonsense),
    ):
        await rig.redis.hset(keys.WORKERS_KEY, mapping={field: text})
    assert set(await rig.registry.models()) == {"a"}
    assert await rig.registry.workers() == [_beat("w")]


async def test_a_name_that_is_no_text_stops_nobody(rig: Rig) -> None:
    """V05."""
    await rig.registry.publish_models([_spec("a")])
    await rig.redis.hset(keys.MODELS_KEY, mapping={b"\xff\xfe": b"x"})
    await rig.redis.hset(keys.MODELS_KEY, mapping={b"\xfe": codec.encode(_spec("a").to_plain())})
    assert await rig.registry.models() == {"a": _spec("a")}


async def test_a_silent_worker_is_forgotten_and_one_that_beats_is_not(rig: Rig) -> None:
    """B016: a dead worker looks dead within ten seconds."""
    lane = LaneBeat(LaneState.ENGINE, 1, 2, 8)
    await rig.registry.beat(_beat("silent"))
    await rig.registry.beat(_beat("alive"))
    rig.clock.advance(SILENCE_MS)
    await rig.registry.beat(_beat("alive", resnet=lane))
    assert {worker.id for worker in await rig.registry.workers()} == {"silent", "alive"}
    rig.clock.advance(1)
    assert await rig.registry.workers() == [_beat("alive", resnet=lane)]
    assert await rig.redis.hkeys(keys.WORKERS_KEY) == [b"alive"]


async def test_a_worker_that_leaves_is_gone_at_once(rig: Rig) -> None:
    await rig.registry.beat(_beat("w"))
    await rig.registry.leave("w")
    await rig.registry.leave("w")
    assert await rig.registry.workers() == []


async def test_models_stay_known_when_all_workers_are_gone(rig: Rig) -> None:
    await rig.registry.publish_models([_spec()])
    await rig.registry.beat(_beat("w"))
    rig.clock.advance(1000 * SILENCE_MS)
    assert await rig.registry.workers() == []
    assert set(await rig.registry.models()) == {MODEL}


async def test_depths_count_queued_and_running_jobs(rig: Rig) -> None:
    for _ in range(3):
        await rig.submit()
    await rig.submit(run_at_ms=START_MS + 1000)
    lease = await rig.lease()
    assert await rig.registry.depths([MODEL, "other"]) == {MODEL: (3, 1), "other": (0, 0)}
    await rig.store.settle([Release(lease, 500)])
    assert await rig.registry.depths([MODEL]) == {MODEL: (4, 0)}
    assert await rig.registry.depths([]) == {}


async def test_what_an_engine_could_not_load_is_told_and_an_older_worker_tells_nothing(rig: Rig) -> None:
    await rig.registry.beat(WorkerBeat("w", "host", 42, "1.0", unloaded={"broken": "It raised."}))
    (beat,) = await rig.registry.workers()
    assert beat.unloaded == {"broken": "It raised."}
    (raw,) = await rig.redis.hvals(keys.WORKERS_KEY)
    at, older = raw[: -len(codec.encode(asdict(beat)))], {k: v for k, v in asdict(beat).items() if k != "unloaded"}
    await rig.redis.hset(keys.WORKERS_KEY, "w", at + codec.encode(older))
    (beat,) = await rig.registry.workers()
    assert beat.unloaded == {}


async def test_a_queue_is_as_old_as_the_job_that_is_next(rig: Rig) -> None:
    await rig.submit()
    rig.clock.advance(90_000)
    await rig.submit()
    await rig.submit(model="later", run_at_ms=rig.clock.now_ms + 60_000)
    names = [MODEL, "later", "idle"]
    assert await rig.registry.ages_seconds(names) == {MODEL: 90.0, "later": 0.0, "idle": 0.0}
    await rig.claim(1)
    rig.clock.advance(61_500)
    assert await rig.registry.ages_seconds(names) == {MODEL: 61.5, "later": 1.5, "idle": 0.0}
    assert await rig.registry.ages_seconds([]) == {}
