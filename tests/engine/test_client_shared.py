"""Inputs by shared memory to a real Triton: the same answers, and nothing left behind by whoever goes first."""

import asyncio
import os
import shutil
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from inferq.stack import TritonServer
from inferq.stack.triton import MODELS
from jobs.datatypes import Datatype, pack_bytes
from jobs.errors import ModelRejected
from jobs.tensors import Tensor
from tests.support.eventually import eventually
from tests.support.models import identity_name
from tests.support.scripted_triton import ScriptedTriton, scripted_model
from tests.support.servers import StartEngine
from workers.triton.client import TritonClient
from workers.triton.encode import request_bytes
from workers.triton.endpoint import Endpoint
from workers.triton.messages import BatchTensor, InferCall, RequestedOutput
from workers.triton.options import EngineOptions
from workers.triton.shared import FOLDER, PREFIX, REST_SECONDS, SharedInputs

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SECONDS = 20.0
MIB = 1 << 20
OURS = f"test-{os.getpid()}-{PREFIX}"
"""Where a test is about what is left, no process of another test shall take it away first."""

VICTIM = """
import asyncio, sys
from workers.triton.endpoint import Endpoint
from workers.triton.options import EngineOptions
from workers.triton.shared import SharedInputs

async def main():
    endpoint = Endpoint(sys.argv[1], EngineOptions(addresses=(sys.argv[1],)))
    assert await endpoint.connected(20, is_last=True)
    shared = SharedInputs(1 << 20, prefix=sys.argv[2])
    while not shared.is_known_to(endpoint, [endpoint]):
        await asyncio.sleep(0.01)
    print("known", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def large(*, rows: int = 4, start: float = 0.0, model: str = "identity", name: str = "input") -> InferCall:
    """A call with rows of 64 KiB each in as many buffers."""
    values = np.arange(start, start + rows * 16_384, dtype="<f4").reshape(rows, -1)
    parts = tuple(row.tobytes() for row in values)
    return InferCall(model, "", "r1", (BatchTensor(name, Datatype.FP32, values.shape, parts),))


def bytes_of(call: InferCall) -> bytes:
    """The first input's bytes."""
    (tensor, *_) = call.inputs
    assert isinstance(tensor, BatchTensor)
    return b"".join(bytes(part) for part in tensor.parts)


async def regions(engine: TritonServer) -> set[str]:
    """The names of the shared memory that the engine knows."""
    async with httpx.AsyncClient(trust_env=False) as http:
        status = (await http.get(f"http://{engine.http_address}/v2/systemsharedmemory/status")).json()
    return {region["name"] for region in status}


async def until_known(engine: TritonServer, client: TritonClient, before: set[str]) -> str:
    """Call until the engine knows the client's memory, and until the client knows that it does; its name."""

    async def is_known() -> bool:
        await client.infer(large(), SECONDS)
        return bool(await regions(engine) - before)

    await eventually(is_known)
    await client.infer(large(), SECONDS)
    (name,) = await regions(engine) - before
    return name


@pytest.fixture
async def plain(engine: TritonServer) -> AsyncIterator[TritonClient]:
    """A client that shares nothing."""
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,))) as client:
        yield client


@pytest.fixture
async def sharing(engine: TritonServer) -> AsyncIterator[TritonClient]:
    """A client whose memory the engine knows."""
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,), shared_bytes=8 * MIB)) as client:
        await until_known(engine, client, await regions(engine))
        yield client


@pytest.fixture
async def endpoint(engine: TritonServer) -> AsyncIterator[Endpoint]:
    """A connection of its own."""
    endpoint = Endpoint(engine.grpc_address, EngineOptions(addresses=(engine.grpc_address,)))
    assert await endpoint.connected(SECONDS, is_last=True)
    yield endpoint
    await endpoint.close()


async def known(shared: SharedInputs, endpoint: Endpoint) -> None:
    """Return once the engine knows this memory."""

    async def is_known() -> bool:
        return shared.is_known_to(endpoint, [endpoint])

    await eventually(is_known)


@pytest.mark.parametrize("datatype", [each for each in Datatype if each is not Datatype.BYTES])
async def test_every_datatype_comes_back_bit_for_bit(
    plain: TritonClient, sharing: TritonClient, datatype: Datatype
) -> None:
    width = 25_001
    data = np.random.default_rng(1).bytes(3 * width * (datatype.itemsize or 0))
    if datatype is Datatype.BOOL:
        data = bytes(byte & 1 for byte in data)
    row = len(data) // 3
    parts = tuple(memoryview(data)[at : at + row] for at in (0, row, 2 * row))
    batch = BatchTensor("input", datatype, (3, width), parts)
    call = InferCall(identity_name(datatype.value), "", "r1", (batch,))
    answers = [await client.infer(call, SECONDS) for client in (plain, sharing)]
    assert answers[0] == answers[1]
    assert answers[1].outputs[0].data == data


