"""The façade `/v2` where NVIDIA's client does not look: jobs behind it, failures, limits, compression, other paths."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from jobs.datatypes import Datatype
from jobs.errors import ERROR_KINDS, ErrorCode
from jobs.registry import LaneState
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from tests.api.harness import (
    MODEL,
    Api,
    Backend,
    a_worker,
    floats,
    identity_spec,
    of_two_shapes,
    running_api,
    until,
)

pytestmark = pytest.mark.anyio

INFER = f"/v2/models/{MODEL}/infer"
FAILURES = [code for code in ErrorCode if code not in (ErrorCode.CANCELED, ErrorCode.EXPIRED)]

NOT_UNSIGNED: list[Any] = [-1, 1.5, None, "5", {}, True, 2**64]


def document(*values: float, **members: Any) -> dict[str, Any]:
    """A request for one row of these values."""
    row = list(values or (1.0, 2.0))
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, len(row)], "data": row}], **members}


async def answered(api: Api, *values: float, **request: Any) -> httpx.Response:
    """The answer to a call that a worker succeeds with `values` in one row."""
    request.setdefault("json", document())
    call = asyncio.create_task(api.client.post(INFER, **request))
    claimed = (await claim(api))[0]
    tensor = floats(*(values or (1.0, 2.0)))
    await api.hand.succeed(claimed, type(tensor)("y", tensor.datatype, (1, *tensor.shape), tensor.data))
    return await call


async def claim(api: Api) -> list[Any]:
    found: list[Any] = []

    async def has_come() -> bool:
        found.extend(await api.hand.claim())
        return bool(found)

    await until(has_come)
    return found


async def test_a_call_is_a_job_that_leaves_nothing_once_it_is_answered(api: Api) -> None:
    response = await answered(api, json=document(id="mine"))
    assert response.status_code == 200, response.text
    assert response.json() == {
        "id": "mine",
        "model_name": MODEL,
        "model_version": "2",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}],
    }
    assert (await api.get(f"/jobs/{response.headers['x-job-id']}")).status_code == 404


@pytest.mark.parametrize("code", FAILURES)
async def test_a_failure_has_its_codes_status_and_tritons_form_and_the_record_stays(api: Api, code: ErrorCode) -> None:
    call = asyncio.create_task(api.client.post(INFER, json=document()))
    await api.hand.fail((await claim(api))[0], code, "It broke.")
    response = await call
    assert response.status_code == ERROR_KINDS[code].status
    assert response.json() == {"error": "It broke.", "code": code}
    assert (await api.job(response.headers["x-job-id"]))["status"] == "failed"


async def test_a_call_that_nobody_takes_in_time_is_504_and_503_where_nobody_could(api: Api) -> None:
    request = document(parameters={"timeout": 1000})
    response = await api.client.post(INFER, json=request)
    assert (response.status_code, response.json()["code"]) == (503, "engine_unavailable")
    await api.beat(a_worker(LaneState.READY, MODEL))
    response = await api.client.post(INFER, json=request)
    assert (response.status_code, response.json()["code"]) == (504, "expired")
    assert response.json()["error"] == "No worker took it within its `timeout`."
    assert (await api.job(response.headers["x-job-id"]))["status"] == "expired"


async def test_a_call_that_says_no_timeout_is_told_how_long_it_may_wait(backend: Backend) -> None:
    """In no word of ours that the client never used."""
    async with running_api(backend, models=[identity_spec()], call_queue_seconds=0.02) as api:
        await api.beat(a_worker(LaneState.READY, MODEL))
        response = await api.client.post(INFER, json=document(parameters={"timeout": 0}))
    assert (response.status_code, response.json()["error"]) == (504, "No worker took it within 0.02 seconds.")


async def test_a_parameter_that_is_called_like_an_option_of_a_job_is_the_models(api: Api) -> None:
    """As with Triton, whose parameters are none of ours."""
    given = {"webhook": "x", "metadata": "y", "model_version": "1", "max_failures": 2}
    call = asyncio.create_task(api.client.post(INFER, json=document(parameters=given | {"priority": 1})))
    claimed = (await claim(api))[0]
    assert claimed.request.parameters == given
    call.cancel()


async def test_a_call_that_somebody_cancels_is_499(api: Api) -> None:
    call = asyncio.create_task(api.client.post(INFER, json=document()))
    claimed = (await claim(api))[0]
    await api.client.post(f"/jobs/{claimed.lease.job_id}/cancel")
    response = await call
    assert (response.status_code, response.json()["code"]) == (499, "canceled")


async def test_a_call_whose_process_stops_is_503_and_its_job_is_canceled(api: Api) -> None:
    call = asyncio.create_task(api.client.post(INFER, json=document()))
    claimed = (await claim(api))[0]
    api.services.waiters.quiet()
    response = await call
    assert (response.status_code, response.json()["code"]) == (503, "shutting_down")
    assert (await api.job(claimed.lease.job_id))["status"] == "canceled"


async def test_a_call_whose_client_hangs_up_is_canceled(api: Api) -> None:
    """B042."""
    body = orjson.dumps(document())
    has_sent = False
    hang_up = asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal has_sent
        if not has_sent:
            has_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
        "path": INFER, "raw_path": b"", "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [], "client": ("127.0.0.1", 1), "server": ("api", 80), "state": {},
    }  # fmt: skip
    application: Any = api.client._transport
    call = asyncio.create_task(application.app(scope, receive, send))
    claimed = (await claim(api))[0]
    hang_up.set()
    await call
    assert (await api.job(claimed.lease.job_id))["status"] == "canceled"


async def test_respond_async_turns_a_call_into_a_job(api: Api) -> None:
    headers = {"Prefer": "respond-async", "Idempotency-Key": "k"}
    response = await api.client.post(INFER, json=document(), headers=headers)
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "respond-async"
    job_id = response.json()["id"]
    assert response.headers["location"] == f"/jobs/{job_id}"
    again = await api.client.post(INFER, json=document(), headers=headers)
    assert (again.json()["id"], again.headers["idempotent-replayed"]) == (job_id, "true")
    await api.hand.succeed(await api.hand.take(), floats(1.0))
    assert (await api.job(job_id))["output"]["y"]["data"] == [1.0]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_bodies_are_compressed_both_ways(api: Api, coding: str) -> None:
    compress = gzip.compress if coding == "gzip" else zlib.compress
    headers = {"Content-Encoding": coding, "Accept-Encoding": coding}
    response = await answered(api, content=compress(orjson.dumps(document())), headers=headers)
    assert response.status_code == 200
    assert response.headers["content-encoding"] == coding
    assert response.json()["outputs"][0]["data"] == [1.0, 2.0]


async def test_a_client_that_asks_for_no_compression_gets_none(api: Api) -> None:
    response = await answered(api, json=document(), headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (gzip.compress(bytes(20_000_000)), "gzip", 413),
        (zlib.compress(b" " * 3_000_000), "deflate", 413),
        (gzip.compress(orjson.dumps(document()))[:-4], "gzip", 400),
        (gzip.compress(orjson.dumps(document())) + b"more", "gzip", 400),
        (b"not compressed at all", "gzip", 400),
        (orjson.dumps(document()), "br", 415),
        (gzip.compress(gzip.compress(b"{}")), "gzip, gzip", 415),
    ],
    ids=["zeros", "spaces", "cut", "more behind", "not compressed", "another coding", "twice"],
)
async def test_a_body_that_expands_too_far_or_not_at_all_is_refused(
    api: Api, body: bytes, coding: str, status: int
) -> None:
    """T: Content-Encoding."""
    response = await api.client.post(INFER, content=body, headers={"Content-Encoding": coding})
    assert response.status_code == status, response.text
    assert len(response.json()["error"]) > 10


async def test_compression_stays_out_of_the_jobs_own_paths(api: Api) -> None:
    """T: Content-Encoding."""
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    response = await api.client.post("/jobs", content=gzip.compress(b"{}"), headers=headers)
    assert response.status_code == 415


async def test_outputs_come_raw_or_as_json_each_as_it_is_asked_for(backend: Backend) -> None:
    two = ModelSpec(
        MODEL,
        ("1",),
        8,
        (InputSpec("x", Datatype.FP32, (-1,)),),
        (OutputSpec("y", Datatype.FP32, (-1,)), OutputSpec("z", Datatype.FP32, (-1,))),
    )
    async with running_api(backend, models=[two]) as api:
        outputs = [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]
        call = asyncio.create_task(api.client.post(INFER, json=document(outputs=outputs)))
        await api.hand.succeed((await claim(api))[0], floats(3.0, name="z"), floats(4.0))
        response = await call
    length = int(response.headers["inference-header-content-length"])
    head = orjson.loads(response.content[:length])
    assert [output["name"] for output in head["outputs"]] == ["z", "y"]
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 4}
    assert head["outputs"][1]["data"] == [4.0]
    assert response.content[length:] == np.float32(3.0).tobytes()


async def test_a_raw_body_is_the_one_inputs_elements(api: Api) -> None:
    values = np.array([1.5, 2.5, 3.5], np.float32)
    headers = {"Inference-Header-Content-Length": "0"}
    call = asyncio.create_task(api.client.post(INFER, content=values.tobytes(), headers=headers))
    claimed = (await claim(api))[0]
    (part,) = claimed.request.inputs
    assert (part.name, part.shape, claimed.request.rows) == ("x", (1, 3), 1)
    await api.hand.succeed(claimed, floats(1.0))
    response = await call
    assert response.content.endswith(np.float32(1.0).tobytes())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}, "batch"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [9, 1], "data": [1] * 9}]}, "9 rows"),
        ({"inputs": "x"}, "inputs"),
        ({"inputs": [1]}, "not an object"),
        ({"parameters": 1}, "parameters"),
        *(({"parameters": {"timeout": wrong}}, "timeout") for wrong in (*NOT_UNSIGNED, 10**12)),
        *(({"parameters": {"priority": wrong}}, "priority") for wrong in NOT_UNSIGNED),
        ({"parameters": {"binary_data_output": 1}}, "binary_data_output"),
        ({"outputs": [{"name": "y", "parameters": {"classification": -1}}]}, "classification"),
        ({"outputs": ["y"]}, "outputs"),
        ({"parameters": {"triton_x": 1}}, "reserved"),
        ({"parameters": {"": 1}}, "1 to 255 characters, got 0"),
        ({"parameters": {"n" * 256: 1}}, "1 to 255 characters, got 256"),
        *(({"parameters": {"sequence_id": wrong}}, "sequence_id") for wrong in (-1, 1.5, True)),
        ({"parameters": {"sequence_start": 1}}, "sequence_start"),
        ({"parameters": {"sequence_end": "true"}}, "sequence_end"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": ["/9j/4AAQ" * 20, 1]}]}, "POST /jobs"),
    ],
)
async def test_a_wrong_request_is_400_in_tritons_form(api: Api, change: dict[str, Any], word: str) -> None:
    response = await api.client.post(INFER, json=document() | change)
    assert response.status_code == 400, response.text
    assert word in response.json()["error"]


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": [{"name": "x", "parameters": {"shared_memory_region": "r"}}]},
        {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]},
    ],
)
async def test_shared_memory_is_501(api: Api, change: dict[str, Any]) -> None:
    """T: Model name / version."""
    response = await api.client.post(INFER, json=document() | change)
    assert (response.status_code, response.json()["code"]) == (501, "not_supported")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *((method, "/v2/repository/models/m/load", 501) for method in ("POST", "GET")),
        ("POST", "/v2/repository/models/m/unload", 501),
        ("POST", "/v2/systemsharedmemory/region/r/register", 501),
        ("GET", "/v2/cudasharedmemory/status", 501),
        ("POST", "/v2/trace/setting", 501),
        ("GET", f"/v2/models/{MODEL}/trace/setting", 501),
        ("POST", "/v2/logging", 501),
        ("POST", f"/v2/models/{MODEL}/generate", 501),
        ("GET", "/v2/", 404),
        ("GET", "/v2/nothing", 404),
        ("GET", INFER, 405),
        ("DELETE", f"/v2/models/{MODEL}", 405),
        ("GET", "/v2/models/nobody", 404),
        ("GET", f"/v2/models/{MODEL}/versions/9", 404),
        ("GET", f"/v2/models/{MODEL}/versions/9/stats", 400),
        ("GET", "/v2/models/nobody/stats", 400),
        ("GET", "/v2/models/nobody/ready", 400),
    ],
)
async def test_what_is_not_there_is_refused_in_tritons_form(api: Api, method: str, path: str, status: int) -> None:
    response = await api.client.request(method, path)
    assert response.status_code == status
    assert isinstance(response.json()["error"], str)
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize(
    "parameters",
    [
        {"sequence_id": 0, "sequence_start": False, "sequence_end": False},
        {"sequence_id": 7, "sequence_start": True},
        {"sequence_id": "mine", "sequence_end": True},
        None,
    ],
)
async def test_a_sequence_means_nothing_to_a_model_without_state(api: Api, parameters: Any) -> None:
    """B049: a model that keeps state is refused; to all others they are what they are to Triton: nothing."""
    asked = document() | {"parameters": parameters, "id": None, "outputs": None}
    call = asyncio.create_task(api.client.post(INFER, json=asked))
    claimed = (await claim(api))[0]
    assert claimed.request.parameters == {}
    await api.hand.succeed(claimed, floats(1.0))
    assert (await call).status_code == 200


Y_AND_Z = replace(
    identity_spec("two"), outputs=(OutputSpec("y", Datatype.FP32, (-1,)), OutputSpec("z", Datatype.FP32, (-1,)))
)


@pytest.mark.parametrize(
    ("asked", "names", "raw"),
    [
        ([{"name": "z"}, {"name": "y"}], "yz", ""),
        ([{"name": "z"}, {"name": "z", "parameters": {"binary_data": True}}], "z", ""),
        ([{"name": "z", "parameters": {"binary_data": True}}, {"name": "z"}, {"name": "y"}], "yz", "z"),
        ([], "yz", "yz"),
        (None, "yz", "yz"),
    ],
)
async def test_outputs_come_once_in_the_models_order_and_raw_where_that_is_said_of_them(
    asked: Any, names: str, raw: str
) -> None:
    """`binary_data_output` is about a request that names no outputs."""
    async with running_api(Backend(), models=[Y_AND_Z]) as api:
        request = document() | {"outputs": asked, "parameters": {"binary_data_output": True}}
        call = asyncio.create_task(api.client.post("/v2/models/two/infer", json=request))
        claimed: list[Any] = []

        async def has_come() -> bool:
            claimed.extend(await api.hand.claim(model="two"))
            return bool(claimed)

        await until(has_come)
        assert [output.name for output in claimed[0].request.outputs] == list(names)
        await api.hand.succeed(claimed[0], *(floats(1.0, name=name) for name in names))
        response = await call
    length = int(response.headers.get("inference-header-content-length", len(response.content)))
    shown = orjson.loads(response.content[:length])["outputs"]
    assert [output["name"] for output in shown] == list(names)
    assert [output["name"] for output in shown if "data" not in output] == list(raw)


async def test_a_version_is_a_number_however_it_is_written(api: Api) -> None:
    await api.beat(a_worker())
    for path in ("", "/stats", "/ready"):
        assert (await api.get(f"/v2/models/{MODEL}/versions/002{path}")).status_code == 200
    call = asyncio.create_task(api.client.post(f"/v2/models/{MODEL}/versions/02/infer", json=document()))
    claimed = (await claim(api))[0]
    assert claimed.request.model_version == "2"
    await api.hand.succeed(claimed, floats(1.0))
    assert (await call).status_code == 200


async def test_what_says_yes_without_a_body_has_tritons_type(api: Api) -> None:
    await api.beat(a_worker())
    for path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{MODEL}/ready"):
        response = await api.get(path)
        assert (response.status_code, response.content, response.headers["content-type"]) == (200, b"", "text/plain")


async def test_readiness_follows_the_workers(api: Api) -> None:
    """B044."""
    assert (await api.get(f"/v2/models/{MODEL}/ready")).status_code == 400
    await api.beat(a_worker(LaneState.ENGINE, MODEL))
    assert (await api.get(f"/v2/models/{MODEL}/ready")).status_code == 400
    await api.beat(a_worker(LaneState.READY, MODEL))
    assert (await api.get(f"/v2/models/{MODEL}/ready")).status_code == 200
    assert (await api.get(f"/v2/models/{MODEL}/versions/9/ready")).status_code == 400


async def test_a_version_is_described_and_judged_by_itself(backend: Backend) -> None:
    """As Triton does: it lists the version alone, and shapes and batch dimension are that version's."""
    of = f"/v2/models/{MODEL}"
    async with running_api(backend, models=[of_two_shapes()]) as api:
        await api.beat(a_worker())
        whole, first, third = [(await api.get(path)).json() for path in (of, f"{of}/versions/1", f"{of}/versions/3")]
        assert (whole["versions"], whole["inputs"][0]["shape"]) == (["1", "2", "3"], [-1, 3])
        assert (first["versions"], first["inputs"][0]["shape"]) == (["1"], [2])
        assert (third["versions"], third["inputs"][0]["shape"]) == (["3"], [-1, 3])
        configs = [(await api.get(f"{path}/config")).json() for path in (of, f"{of}/versions/1", f"{of}/versions/3")]
        assert configs == [{"newest": True}, {"oldest": True}, {"newest": True}]
        ready = [(await api.get(f"{of}{path}/ready")).status_code for path in ("", *(f"/versions/{n}" for n in (1, 2)))]
        assert ready == [200, 200, 400]
        index = (await api.client.post("/v2/repository/index")).json()
        assert [entry.get("reason") for entry in index] == [None, "It is stateful.", None]
        only_ready = (await api.client.post("/v2/repository/index", json={"ready": True})).json()
        assert [entry["version"] for entry in only_ready] == ["1", "3"]


