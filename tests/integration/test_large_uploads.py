"""A large upload: what it costs the api in memory, and what everybody costs who asks for it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from jobs.connection import Connection
from jobs.datatypes import Datatype
from jobs.registry import Registry
from jobs.settings import StoreSettings
from jobs.spec import InputKind, InputSpec, ModelSpec, OutputSpec
from tests.api.processes import ApiProcess, api_process
from tests.support.databases import Database

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server]


MEBIBYTE = 1024 * 1024
SIZE = 60 * MEBIBYTE
ALLOWED = 2.2
POLLS = 20
MODELS = (
    ModelSpec(
        "files",
        ("1",),
        8,
        (InputSpec("file", Datatype.BYTES, (1,), kind=InputKind.BYTES),),
        (OutputSpec("y", Datatype.BYTES, (1,)),),
    ),
    ModelSpec("numbers", ("1",), 8, (InputSpec("x", Datatype.FP32, (-1,)),), (OutputSpec("y", Datatype.FP32, (-1,)),)),
)


@pytest.fixture
async def redis_url(valkey_url: str) -> str:
    """A database in which the models of these tests are registered."""
    url = Database.UPLOADS.at(valkey_url)
    connection = Connection.from_settings(StoreSettings(redis_url=url))
    await Registry(connection).publish_models(MODELS)
    await connection.close()
    return url


@pytest.fixture
def api(redis_url: str, tmp_path: Path) -> Iterator[ApiProcess]:
    """An api process of its own: a peak of memory never comes down again."""
    with api_process(tmp_path / "api.log", redis_url=redis_url, max_body_bytes=70 * MEBIBYTE) as process:
        yield process


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def multipart() -> dict[str, Any]:
    return {"data": {"model": "files"}, "files": {"file": ("big.bin", bytes(SIZE))}}


def raw_body() -> dict[str, Any]:
    return {
        "params": {"model": "files"},
        "content": bytes(SIZE),
        "headers": {"Content-Type": "application/octet-stream"},
    }


def npy() -> dict[str, Any]:
    file = io.BytesIO()
    np.save(file, np.ones(SIZE // 4, "<f4"))
    return {
        "params": {"model": "numbers"},
        "content": file.getvalue(),
        "headers": {"Content-Type": "application/x-npy"},
    }


def binary() -> dict[str, Any]:
    entry = {
        "name": "x",
        "datatype": "FP32",
        "shape": [SIZE // 4],
        "parameters": {"binary_data_size": SIZE},
    }
    head = json.dumps({"model": "numbers", "inputs": [entry]}).encode()
    return {"content": head + bytes(SIZE), "headers": {"Inference-Header-Content-Length": str(len(head))}}


@pytest.mark.parametrize("form", [multipart, raw_body, npy, binary])
async def test_an_upload_of_60_mb_takes_no_more_than_twice_its_size_and_a_poll_for_it_stays_small(
    api: ApiProcess, form: Any
) -> None:
    """B059, B073."""
    async with httpx.AsyncClient(base_url=api.url, timeout=60, trust_env=False) as client:
        small = await client.post("/jobs", params={"model": "files"}, content=b"warm", headers={"Content-Type": "a/b"})
        assert small.status_code == 202, small.text
        before = peak_bytes(api.popen.pid)
        response = await client.post("/jobs", **form())
        assert response.status_code == 202, response.text
        taken = peak_bytes(api.popen.pid) - before
        assert taken <= ALLOWED * SIZE, f"{taken / SIZE:.2f} times its size"
        job_id = response.json()["id"]
        polls = await asyncio.gather(*(client.get(f"/jobs/{job_id}") for _ in range(POLLS)))
        assert {poll.status_code for poll in polls} == {200}
        assert max(len(poll.content) for poll in polls) < 2000
        assert peak_bytes(api.popen.pid) - before <= ALLOWED * SIZE
        assert (await client.delete(f"/jobs/{job_id}?force=true")).status_code == 204
