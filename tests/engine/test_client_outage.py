"""The client while a real Triton stops, stays away and comes back: nothing that a job should fail for."""

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest

from inferq.stack.triton import MODELS
from jobs.datatypes import Datatype
from jobs.errors import EngineUnavailable, JobFailure
from jobs.tensors import Tensor
from tests.support.servers import StartEngine
from workers.triton.client import TritonClient
from workers.triton.messages import InferCall
from workers.triton.options import EngineOptions

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SECONDS = 20.0
CALL = InferCall("identity", "", "r1", (Tensor("input", Datatype.FP32, (1, 2), bytes(8)),))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Only what these tests call, so that the engine starts quickly."""
    shutil.copytree(MODELS / "identity", tmp_path / "repository" / "identity")
    return tmp_path / "repository"


async def test_an_engine_may_be_restarted_under_load(start_engine: StartEngine, repository: Path) -> None:
    """B044, B052: while the engine goes, is away and comes, every failure is one that releases the job."""
    engine = start_engine([repository])
    outcomes: Counter[str] = Counter()
    is_restarted, is_back = asyncio.Event(), asyncio.Event()

    async def load(client: TritonClient) -> None:
        while not is_back.is_set():
            restarted_before = is_restarted.is_set()
            try:
                await client.infer(CALL, SECONDS)
            except EngineUnavailable:
                outcomes["released"] += 1
            except JobFailure as failure:
                outcomes[repr(failure)] += 1
            else:
                outcomes["answered"] += 1
                if restarted_before:
                    is_back.set()

    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,), connect_seconds=0.5)) as client:
        await client.infer(CALL, SECONDS)
        loads = [asyncio.create_task(load(client)) for _ in range(4)]
        await asyncio.to_thread(engine.stop)
        await asyncio.to_thread(engine.start)
        is_restarted.set()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*loads)
    assert set(outcomes) == {"answered", "released"}, outcomes


async def test_the_first_call_after_a_restart_succeeds(start_engine: StartEngine, repository: Path) -> None:
    """B052: the connection died while nobody looked."""
    engine = start_engine([repository])
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,))) as client:
        await client.infer(CALL, SECONDS)
        await asyncio.to_thread(engine.stop)
        with pytest.raises(EngineUnavailable):
            await client.infer(CALL, SECONDS)
        await asyncio.to_thread(engine.start)
        await client.infer(CALL, SECONDS)
