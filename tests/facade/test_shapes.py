"""Shapes and kinds of models that only a real engine proves: full batches, empty tensors, streams, states."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.server, pytest.mark.process]


async def run(url: str, model: str, *inputs: dict[str, Any]) -> dict[str, Any]:
    """The finished job."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        document = {"model": model, "inputs": list(inputs)}
        response = await client.post("/jobs", json=document, headers={"Prefer": "wait=30"})
    assert response.status_code == 201, response.text
    job: dict[str, Any] = response.json()
    return job


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


async def test_three_items_for_a_model_of_eight_get_three_exact_answers(product_url: str) -> None:
    """B051."""
    rows = [[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0], [0.5, 0.25, 0.125, 0.0625]]
    jobs = await asyncio.gather(*(run(product_url, "fixed8", tensor("input", "FP32", [4], row)) for row in rows))
    assert [job["output"]["total"]["data"] for job in jobs] == [[sum(row)] for row in rows]
    whole = await run(product_url, "fixed8", tensor("input", "FP32", [3, 4], rows))
    assert whole["output"]["total"] == {"datatype": "FP32", "shape": [3, 1], "data": [sum(row) for row in rows]}


async def test_tensors_without_elements_come_back_among_others(product_url: str) -> None:
    """B039."""
    widths = [0, 3, 0, 1, 0, 0, 2, 0]
    jobs = await asyncio.gather(
        *(run(product_url, "identity_fp32", tensor("input", "FP32", [n], [1.0] * n)) for n in widths)
    )
    assert [job["output"]["output"]["shape"] for job in jobs] == [[n] for n in widths]


async def test_ragged_shapes_are_grouped_and_never_fail(product_url: str) -> None:
    """B032."""
    widths = [16, 20] * 50
    jobs = await asyncio.gather(
        *(run(product_url, "identity_fp32", tensor("input", "FP32", [n], [float(n)] * n)) for n in widths)
    )
    assert [job["output"]["output"]["data"] for job in jobs] == [[float(n)] * n for n in widths]


async def test_the_same_item_goes_to_a_model_with_and_without_a_batch_dimension(product_url: str) -> None:
    """B033."""
    item = tensor("input", "INT64", [3], [1, 2, 3])
    for model in ("identity_int64", "identity_int64_nobatch"):
        assert (await run(product_url, model, item))["output"]["output"]["data"] == [1, 2, 3]


async def test_a_decoupled_model_answers_with_all_responses_in_order(product_url: str) -> None:
    """B043."""
    for count in (5, 0):
        job = await run(product_url, "decoupled_repeat", tensor("count", "INT32", [1], [count]))
        assert job["status"] == "succeeded", job["error"]
        assert job["output"]["index"]["data"] == list(range(count))
        assert job["attempt"] == 1


@pytest.mark.parametrize(
    ("model", "inputs", "code"),
    [
        ("sequence", [tensor("value", "INT32", [1], [1])], "model_not_served"),
        ("add_sub", [tensor("a", "FP32", [1], [1.0])] * 2, "duplicate_input"),
        ("add_sub", [tensor("a", "FP32", [1], [1.0])], "missing_input"),
    ],
)
async def test_what_can_not_work_is_refused_with_a_reason(
    product_url: str, model: str, inputs: list[dict[str, Any]], code: str
) -> None:
    """B049, B050."""
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        response = await client.post("/jobs", json={"model": model, "inputs": inputs})
    assert (response.status_code, response.json()["code"]) == (422, code)


async def test_two_parts_of_one_name_are_refused(product_url: str) -> None:
    """B050."""
    files = [("text", ("a.txt", b"a", "text/plain")), ("text", ("b.txt", b"b", "text/plain"))]
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        response = await client.post("/jobs", data={"model": "echo_text"}, files=files)
    assert (response.status_code, response.json()["code"]) == (422, "duplicate_input")


def affine(x: list[float], **optional: float) -> list[dict[str, Any]]:
    """The inputs of the model `affine` for one item."""
    return [
        tensor("x", "FP32", [len(x)], x),
        *(tensor(name, "FP32", [1], [value]) for name, value in optional.items()),
    ]


