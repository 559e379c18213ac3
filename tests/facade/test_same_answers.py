"""NVIDIA's own client, unmodified, against the product and against the engine: all that differs stands in this file."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from inferq.stack import StackEnvironment, TritonServer
from tests.support.models import CONFIG_TYPES, identity_name

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.server, pytest.mark.process, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("triton_client.py")
STATEFUL = "sequence"
"""The one model that is not served: its requests depend on one another."""

READING = ("config", "statistics")
Report = dict[str, Any]


async def report_of(environment: StackEnvironment, address: str) -> Report:
    """What the client gets there."""
    python = environment.folder / "bin" / "python3"
    process = await asyncio.create_subprocess_exec(
        str(python), str(SCRIPT), address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(100):
            printed, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, complaints.decode()
    report: Report = json.loads(printed)
    return report


@pytest.fixture(scope="module")
async def direct(stack_environment: StackEnvironment, engine: TritonServer) -> Report:
    """What it gets from the engine."""
    return await report_of(stack_environment, engine.http_address)


@pytest.fixture(scope="module")
async def ours(stack_environment: StackEnvironment, product_url: str) -> Report:
    """What it gets from the product."""
    return await report_of(stack_environment, urlsplit(product_url).netloc)


async def test_every_model_gives_the_same_numbers_and_refuses_the_same_requests(direct: Report, ours: Report) -> None:
    """Sync client: raw, JSON and mixed forms, both compressions, classes, ids, versions, parameters, wrong requests."""
    assert set(direct["models"]) - set(ours["models"]) == {STATEFUL}
    for model, outcomes in ours["models"].items():
        for what, outcome in outcomes.items():
            if what not in READING:
                assert outcome == direct["models"][model][what], f"{model}: {what}"


async def test_what_is_compared_are_numbers_for_every_datatype_and_refusals_for_every_wrong_request(
    direct: Report,
) -> None:
    """The comparison above is worth nothing where both sides only fail."""
    for datatype in CONFIG_TYPES:
        for batching in (True, False):
            outcomes = direct["models"][identity_name(datatype, batching=batching)]
            assert outcomes["binary"]["result"]["outputs"]["output"][0] == datatype
            refused = {what: outcome["refused"] for what, outcome in outcomes.items() if "refused" in outcome}
            assert refused == {
                **dict.fromkeys(("wrong name", "wrong rank", "wrong datatype", "input twice", "no input"), "400"),
                **dict.fromkeys(("unknown output",), "400"),
                "unknown version": "404",
            }


async def test_an_optional_input_may_be_left_out(direct: Report) -> None:
    outcome = direct["models"]["affine"]["required inputs"]
    assert outcome["result"]["outputs"]["given"] == ["INT32", [2, 1], "0100000001000000"]


async def test_the_asynchronous_client_gets_the_same_numbers_from_all_models_at_once(
    direct: Report, ours: Report
) -> None:
    assert ours["aio"] == {name: outcome for name, outcome in direct["aio"].items() if name != STATEFUL}


async def test_health_and_unknown_models_read_the_same(direct: Report, ours: Report) -> None:
    for what in ("live", "ready", "unknown model", "inference of an unknown model", "is an unknown model ready"):
        assert ours[what] == direct[what], what


async def test_a_configuration_is_the_engines_down_to_the_last_default(direct: Report, ours: Report) -> None:
    assert {"elaborate", "ensemble", "decoupled_repeat", "efficientnet_lite0"} <= set(ours["models"])
    for model, outcomes in ours["models"].items():
        assert outcomes["config"] == direct["models"][model]["config"], model


async def test_statistics_are_the_engines_without_memory_and_responses(direct: Report, ours: Report) -> None:
    for model, outcomes in ours["models"].items():
        whole = direct["models"][model]["statistics"]["result"]
        members = [name for name in whole["members"] if name not in ("memory_usage", "response_stats")]
        assert outcomes["statistics"]["result"] == whole | {"members": members}


async def test_the_index_lists_the_same_models_and_says_why_one_is_not_served(direct: Report, ours: Report) -> None:
    for entry, ours_entry in zip(direct["index"], ours["index"], strict=True):
        if entry["name"] == STATEFUL:
            assert ours_entry["state"] == "UNAVAILABLE"
            assert "sequence" in ours_entry["reason"]
        else:
            assert ours_entry == entry


async def test_what_concerns_the_engines_process_is_refused_clearly(ours: Report) -> None:
    assert {outcome.get("refused") for outcome in ours["refused"].values()} == {"501"}
    assert ours["server"]["name"] == "inferq"
    assert "system_shared_memory" not in ours["server"]["extensions"]
