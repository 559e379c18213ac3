"""Shared memory where it can't be, and what else may lie in its folder: calls go by gRPC and nothing is harmed."""

import fcntl
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jobs.datatypes import Datatype, pack_bytes
from jobs.tensors import Tensor
from tests.support.scripted_calls import SECONDS, call, eventually
from tests.support.scripted_triton import ScriptedTriton, scripted_model
from workers.triton.client import TritonClient
from workers.triton.endpoint import Endpoint
from workers.triton.options import EngineOptions
from workers.triton.shared import PREFIX, SMALLEST_BYTES, SharedInputs, region_bytes

pytestmark = pytest.mark.anyio

MIB = 1 << 20
WIDTH = SMALLEST_BYTES // 4
"""As many FP32 numbers as are worth it."""


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedTriton]:
    """An engine that does not have the calls for shared memory."""
    async with ScriptedTriton() as engine:
        yield engine


@pytest.fixture
async def endpoint(scripted: ScriptedTriton) -> AsyncIterator[Endpoint]:
    """A connection to it."""
    endpoint = Endpoint(scripted.address, EngineOptions(addresses=(scripted.address,)))
    assert await endpoint.connected(SECONDS, is_last=True)
    yield endpoint
    await endpoint.close()


async def asked(shared: SharedInputs, endpoint: Endpoint) -> bool:
    """What is known once the endpoint has been asked, after which the memory is given back."""
    shared.is_known_to(endpoint, [endpoint])
    await shared.close()
    return shared.is_known_to(endpoint, [endpoint])


async def test_an_engine_without_the_call_gets_all_by_grpc_and_says_so_once(
    scripted: ScriptedTriton, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers.triton.shared")
    async with TritonClient(EngineOptions(addresses=(scripted.address,), shared_bytes=MIB)) as client:
        for _ in range(20):
            reply = await client.infer(call(width=WIDTH), SECONDS)
            assert reply.outputs[0].data == call(width=WIDTH).inputs[0].data  # type: ignore[union-attr]
    (record,) = caplog.records
    assert f"inputs go to {scripted.address} by gRPC alone" in record.getMessage()


@pytest.mark.parametrize("missing", ["folder", "room"])
async def test_where_there_can_be_no_memory_it_is_said_once(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    caplog.set_level(logging.INFO, "workers.triton.shared")
    folder = tmp_path / "nowhere" if missing == "folder" else Path("/proc")  # which has no room for files
    assert not await asked(SharedInputs(MIB, folder=folder), endpoint)
    assert len(caplog.records) == 1


async def test_memory_that_no_engine_reads_is_not_kept(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers.triton.shared")
    shared = SharedInputs(MIB, folder=tmp_path)
    assert not shared.is_known_to(endpoint, [endpoint])
    await eventually(lambda: "Method not found" in caplog.text)  # so there was memory to register
    with shared.placed(call()) as placed:
        assert placed is None
    assert os.listdir(tmp_path) == []
    await shared.close()


@pytest.mark.parametrize(
    ("most", "free", "expected"),
    [
        (64 * MIB, 1024 * MIB, 64 * MIB),
        (64 * MIB, 64 * MIB, 32 * MIB),  # what a container has
        (1 << 50, 100 * MIB, 50 * MIB),
        (64 * MIB, 16 * MIB, 8 * MIB),
        (64 * MIB, 16 * MIB - 1, 0),
        (64 * MIB, 0, 0),
        (1_000_000, 1024 * MIB, 999_424),
        (MIB, 2 * MIB, MIB),
        (MIB, 2 * MIB - 1, 0),
    ],
)
async def test_memory_is_at_most_half_of_what_is_free_in_whole_pages(most: int, free: int, expected: int) -> None:
    assert region_bytes(most, free) == expected


async def test_small_inputs_texts_and_empty_ones_are_not_worth_it() -> None:
    shared = SharedInputs(MIB)
    text = Tensor("x", Datatype.BYTES, (1, 1), pack_bytes([bytes(SMALLEST_BYTES)]))
    large = call(width=WIDTH)
    assert shared.wants(large)
    assert not shared.wants(call(width=WIDTH - 1))
    assert not shared.wants(call(inputs=(text,)))
    assert not shared.wants(call(inputs=(*large.inputs, Tensor("e", Datatype.FP32, (1, 0), b""))))
    assert not SharedInputs(0).wants(large)


async def test_what_somebody_else_put_there_is_left_alone(endpoint: Endpoint, tmp_path: Path) -> None:
    """A name says nothing of who made it: only this user's own files that nobody holds are taken away."""
    folder, elsewhere = tmp_path / "shm", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_bytes(b"precious")
    (folder / f"{PREFIX}link").symlink_to(elsewhere)
    os.mkfifo(folder / f"{PREFIX}pipe")
    (folder / f"{PREFIX}folder").mkdir()
    (folder / f"{PREFIX}new").touch()  # as one is for a moment before it is locked
    (folder / "another").write_bytes(b"1")
    strangers = folder / f"{PREFIX}stranger"
    strangers.write_bytes(b"1")
    if os.geteuid() == 0:
        os.chown(strangers, 65534, 65534)
    else:
        strangers.chmod(0)
    held = folder / f"{PREFIX}held"
    held.write_bytes(b"1")
    dead = folder / f"{PREFIX}dead"
    dead.write_bytes(b"1")
    before = set(folder.iterdir())
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not await asked(SharedInputs(MIB, folder=folder), endpoint)
    assert set(folder.iterdir()) == before - {dead}
    assert elsewhere.read_bytes() == b"precious"


async def test_it_may_be_closed_twice_and_before_its_first_use(endpoint: Endpoint, tmp_path: Path) -> None:
    shared = SharedInputs(MIB, folder=tmp_path)
    await shared.close()
    await shared.close()
    assert not shared.is_known_to(endpoint, [endpoint])
    await shared.close()
    assert os.listdir(tmp_path) == []


async def test_an_engine_that_hangs_up_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "workers.triton.shared")
    engine = ScriptedTriton([scripted_model("echo")])
    await engine.start()
    options = EngineOptions(addresses=(engine.address,))
    endpoint = Endpoint(engine.address, options)
    assert await endpoint.connected(SECONDS, is_last=True)
    await engine.stop()
    assert not await asked(SharedInputs(MIB, folder=tmp_path), endpoint)
    assert caplog.records == []
    await endpoint.close()