@pytest.mark.parametrize(
    ("version", "shape", "status"),
    [("1", [2], 202), ("3", [1, 3], 202), ("", [1, 3], 202), ("1", [3], 400), ("3", [1, 2], 400), ("", [2], 400)],
)
async def test_a_call_takes_what_its_version_takes(
    backend: Backend, version: str, shape: list[int], status: int
) -> None:
    path = f"/v2/models/{MODEL}" + (f"/versions/{version}" if version else "")
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "data": [1.0] * shape[-1]}
    async with running_api(backend, models=[of_two_shapes()]) as api:
        headers = {"Prefer": "respond-async"}
        response = await api.client.post(f"{path}/infer", json={"inputs": [tensor]}, headers=headers)
        assert response.status_code == status, response.text
        refused = await api.client.post(f"/v2/models/{MODEL}/versions/2/infer", json=document(1, 2, 3))
        assert (refused.status_code, refused.json()["error"]) == (400, "It is stateful.")


async def test_a_decoupled_or_stateful_model_is_refused_before_its_body_is_read(backend: Backend) -> None:
    """B043, B049."""
    models = [identity_spec("stream", decoupled=True), identity_spec("state", refusal="It keeps state.")]
    async with running_api(backend, models=models) as api:
        assert (await api.client.post("/v2/models/stream/infer", json=document())).status_code == 501
        headers = {"Prefer": "respond-async"}
        assert (await api.client.post("/v2/models/stream/infer", json=document(), headers=headers)).status_code == 202
        refused = await api.client.post("/v2/models/state/infer", json=document())
        assert (refused.status_code, refused.json()["error"]) == (400, "It keeps state.")


