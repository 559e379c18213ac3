"""The result alone: its forms, its statuses, and what it costs to make it JSON."""

from __future__ import annotations

import io
from typing import Any

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import msgpack
import numpy as np
import orjson
import pytest
from hypothesis import given, settings

from api.results import json_pieces
from jobs import keys
from jobs.datatypes import Datatype
from jobs.errors import ErrorCode
from jobs.outputs import Output, dumps, json_document, least_json_bytes, split
from jobs.record import OutputPart
from jobs.spec import OutputKind
from jobs.tensors import Tensor, tensor_of_bytes
from tests.api.harness import Api, Backend, classes, floats, identity_spec, running_api

pytestmark = pytest.mark.anyio

TYPES = ["application/json", "application/octet-stream", "application/msgpack", "application/x-npy"]
VALUES = np.array([1.5, -0.0, np.nan, np.inf, 1e-40], "<f4")


async def done(api: Api, *tensors: Tensor, is_inline: bool = False) -> str:
    """The path of the result of a job that succeeded with these outputs."""
    job_id = await api.submit()
    outputs = tensors or (Tensor("y", Datatype.FP32, (5,), VALUES.tobytes()),)
    await api.hand.succeed(await api.hand.take(), *outputs, is_inline=is_inline)
    return f"/jobs/{job_id}/result"


@pytest.mark.parametrize("is_inline", [True, False])
async def test_binary_forms_are_exact_to_the_bit(api: Api, is_inline: bool) -> None:
    path = await done(api, is_inline=is_inline)
    binary = await api.get(path, headers={"Accept": "application/octet-stream"})
    length = int(binary.headers["inference-header-content-length"])
    header = orjson.loads(binary.content[:length])
    assert header["model_name"] == "identity"
    assert header["model_version"] == "2"
    assert header["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [5], "parameters": {"binary_data_size": 20}}
    ]
    assert binary.content[length:] == VALUES.tobytes()

    npy = await api.get(path, headers={"Accept": "application/x-npy"})
    array = np.load(io.BytesIO(npy.content), allow_pickle=False)
    assert (array.dtype, array.shape, array.tobytes()) == (np.dtype("<f4"), (5,), VALUES.tobytes())

    packed = msgpack.unpackb((await api.get(path, headers={"Accept": "application/msgpack"})).content)
    assert packed["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [5], "data": VALUES.tobytes()}]
    assert packed["id"] == header["id"]


async def test_json_says_null_where_a_number_is_not_finite(api: Api) -> None:
    response = await api.get(await done(api))
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"y": {"datatype": "FP32", "shape": [5], "data": [1.5, -0.0, None, None, 1e-40]}}


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
        ("application/x-npy", "application/x-npy"),
        ("APPLICATION/MSGPACK", "application/msgpack"),
        ("application/x-msgpack", "application/x-msgpack"),
        ("application/vnd.msgpack, application/json;q=0.1", "application/vnd.msgpack"),
        ("application/x-npy;q=0.5, application/msgpack;q=0.9", "application/msgpack"),
        ("application/*;q=0.5, application/octet-stream", "application/octet-stream"),
        ("application/json;q=0, */*", "application/octet-stream"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("image/png", None),
        ("application/json;q=0", None),
        ("*/*;q=0", None),
        ("application/json;q=nan", None),
        ("nonsense", None),
    ],
)
async def test_the_form_is_the_one_that_the_client_likes_best(api: Api, accept: str | None, given: str | None) -> None:
    path = await done(api)
    api.client.headers.pop("accept")
    response = await api.get(path, headers={} if accept is None else {"Accept": accept})
    if given is None:
        assert (response.status_code, response.json()["code"]) == (406, "not_acceptable")
        assert response.json()["types"] == TYPES
    else:
        assert (response.status_code, response.headers["content-type"]) == (200, given)


