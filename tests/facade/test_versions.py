"""Versions of one model that take different things, on a real engine that lets them complete their configurations."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from inferq.stack import EmbeddedStack, StackEnvironment, StackOptions, TritonServer
from tests.support.eventually import eventually
from tests.support.models import PICTURES, VERSIONED, VERSIONS, identity_name, write_versioned_models
from tests.support.photos import encode

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.server, pytest.mark.process]

ALIKE = identity_name("FP32")
MODELS = (VERSIONED, PICTURES, ALIKE)
PATHS = ("", *(f"/versions/{version}" for version in (*VERSIONS, "9")))


@pytest.fixture(scope="module")
def versions_engine(
    stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """A Triton that lets models complete their configurations."""
    folder = tmp_path_factory.mktemp("versions")
    server = TritonServer(stack_environment, [write_versioned_models(folder / "models")], folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
async def ours(
    versions_engine: TritonServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the product, with a store of its own, in front of this engine."""
    data = tmp_path_factory.mktemp("versions-data")
    environment = os.environ | {"INFERQ_REGISTRY_SECONDS": "1"}
    options = StackOptions(port=0, data=data, engine=versions_engine.grpc_address, environment=environment)
    async with (
        EmbeddedStack(options, report=lambda _: None) as stack,
        httpx.AsyncClient(base_url=stack.url, timeout=60, trust_env=False) as client,
    ):

        async def is_complete() -> bool:
            known = (await client.post("/v2/repository/index", json={"ready": True})).json()
            return len(known) == len(MODELS) * len(VERSIONS)

        await eventually(is_complete, 30)
        yield client


@pytest.fixture(scope="module")
async def direct(versions_engine: TritonServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the engine itself."""
    url = f"http://{versions_engine.http_address}"
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        yield client


def tensor(version: str, *rows: int) -> dict[str, Any]:
    """An input of `versioned` as this version takes it, with the batch dimension where there are `rows`."""
    name, datatype, dims, _ = VERSIONS[version]
    shape = [*rows, *dims]
    return {"name": name, "datatype": datatype, "shape": shape, "data": list(range(1, int(np.prod(shape)) + 1))}


async def test_metadata_and_configuration_of_each_version_are_the_engines(
    ours: httpx.AsyncClient, direct: httpx.AsyncClient
) -> None:
    """Also of a model whose versions agree: asked for one version, the engine lists that one alone."""
    listed = []
    for model in MODELS:
        for path in PATHS:
            for what in ("", "/config", "/ready"):
                url = f"/v2/models/{model}{path}{what}"
                answer, expected = await ours.get(url), await direct.get(url)
                if what != "/ready":
                    assert answer.is_success == expected.is_success, url
                if expected.is_success:
                    assert answer.content == expected.content or answer.json() == expected.json(), url
                    listed.extend([expected.json()["versions"]] if not what else [])
    assert listed == [["1", "2", "3"], ["1"], ["2"], ["3"]] * len(MODELS)
    index = "/v2/repository/index"
    assert (await ours.post(index)).json() == (await direct.post(index)).json()


async def test_a_call_of_each_version_in_the_form_of_each_is_answered_and_refused_as_by_the_engine(
    ours: httpx.AsyncClient, direct: httpx.AsyncClient
) -> None:
    accepted = []
    for version in ("", *VERSIONS):
        path = f"/v2/models/{VERSIONED}" + (f"/versions/{version}" if version else "")
        for form in VERSIONS:
            for rows in ((), (1,), (4,), (5,), (9,)):
                document = {"inputs": [tensor(form, *rows)]}
                answer, expected = [await side.post(f"{path}/infer", json=document) for side in (ours, direct)]
                assert answer.status_code == expected.status_code, (version, form, rows, answer.text, expected.text)
                if expected.is_success:
                    assert answer.json() == expected.json()
                    accepted.append((version, form, rows))
    assert accepted == [
        *(("", "3", rows) for rows in ((1,), (4,), (5,))),
        *(("1", "1", rows) for rows in ((1,), (4,))),
        ("2", "2", ()),
        *(("3", "3", rows) for rows in ((1,), (4,), (5,))),
    ]


async def test_jobs_for_all_versions_wait_in_one_queue_and_each_is_right(ours: httpx.AsyncClient) -> None:
    wanted = [("1", "1"), ("2", "2"), ("3", "3"), ("", "3")] * 25
    items = [{"model": VERSIONED, "inputs": [tensor(form)], "model_version": version} for version, form in wanted]
    stored = await ours.post("/jobs/batch", json=items)
    assert stored.status_code == 202, stored.text
    urls = [entry["job"]["urls"]["self"] for entry in stored.json()["jobs"]]
    jobs = [answer.json() for answer in await asyncio.gather(*(ours.get(f"{url}?wait=60") for url in urls))]
    for (_, form), job in zip(wanted, jobs, strict=True):
        assert job["status"] == "succeeded", job["error"]
        given = tensor(form)
        assert job["model_version"] == form
        assert job["output"]["times"]["shape"] == given["shape"]
        assert job["output"]["times"]["data"] == [number * int(form) for number in given["data"]]


async def test_a_job_whose_input_fits_another_version_only_is_refused(ours: httpx.AsyncClient) -> None:
    """It would be accepted, and then fail."""
    for version in ("", *VERSIONS):
        for form in VERSIONS:
            document = {"model": VERSIONED, "inputs": [tensor(form)], "model_version": version}
            answer = await ours.post("/jobs", json=document)
            assert answer.status_code == (202 if form == (version or "3") else 422), (version, form, answer.text)


async def test_a_model_shows_what_its_versions_take(ours: httpx.AsyncClient) -> None:
    shown = (await ours.get(f"/models/{VERSIONED}")).json()
    forms = [shown, *shown["variants"]]
    assert [(each["inputs"][0]["shape"], each["max_batch_size"], each["versions"]) for each in forms] == [
        ([3], 8, ["1", "2", "3"]),
        ([2], 4, ["1"]),
        ([1], 0, ["2"]),
    ]
    assert (await ours.get(f"/models/{ALIKE}")).json()["variants"] == []


async def test_a_picture_is_prepared_at_the_size_of_the_version(ours: httpx.AsyncClient) -> None:
    picture = encode(Image.new("RGB", (24, 24), (10, 20, 30)), "PNG")
    for version, side in (("1", 4), ("2", 8), ("3", 12), ("", 12)):
        data = {"model": PICTURES} | ({"model_version": version} if version else {})
        files = {"picture": ("a.png", picture, "image/png")}
        answer = await ours.post("/jobs", data=data, files=files, headers={"Prefer": "wait=30"})
        assert answer.status_code == 201, answer.text
        pixels = answer.json()["output"]["pixels"]
        assert pixels["shape"] == [side, side, 3]
        assert pixels["data"] == [10, 20, 30] * side**2