async def test_redis_away_is_503_in_tritons_form(start_valkey: Any) -> None:
    server = start_valkey()
    async with running_api(Backend(server.url), models=[identity_spec()], redis_timeout_seconds=1) as api:
        await asyncio.to_thread(server.stop)
        response = await api.client.post(INFER, json=document())
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert response.headers["retry-after"]
        assert (await api.get("/v2/models/stats")).status_code == 503


async def test_a_fault_of_ours_has_tritons_form_too(api: Api) -> None:
    """T: Errors/logs."""
    headers = {"Prefer": "respond-async", "Idempotency-Key": "k"}
    job = (await api.client.post(INFER, json=document(), headers=headers)).json()
    await api.damage(job["id"])
    response = await api.client.post(INFER, json=document(), headers=headers | {"X-Request-Id": "find-me"})
    assert (response.status_code, response.headers["content-type"]) == (500, "application/json")
    assert response.json() == {
        "error": "The server failed. Its log says why, under this request id.",
        "code": "internal_error",
    }
    assert response.headers["x-request-id"] == "find-me"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/v2", "/v2/models/x/infer", "/v2/nowhere"])
async def test_a_method_that_nothing_takes_has_tritons_form_too(api: Api, path: str) -> None:
    response = await api.client.request("PROPFIND", path)
    assert response.status_code == 405
    assert set(response.json()) == {"error", "code"}


async def test_head_is_get_without_the_body_below_v2(api: Api) -> None:
    for path in ("/v2", f"/v2/models/{MODEL}", "/v2/models/nobody", "/v2/nowhere"):
        get, head = await api.get(path), await api.client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
