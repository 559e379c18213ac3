"""Models and health: what may be asked for, and whether it would work now."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from jobs.registry import LaneState
from tests.api.harness import MODEL, Api, Backend, a_worker, identity_spec, of_two_shapes, running_api

pytestmark = pytest.mark.anyio


async def test_a_model_shows_what_it_takes_and_how_busy_it_is(api: Api) -> None:
    await api.submit()
    await api.submit()
    await api.hand.take()
    await api.beat(a_worker(LaneState.READY), a_worker(LaneState.ENGINE, worker_id="w-2"))
    response = await api.get(f"/models/{MODEL}")
    assert response.status_code == 200
    assert response.json() == {
        "name": MODEL,
        "versions": ["1", "2"],
        "ready": True,
        "refusal": None,
        "max_batch_size": 8,
        "variants": [],
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1], "optional": False, "kind": "tensor"}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1], "kind": "tensor", "top": None}],
        "platform": "",
        "instances": 1,
        "notes": [],
        "queued": 1,
        "in_progress": 1,
        "workers": 2,
        "lanes": {"ready": 1, "waiting_for_engine": 1, "batches_in_flight": 2, "credits": 4, "batch_size": 4},
        "urls": {"self": "/models/identity"},
    }


async def test_a_model_shows_which_of_its_versions_take_something_else(api: Api) -> None:
    await api.registry.publish_models([of_two_shapes()])
    await api.beat(a_worker())
    shown = (await api.get(f"/models/{MODEL}")).json()
    assert (shown["versions"], shown["ready"], shown["inputs"][0]["shape"]) == (["1", "2", "3"], True, [3])
    assert shown["variants"] == [
        {
            "versions": ["1"],
            "ready": True,
            "refusal": None,
            "max_batch_size": 0,
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "optional": False, "kind": "tensor"}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1], "kind": "tensor", "top": None}],
            "notes": [],
        },
        {
            "versions": ["2"],
            "ready": False,
            "refusal": "It is stateful.",
            "max_batch_size": 8,
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "optional": False, "kind": "tensor"}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1], "kind": "tensor", "top": None}],
            "notes": [],
        },
    ]


async def test_models_are_listed_by_name_and_ready_only_where_a_worker_has_its_engine(api: Api) -> None:
    """B044."""
    await api.registry.publish_models([identity_spec("a"), identity_spec("b", refusal="It is stateful.")])
    await api.beat(a_worker(LaneState.READY, "b", MODEL), a_worker(LaneState.ENGINE, "a", worker_id="w-2"))
    listed = (await api.get("/models")).json()["models"]
    assert [(model["name"], model["ready"]) for model in listed] == [("a", False), ("b", False), (MODEL, True)]
    assert listed[1]["refusal"] == "It is stateful."


@pytest.mark.parametrize("name", ["resnet", "%2e%2e", "a" * 300, "%00", "%0a", "%ff"])
async def test_a_model_that_nobody_registered_is_a_404_that_lists_the_known_ones(api: Api, name: str) -> None:
    response = await api.get(f"/models/{name}")
    assert (response.status_code, response.json()["code"]) == (404, "unknown_model")
    assert response.json()["models"] == [MODEL]


async def test_a_model_that_an_engine_could_not_load_is_shown_and_refused_with_the_reason(api: Api) -> None:
    unloaded = {"broken": "It raised.", MODEL: "Another engine could."}
    await api.beat(replace(a_worker(), unloaded=unloaded))
    shown = {model["name"]: model["refusal"] for model in (await api.get("/models")).json()["models"]}
    assert shown["broken"] == "The engine could not load it: It raised."
    assert shown[MODEL] is None
    refused = await api.post(model="broken")
    assert 400 <= refused.status_code < 500
    assert "It raised." in refused.json()["detail"]
    for path in ("/models/broken", "/v2/models/broken", "/v2/models/broken/ready"):
        assert (await api.get(path)).status_code < 500
    await api.beat(a_worker())
    assert (await api.post(model="broken")).status_code == 404


async def test_a_model_whose_name_needs_quoting_has_a_path_that_works(api: Api) -> None:
    await api.registry.publish_models([identity_spec("a b?c#d%")])
    await api.services.catalog.refresh()
    path = next(m["urls"]["self"] for m in (await api.get("/models")).json()["models"] if m["name"] != MODEL)
    assert (await api.get(path)).json()["name"] == "a b?c#d%"


async def test_ready_counts_models_and_live_workers(api: Api) -> None:
    await api.beat(a_worker(LaneState.READY))
    response = await api.get("/health/ready")
    assert response.status_code == 200
    assert response.json() == {"status": "ready", "reasons": [], "models": 1, "workers": 1, "webhook_workers": 0}


async def test_without_any_model_it_is_live_but_not_ready(backend: Backend) -> None:
    async with running_api(backend) as api:
        await api.services.catalog.refresh()
        response = await api.get("/health/ready")
        assert response.status_code == 503
        assert response.json()["status"] == "not_ready"
        assert response.json()["reasons"] == ["No worker has registered a model yet"]
        assert (await api.get("/health/live")).json() == {"status": "live"}


async def test_what_was_known_stays_usable_while_redis_is_away(start_valkey: object) -> None:
    server = start_valkey()  # type: ignore[operator]
    async with running_api(Backend(server.url), models=[identity_spec()]) as api:
        await asyncio.to_thread(server.stop)
        await api.services.catalog.refresh_once()
        response = await api.get("/health/ready")
        assert response.status_code == 503
        assert response.json()["reasons"] == ["Redis does not answer"]
        assert response.json()["models"] == 1
        refused = await api.post()
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        await asyncio.to_thread(server.start)
        await api.services.catalog.refresh_once()
        assert (await api.get("/health/ready")).status_code == 200
        assert (await api.post()).status_code == 202