async def test_each_of_several_inputs_is_read_from_its_own_place(plain: TritonClient, sharing: TritonClient) -> None:
    rng = np.random.default_rng(2)
    rows = [rng.standard_normal((2, 20_001)).astype("<f4") for _ in range(2)]
    inputs = tuple(
        Tensor(name, Datatype.FP32, array.shape, array.tobytes()) for name, array in zip("ab", rows, strict=True)
    )
    answers = [await client.infer(InferCall("add_sub", "", "r1", inputs), SECONDS) for client in (plain, sharing)]
    assert answers[0] == answers[1]
    assert {output.name: bytes(output.data) for output in answers[1].outputs} == {
        "sum": (rows[0] + rows[1]).tobytes(),
        "difference": (rows[0] - rows[1]).tobytes(),
    }


async def test_many_calls_at_once_each_get_their_own_answer(sharing: TritonClient) -> None:
    """More than the memory has room for: those go by gRPC."""
    calls = [large(start=n * 1000.0) for n in range(60)]
    answers = await asyncio.gather(*(sharing.infer(call, SECONDS) for call in calls))
    assert [bytes(answer.outputs[0].data) for answer in answers] == [bytes_of(call) for call in calls]


async def test_what_is_shared_does_not_pass_through_the_link(engine: TritonServer) -> None:
    """The link's limit is below the picture's size, so that an answer proves how it came there."""
    options = EngineOptions(addresses=(engine.grpc_address,), message_bytes=100_000, shared_bytes=8 * MIB)
    picture = Tensor("image", Datatype.UINT8, (1, 224, 224, 3), bytes(224 * 224 * 3))
    call = InferCall("efficientnet_lite0", "", "r1", (picture,), (RequestedOutput("probabilities", classification=1),))
    async with TritonClient(options) as client:
        with pytest.raises(ModelRejected, match="link allows"):
            await client.infer(call, SECONDS)

        async def is_answered() -> bool:
            try:
                return len((await client.infer(call, SECONDS)).outputs) == 1
            except ModelRejected:
                return False

        await eventually(is_answered)


async def test_texts_and_small_inputs_go_by_grpc(engine: TritonServer) -> None:
    before = await regions(engine)
    text = Tensor("input", Datatype.BYTES, (1, 2), pack_bytes([bytes(100_000), b"x"]))
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,), shared_bytes=8 * MIB)) as client:
        reply = await client.infer(InferCall(identity_name("BYTES"), "", "r1", (text,)), SECONDS)
        assert reply.outputs[0].data == text.data
        await client.infer(
            InferCall("identity", "", "r1", (Tensor("input", Datatype.FP32, (1, 2), bytes(8)),)), SECONDS
        )
        assert await regions(engine) == before


async def test_a_closed_client_leaves_no_file_and_nothing_registered(engine: TritonServer) -> None:
    before = await regions(engine)
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,), shared_bytes=8 * MIB)) as client:
        name = await until_known(engine, client, before)
        about = (FOLDER / name).stat()
        assert (about.st_mode & 0o777, about.st_size) == (0o600, 8 * MIB)
    assert not (FOLDER / name).exists()
    assert name not in await regions(engine)


async def test_a_restarted_engine_gets_the_call_all_the_same_and_shares_anew(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    shutil.copytree(MODELS / "identity", tmp_path / "repository" / "identity")
    engine = start_engine([tmp_path / "repository"])
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,), shared_bytes=8 * MIB)) as client:
        name = await until_known(engine, client, set())
        await asyncio.to_thread(engine.stop)
        await asyncio.to_thread(engine.start)
        assert await regions(engine) == set()
        calls = [large(start=n * 7.0) for n in range(4)]
        answers = await asyncio.gather(*(client.infer(call, SECONDS) for call in calls))
        assert [bytes(answer.outputs[0].data) for answer in answers] == [bytes_of(call) for call in calls]
        assert await until_known(engine, client, set()) == name
    assert not (FOLDER / name).exists()


