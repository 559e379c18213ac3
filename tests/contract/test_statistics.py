"""What the engine counted, as workers publish it and the façade shows it."""

from __future__ import annotations

import pytest

from jobs import keys
from jobs.datatypes import Datatype
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from tests.support.stores import Rig

pytestmark = pytest.mark.anyio

ENTRY = {"name": "a", "version": "1", "inference_count": 7, "inference_stats": {"success": {"count": 3, "ns": 2**40}}}


async def test_what_was_published_last_is_read_for_the_models_asked_for(rig: Rig) -> None:
    await rig.registry.publish_statistics({"a": [ENTRY], "b": [{"name": "b", "version": "1"}]})
    await rig.registry.publish_statistics({"a": [ENTRY | {"inference_count": 9}]})
    assert await rig.registry.statistics(["a", "nobody"]) == {"a": [ENTRY | {"inference_count": 9}]}
    assert await rig.registry.statistics([]) == {}


async def test_a_forgotten_model_takes_its_statistics_along(rig: Rig) -> None:
    spec = ModelSpec("a", ("1",), 8, (InputSpec("x", Datatype.FP32, (1,)),), (OutputSpec("y", Datatype.FP32, (1,)),))
    await rig.registry.publish_models([spec])
    await rig.registry.publish_statistics({"a": [ENTRY]})
    await rig.registry.forget_model("a")
    assert await rig.registry.statistics(["a"]) == {}


async def test_nonsense_among_the_statistics_stops_nobody(rig: Rig) -> None:
    """V05."""
    await rig.registry.publish_statistics({"a": [ENTRY]})
    await rig.redis.hset(keys.STATISTICS_KEY, mapping={"n": b"\xc1", "m": b"\x92\x01\x05"})
    assert await rig.registry.statistics(["a", "n", "m"]) == {"a": [ENTRY]}