@pytest.mark.parametrize("media_type", TYPES)
async def test_every_form_is_safe_to_serve_and_can_be_revalidated(api: Api, media_type: str) -> None:
    """T: Results."""
    path = await done(api)
    first = await api.get(path, headers={"Accept": media_type})
    assert first.status_code == 200
    assert first.headers["content-disposition"].startswith("attachment; filename=")
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["cache-control"] == "no-store"
    assert "sandbox" in first.headers["content-security-policy"]
    again = await api.get(path, headers={"Accept": media_type, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await api.client.head(path, headers={"Accept": media_type})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == first.headers["etag"]
    assert head.headers["content-length"] == first.headers["content-length"]
    other = next(each for each in TYPES if each != media_type)
    changed = await api.get(path, headers={"Accept": other, "If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


async def test_one_output_can_be_chosen_and_npy_needs_the_choice(api: Api) -> None:
    path = await done(api, floats(1.0, name="a"), floats(2.0, name="b"))
    assert list((await api.get(path)).json()) == ["a", "b"]
    assert list((await api.get(f"{path}?output=b")).json()) == ["b"]
    npy = {"Accept": "application/x-npy"}
    vague = await api.get(path, headers=npy)
    assert (vague.status_code, vague.json()["parameter"]) == (422, "output")
    chosen = await api.get(f"{path}?output=b", headers=npy)
    assert np.load(io.BytesIO(chosen.content), allow_pickle=False).tolist() == [2.0]
    unknown = await api.get(f"{path}?output=c")
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_output")
    assert "'a', 'b'" in unknown.json()["detail"]
    etags = {(await api.get(f"{path}?output={name}")).headers["etag"] for name in "ab"}
    assert len(etags) == 2


async def test_an_output_that_npy_would_change_is_not_acceptable_in_that_form(api: Api) -> None:
    """B036."""
    path = await done(api, tensor_of_bytes("y", (1,), [b"a\0b\0\0"]))
    response = await api.get(path, headers={"Accept": "application/x-npy"})
    assert (response.status_code, response.json()["code"]) == (406, "not_acceptable")


async def test_the_binary_form_says_which_outputs_are_classes(api: Api) -> None:
    path = await done(api, classes("0.95:967:espresso", "0.01:968:cup"))
    response = await api.get(path, headers={"Accept": "application/octet-stream"})
    (entry,) = orjson.loads(response.content[: int(response.headers["inference-header-content-length"])])["outputs"]
    assert entry["parameters"]["classification"] == 2


async def test_a_classification_is_a_list_of_labels_in_json_too(api: Api) -> None:
    response = await api.get(await done(api, classes("0.95:967:espresso")))
    assert response.json() == {"label": [{"label": "espresso", "index": 967, "score": 0.95}]}


async def test_before_the_end_the_result_is_the_job_and_202(api: Api) -> None:
    job_id = await api.submit()
    response = await api.get(f"/jobs/{job_id}/result")
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("end", ["failed", "canceled", "expired"])
async def test_a_job_without_a_result_is_a_409_that_says_why(backend: Backend, end: str) -> None:
    now = [1_700_000_000_000]
    async with running_api(backend, clock_ms=lambda: now[0], models=[identity_spec()]) as api:
        job_id = await api.submit(queue_ttl_seconds=1)
        if end == "failed":
            await api.hand.fail(await api.hand.take(), ErrorCode.ENGINE_ERROR)
        elif end == "canceled":
            await api.client.post(f"/jobs/{job_id}/cancel")
        else:
            now[0] += 2000
        response = await api.get(f"/jobs/{job_id}/result")
    assert (response.status_code, response.json()["code"]) == (409, "no_result")
    assert response.json()["job_status"] == end
    assert response.json()["error"]["code"] == {"failed": "engine_error"}.get(end, end)


@pytest.mark.parametrize("is_inline", [True, False])
async def test_once_its_time_is_up_the_result_is_gone_and_the_job_still_known(
    backend: Backend, is_inline: bool
) -> None:
    now = [1_700_000_000_000]
    async with running_api(backend, clock_ms=lambda: now[0], models=[identity_spec()]) as api:
        job_id = await api.submit(result_ttl_seconds=60)
        await api.hand.succeed(await api.hand.take(), floats(1), is_inline=is_inline)
        assert (await api.get(f"/jobs/{job_id}/result")).status_code == 200
        now[0] += 60_001
        response = await api.get(f"/jobs/{job_id}/result")
        assert (response.status_code, response.json()["code"]) == (410, "result_expired")
        shown = await api.job(job_id)
    assert (shown["status"], shown["output"], shown["output_omitted"]) == ("succeeded", None, False)


async def test_a_result_that_redis_dropped_early_is_gone_too(api: Api) -> None:
    path = await done(api)
    await api.store.connection.client.delete(keys.output_key(path.split("/")[2], 1))
    assert (await api.get(path)).status_code == 410


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.INT64, Datatype.BYTES])
async def test_a_large_result_is_the_same_document_in_pieces(api: Api, datatype: Datatype) -> None:
    count = 100_000
    if datatype is Datatype.BYTES:
        tensor = tensor_of_bytes("y", (count,), [b"%d" % i for i in range(count)])
        expected: list[Any] = [str(i) for i in range(count)]
    else:
        tensor = Tensor("y", datatype, (count // 10, 10), np.arange(count).astype(datatype.numpy).tobytes())
        expected = list(range(count))
    response = await api.get(await done(api, tensor, floats(1, name="z")))
    assert response.json()["y"] == {"datatype": datatype.value, "shape": list(tensor.shape), "data": expected}
    assert response.json()["z"]["data"] == [1.0]


def _tensors() -> st.SearchStrategy[Tensor]:
    def of(datatype: Datatype) -> st.SearchStrategy[Tensor]:
        shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
        if datatype is Datatype.BYTES:
            return shapes.flatmap(
                lambda shape: st.lists(
                    st.binary(max_size=9), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
                ).map(lambda elements: tensor_of_bytes("y", shape, elements))
            )
        return shapes.flatmap(lambda shape: arrays.arrays(datatype.numpy, shape)).map(
            lambda array: Tensor("y", datatype, array.shape, array.tobytes())
        )

    return st.sampled_from(list(Datatype)).flatmap(of)


@given(st.lists(_tensors(), max_size=3), st.integers(1, 5))
@settings(deadline=None)
def test_pieces_join_to_the_document(tensors: list[Tensor], piece_elements: int) -> None:
    named = [Tensor(f"y{i}", t.datatype, t.shape, t.data) for i, t in enumerate(tensors)]
    outputs = [Output(tensor, OutputKind.TENSOR) for tensor in named]
    joined = b"".join(json_pieces(outputs, piece_elements))
    assert orjson.loads(joined) == orjson.loads(dumps(json_document(outputs)))


@given(_tensors())
@settings(deadline=None)
def test_the_least_size_that_is_assumed_is_never_above_the_real_one(tensor: Tensor) -> None:
    part = OutputPart("y", tensor.datatype, tensor.shape, tensor.nbytes)
    document = dumps(json_document([Output(tensor, OutputKind.TENSOR)]))
    assert least_json_bytes(part) <= len(document)


def test_a_payload_of_another_size_than_recorded_is_never_shown() -> None:
    with pytest.raises(ValueError, match="a result of 5 bytes is said to have 4"):
        split([OutputPart("y", Datatype.FP32, (1,), 4)], b"12345")