async def test_an_engine_that_knows_the_memory_already_is_believed(engine: TritonServer, endpoint: Endpoint) -> None:
    """As after an answer that got lost, or several calls that found out together that it had been restarted."""
    shared = SharedInputs(MIB, prefix=OURS)
    await known(shared, endpoint)
    shared.forget(endpoint)
    await known(shared, endpoint)
    with shared.placed(large(rows=1)) as placed:
        assert placed is not None
    await shared.close()
    assert not (FOLDER / placed.region).exists()
    assert placed.region not in await regions(engine)


async def test_what_a_killed_process_left_is_taken_away_by_the_next(engine: TritonServer, endpoint: Endpoint) -> None:
    before = await regions(engine)
    command = (sys.executable, "-c", VICTIM, engine.grpc_address, OURS)
    victim = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert victim.stdout is not None
        assert await victim.stdout.readline() == b"known\n"
        (left,) = await regions(engine) - before
    finally:
        victim.kill()
        await victim.wait()
    assert (FOLDER / left).exists()
    shared = SharedInputs(MIB, prefix=OURS)
    await known(shared, endpoint)
    assert not (FOLDER / left).exists()
    assert left not in await regions(engine)
    await shared.close()


async def test_memory_that_the_engine_still_reads_is_taken_back_later(engine: TritonServer, endpoint: Endpoint) -> None:
    shared = SharedInputs(MIB, prefix=OURS)
    await known(shared, endpoint)
    delay = Tensor("delay_ms", Datatype.INT32, (1, 1), struct.pack("<i", 1000))
    call = InferCall("slow", "", "r1", (delay,))
    with shared.placed(call) as placed:
        assert placed is not None
        request = request_bytes(call, 20_000_000, placed=placed)
        running = asyncio.create_task(endpoint.ask(endpoint.model_infer, request, SECONDS))

        other = request_bytes(large(rows=1), 20_000_000)
        await endpoint.ask(endpoint.model_infer, other, SECONDS)  # another model's answer: the first has been sent
        await shared.close()
        assert (FOLDER / placed.region).exists()
        assert placed.region in await regions(engine)
        assert struct.pack("<i", 1000) in await running
    following = SharedInputs(MIB, prefix=OURS)
    await known(following, endpoint)
    assert not (FOLDER / placed.region).exists()
    assert placed.region not in await regions(engine)
    await following.close()


async def test_the_place_of_a_call_that_was_given_up_rests(endpoint: Endpoint) -> None:
    now = 100.0
    shared = SharedInputs(MIB, prefix=OURS, clock=lambda: now)
    await known(shared, endpoint)
    call = large(rows=1)
    with pytest.raises(asyncio.CancelledError), shared.placed(call) as first:
        raise asyncio.CancelledError
    with shared.placed(call) as second, shared.placed(call) as third:
        assert first is not None
        assert second is not None
        assert third is not None
        assert len({first.inputs, second.inputs, third.inputs}) == 3
    with shared.placed(call) as again:
        assert again == second
    now += REST_SECONDS
    with shared.placed(call) as rested:
        assert rested == first
    await shared.close()


async def test_a_call_that_is_canceled_harms_none_of_those_that_follow(sharing: TritonClient) -> None:
    for n in range(10):
        canceled = [asyncio.create_task(sharing.infer(large(start=-1e6), SECONDS)) for _ in range(2)]
        await asyncio.sleep(0)
        for task in canceled:
            task.cancel()
        call = large(start=n * 100.0)
        assert (await sharing.infer(call, SECONDS)).outputs[0].data == bytes_of(call)
        await asyncio.gather(*canceled, return_exceptions=True)


async def test_of_two_addresses_one_may_share_and_the_other_not(engine: TritonServer) -> None:
    remote = scripted_model("identity", inputs=[("input", "FP32", (-1,))], outputs=[("output", "FP32", (-1,))])
    async with ScriptedTriton([remote]) as other:
        options = EngineOptions(addresses=(engine.grpc_address, other.address), shared_bytes=8 * MIB)
        async with TritonClient(options) as client:
            before = await regions(engine)

            async def is_known() -> bool:
                await client.infer(large(), SECONDS)
                return bool(await regions(engine) - before)

            await eventually(is_known)
            arrived = len(other.calls)
            for n in range(8):
                call = large(start=float(n))
                assert (await client.infer(call, SECONDS)).outputs[0].data == bytes_of(call)
            assert len(other.calls) - arrived == 4
            assert all("shared_memory_region" not in seen.request.inputs[0].parameters for seen in other.calls)
            assert len(await regions(engine) - before) == 1
