"""The engine's messages as plain data: as its HTTP front spells them, and added up over several engines."""

from __future__ import annotations

import json

from workers.triton import decode
from workers.triton.pb import inference_pb2 as pb
from workers.triton.plain import plain


def counted(inferences: int, sizes: dict[int, int], last: int, version: str = "1") -> pb.ModelStatistics:
    entry = pb.ModelStatistics(name="m", version=version, inference_count=inferences, last_inference=last)
    entry.inference_stats.success.count = inferences
    entry.inference_stats.success.ns = 10 * inferences
    for size, count in sizes.items():
        entry.batch_stats.add(batch_size=size).compute_infer.count = count
    return entry


def test_numbers_are_numbers_enumerations_are_names_and_defaults_are_there() -> None:
    config = pb.ModelConfig(name="m", input=[pb.ModelInput(name="x", data_type=pb.TYPE_STRING, dims=[-1, 2**40])])
    config.version_policy.specific.versions.extend([1, 3])
    config.parameters["k"].string_value = "v"
    shown = json.loads(json.dumps(plain(config)))
    assert shown["input"][0]["dims"] == [-1, 2**40]
    assert shown["input"][0]["data_type"] == "TYPE_STRING"
    assert (shown["input"][0]["optional"], shown["max_batch_size"]) == (False, 0)
    assert shown["version_policy"] == {"specific": {"versions": [1, 3]}}
    assert shown["parameters"] == {"k": {"string_value": "v"}}
    assert "dynamic_batching" not in shown


def test_a_float_is_the_number_that_was_written() -> None:
    config = pb.ModelConfig()
    config.sequence_batching.direct.minimum_slot_utilization = 0.3
    assert plain(config)["sequence_batching"]["direct"]["minimum_slot_utilization"] == 0.3


def test_engines_add_up_and_versions_do_not() -> None:
    here, there = counted(3, {1: 3}, last=5), counted(4, {1: 2, 2: 1}, last=9)
    models = decode.statistics_by_model([here, there, counted(1, {}, last=1, version="2")])
    first, second = models["m"]
    assert (first["version"], first["inference_count"], first["last_inference"]) == ("1", 7, 9)
    assert first["inference_stats"]["success"] == {"count": 7, "ns": 70}
    assert [(size["batch_size"], size["compute_infer"]["count"]) for size in first["batch_stats"]] == [(1, 5), (2, 1)]
    assert (second["version"], second["inference_count"]) == ("2", 1)