OPTIONAL: tuple[dict[str, float], ...] = ({}, {"factor": 3.0}, {"offset": 0.5}, {"factor": 3.0, "offset": 0.5})


def expected_affine(x: list[float], optional: dict[str, float]) -> tuple[list[float], list[int]]:
    y = [value * optional.get("factor", 1.0) + optional.get("offset", 0.0) for value in x]
    return y, [1 + len(optional)]


async def test_an_optional_input_may_be_left_out(product_url: str) -> None:
    for optional in OPTIONAL:
        job = await run(product_url, "affine", *affine([1.0, 2.0], **optional))
        assert job["status"] == "succeeded", job["error"]
        y, given = expected_affine([1.0, 2.0], optional)
        assert (job["output"]["y"]["data"], job["output"]["given"]["data"]) == (y, given)


async def test_items_with_and_without_an_optional_input_wait_in_one_queue_and_each_is_right(product_url: str) -> None:
    """B074: they can't share a call, and none of them fails for it."""
    items = [([float(n), 2.0], OPTIONAL[n % 4]) for n in range(64)]
    lines = [{"model": "affine", "inputs": affine(x, **optional)} for x, optional in items]
    async with httpx.AsyncClient(base_url=product_url, timeout=60, trust_env=False) as client:
        stored = await client.post("/jobs/batch", json=lines)
        assert stored.status_code == 202, stored.text
        urls = [f"/jobs/{entry['job']['id']}" for entry in stored.json()["jobs"]]
        jobs = [r.json() for r in await asyncio.gather(*(client.get(url, params={"wait": 30}) for url in urls))]
    for job, (x, optional) in zip(jobs, items, strict=True):
        assert job["status"] == "succeeded", job["error"]
        y, given = expected_affine(x, optional)
        assert (job["output"]["y"]["data"], job["output"]["given"]["data"]) == (y, given)


async def test_an_optional_input_may_be_left_out_of_a_call_of_the_facade(product_url: str) -> None:
    async with httpx.AsyncClient(base_url=product_url, timeout=60, trust_env=False) as client:
        for optional in OPTIONAL:
            inputs = [{**each, "shape": [1, *each["shape"]]} for each in affine([1.0, 2.0], **optional)]
            answer = await client.post("/v2/models/affine/infer", json={"inputs": inputs})
            assert answer.status_code == 200, answer.text
            found = {output["name"]: output["data"] for output in answer.json()["outputs"]}
            y, given = expected_affine([1.0, 2.0], optional)
            assert found == {"y": y, "given": given}


async def test_an_input_that_is_not_optional_is_missed_beside_one_that_is(product_url: str) -> None:
    inputs = [tensor("factor", "FP32", [1], [2.0])]
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        refused = await client.post("/jobs", json={"model": "affine", "inputs": inputs})
        inputs[0]["shape"] = [1, 1]
        refused_by_facade = await client.post("/v2/models/affine/infer", json={"inputs": inputs})
    assert (refused.status_code, refused.json()["code"]) == (422, "missing_input")
    assert (refused_by_facade.status_code, refused_by_facade.json()["code"]) == (400, "missing_input")


async def test_an_ensemble_answers_as_one_model(product_url: str) -> None:
    inputs = [tensor("a", "FP32", [2], [3.0, 0.5]), tensor("b", "FP32", [2], [1.0, 8.0])]
    job = await run(product_url, "ensemble", *inputs)
    assert job["output"] == {"twice_a": {"datatype": "FP32", "shape": [2], "data": [6.0, 1.0]}}


async def test_only_the_outputs_that_are_asked_for_are_computed(product_url: str) -> None:
    inputs = [tensor("a", "FP32", [1], [3.0]), tensor("b", "FP32", [1], [1.0])]
    async with httpx.AsyncClient(base_url=product_url, timeout=60, trust_env=False) as client:
        document = {"model": "add_sub", "inputs": inputs, "outputs": ["difference"]}
        job = (await client.post("/jobs", json=document, headers={"Prefer": "wait=30"})).json()
    assert job["output"] == {"difference": {"datatype": "FP32", "shape": [1], "data": [2.0]}}
