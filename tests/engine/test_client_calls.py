"""The client against a real Triton: what goes in comes out, and each kind of failure means what the table says."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inferq.stack import TritonServer
from jobs.datatypes import Datatype, pack_bytes, unpack_bytes
from jobs.errors import EngineFailed, EngineTimeout, JobFailure, ModelNotFound, ModelRejected, OutputTooLarge
from jobs.spec import InputKind, OutputKind
from jobs.tensors import Tensor
from tests.support.eventually import eventually
from tests.support.models import identity_name
from workers.triton.client import TritonClient
from workers.triton.messages import BatchTensor, InferCall, RequestedOutput
from workers.triton.options import EngineOptions

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SECONDS = 20.0


@pytest.fixture
async def client(engine: TritonServer) -> AsyncIterator[TritonClient]:
    """A client of the session's Triton."""
    async with TritonClient(EngineOptions(addresses=(engine.grpc_address,), keepalive_seconds=10.0)) as client:
        yield client


def call(model: str, *inputs: Tensor | BatchTensor, **changes: Any) -> InferCall:
    """A call of the newest version."""
    return InferCall(model, changes.pop("version", ""), "r1", inputs, **changes)


def floats(*shape: int, name: str = "input", start: float = 0.0) -> Tensor:
    """Rising FP32 numbers of this shape."""
    values = np.arange(start, start + np.prod(shape), dtype="<f4")
    return Tensor(name, Datatype.FP32, shape, values.tobytes())


def numbers(name: str, *rows: int) -> Tensor:
    """One INT32 a row."""
    return Tensor(name, Datatype.INT32, (len(rows), 1), struct.pack(f"<{len(rows)}i", *rows))


def elements(datatype: Datatype, count: int) -> bytes:
    """Raw bytes of this many elements, extremes and patterns that text would lose included."""
    if datatype is Datatype.BYTES:
        return pack_bytes([(b"", b"a\0b\0\0", "grüße".encode(), b"\xff\xfe")[at % 4] for at in range(count)])
    data = np.random.default_rng(1).bytes(count * (datatype.itemsize or 0))
    return bytes(byte & 1 for byte in data) if datatype is Datatype.BOOL else data


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("datatype", Datatype)
async def test_every_datatype_comes_back_bit_for_bit(client: TritonClient, datatype: Datatype, batching: bool) -> None:
    """B036, B037, T: JSON/msgpack/tensor."""
    shape = (3, 8) if batching else (8,)
    data = elements(datatype, 24 if batching else 8)
    model = identity_name(datatype.value, batching=batching)
    reply = await client.infer(call(model, Tensor("input", datatype, shape, data)), SECONDS)
    (output,) = reply.outputs
    assert (output.name, output.datatype, output.shape, output.data) == ("output", datatype, shape, data)
    assert reply.model_version == "1"


@pytest.mark.parametrize("width", [0, 1, 7, 150_528])
async def test_any_width_comes_back_bit_for_bit(client: TritonClient, width: int) -> None:
    """B030, B039."""
    row = floats(1, width)
    batch = BatchTensor("input", Datatype.FP32, (4, width), (row.data,) * 4)
    (output,) = (await client.infer(call("identity", batch), SECONDS)).outputs
    assert output.data == bytes(row.data) * 4


async def test_outputs_are_those_asked_for(client: TritonClient) -> None:
    spec = await client.describe("add_sub", "", SECONDS)
    inputs = [Tensor(each.name, each.datatype, (1, 2), struct.pack("<2f", 3, 5)) for each in spec.inputs]
    assert all(each.datatype is Datatype.FP32 for each in spec.inputs)
    reply = await client.infer(call("add_sub", *inputs, outputs=(RequestedOutput("difference"),)), SECONDS)
    assert [output.name for output in reply.outputs] == ["difference"]
    reply = await client.infer(call("add_sub", *inputs), SECONDS)
    assert {output.name for output in reply.outputs} == {"sum", "difference"}


async def test_classes_come_with_the_models_labels(client: TritonClient) -> None:
    picture = Tensor("image", Datatype.UINT8, (2, 224, 224, 3), bytes(2 * 224 * 224 * 3))
    outputs = (RequestedOutput("probabilities", classification=3),)
    (output,) = (await client.infer(call("efficientnet_lite0", picture, outputs=outputs), SECONDS)).outputs
    assert output.shape == (2, 3)
    score, index, label = unpack_bytes(bytes(output.data), 6)[0].decode().split(":", 2)
    assert 0 < float(score) <= 1
    assert 0 <= int(index) < 1000
    assert label


async def test_the_engines_own_models_are_described(client: TritonClient) -> None:
    spec = await client.describe("efficientnet_lite0", "", SECONDS)
    assert spec.refusal is None
    assert (spec.name, spec.versions, spec.max_batch_size) == ("efficientnet_lite0", ("1",), 8)
    assert [(each.name, each.dims, each.kind) for each in spec.inputs] == [("image", (224, 224, 3), InputKind.IMAGE)]
    assert spec.inputs[0].image is not None
    assert spec.inputs[0].image.crop == (224, 224)
    assert [(each.name, each.dims, each.kind, each.top) for each in spec.outputs] == [
        ("probabilities", (1000,), OutputKind.CLASSIFICATION, 5)
    ]


async def test_every_model_in_the_repositories_can_be_described(client: TritonClient) -> None:
    entries = await client.index(SECONDS)
    assert len(entries) > 30
    assert all(entry.is_ready for entry in entries)
    specs = {entry.name: await client.describe(entry.name, entry.version, SECONDS) for entry in entries}
    assert {name for name, spec in specs.items() if spec.refusal} == {"sequence"}
    assert {name for name, spec in specs.items() if spec.decoupled} == {"decoupled_repeat"}


async def test_the_engine_and_its_models_are_ready(client: TritonClient) -> None:
    assert await client.is_live(SECONDS)
    assert await client.is_ready(SECONDS)
    assert await client.is_model_ready("identity", "1", SECONDS)
    assert not await client.is_model_ready("identity", "7", SECONDS)
    assert not await client.is_model_ready("nobody", "", SECONDS)


@pytest.mark.parametrize(
    ("bad", "failure", "says"),
    [
        (call("nobody", floats(1, 2)), ModelNotFound, "unknown model: 'nobody' is not found"),
        (call("identity", floats(1, 2), version="7"), ModelNotFound, "version 7 is not found"),
        (call("identity", floats(1, 2), version="x"), ModelRejected, "version"),
        (call("identity", floats(2)), ModelRejected, r"Expected \[-1,-1\], got \[2\]\.$"),
        (call("identity", floats(65, 1)), ModelRejected, "batch-size must be <= 64"),
        (call("identity", floats(1, 2, name="other")), ModelRejected, "unexpected inference input 'other'"),
        (call("identity"), ModelRejected, "expected 1 inputs but got 0"),
        (call("identity", floats(1, 2), floats(1, 2)), ModelRejected, "already exists"),
        (call("identity", Tensor("input", Datatype.FP32, (1, 3), bytes(8))), ModelRejected, "Expected 12, got 8"),
        (call("identity", Tensor("input", Datatype.INT32, (1, 2), bytes(8))), ModelRejected, "data-type is 'INT32'"),
        (call("identity", floats(1, 2), outputs=(RequestedOutput("z"),)), ModelRejected, "unexpected inference output"),
        (call("picky", floats(1, 4, start=-3)), ModelRejected, "^negative values are not welcome here$"),
        (
            call("echo_text", Tensor("text", Datatype.BYTES, (1, 1), b"\3\3\3\3ab")),
            ModelRejected,
            "incomplete string data",
        ),
        (call("decoupled_repeat", numbers("count", 1)), ModelNotFound, "decoupled"),
        (call("sequence", numbers("value", 1)), ModelRejected, "correlation ID"),
    ],
)
async def test_a_bad_request_is_the_requests_fault(
    client: TritonClient, bad: InferCall, failure: type[JobFailure], says: str
) -> None:
    """B033, B034, B040, B043, B049: what the engine answers, where nobody checked before."""
    with pytest.raises(failure, match=says) as caught:
        await client.infer(bad, SECONDS)
    assert "request id" not in caught.value.detail
    assert "NOTE" not in caught.value.detail


async def test_a_deadline_ends_the_call_and_frees_the_model(client: TritonClient) -> None:
    with pytest.raises(EngineTimeout):
        await client.infer(call("slow", numbers("delay_ms", 30_000)), 0.3)
    await client.infer(call("slow", numbers("delay_ms", 0)), SECONDS)


async def test_cancelling_the_task_frees_the_model(client: TritonClient) -> None:
    """B042: the engine sees the cancellation, for the call that runs and for those that queue behind it."""
    before = await client.statistics("slow", "", SECONDS)
    tasks = [asyncio.create_task(client.infer(call("slow", numbers("delay_ms", 30_000)), 60.0)) for _ in range(3)]
    async with asyncio.timeout(SECONDS):
        while client.in_flight < 3:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
    await client.infer(call("identity", floats(1, 1)), SECONDS)  # another model's answer: the three have been sent
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(SECONDS):
        await client.infer(call("slow", numbers("delay_ms", 0)), SECONDS)
    after = await client.statistics("slow", "", SECONDS)
    assert after.compute_infer.seconds - before.compute_infer.seconds < SECONDS


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_a_decoupled_model_gives_all_its_responses(client: TritonClient, count: int) -> None:
    """B043."""
    one = Tensor("count", Datatype.INT32, (1,), struct.pack("<i", count))
    replies = await client.infer_stream(call("decoupled_repeat", one), SECONDS)
    assert [reply.outputs[0].array().tolist() for reply in replies] == [[at] for at in range(count)]


async def test_a_stream_fails_with_the_engines_own_status(client: TritonClient) -> None:
    with pytest.raises(ModelNotFound):
        await client.infer_stream(call("nobody", floats(1, 2)), SECONDS)
    with pytest.raises(ModelRejected):
        await client.infer_stream(call("decoupled_repeat", floats(1, name="count")), SECONDS)


@pytest.mark.parametrize("count", [-1, -4])
async def test_a_stream_with_an_error_before_its_last_response_fails_and_leaves_the_engine_alive(
    client: TritonClient, count: int
) -> None:
    """B043, B074: Triton 2.51 dies of such a model where it is asked for statuses."""
    one = Tensor("count", Datatype.INT32, (1,), struct.pack("<i", count))
    for _ in range(3):
        with pytest.raises(EngineFailed, match=r"^no more of that$"):
            await client.infer_stream(call("decoupled_repeat", one), SECONDS)
    two = replace(one, data=struct.pack("<i", 2))
    assert len(await client.infer_stream(call("decoupled_repeat", two), SECONDS)) == 2


async def test_a_response_above_the_limit_is_too_large(engine: TritonServer) -> None:
    """B030: and the connection is good for the next call."""
    options = EngineOptions(addresses=(engine.grpc_address,), message_bytes=1 << 20)
    classes = call("efficientnet_lite0", Tensor("image", Datatype.UINT8, (1, 224, 224, 3), bytes(224 * 224 * 3)))
    async with TritonClient(options) as client:
        one = Tensor("count", Datatype.INT32, (1,), struct.pack("<i", 40_000))
        with pytest.raises(OutputTooLarge):
            await client.infer_stream(call("decoupled_repeat", one), SECONDS)
        with pytest.raises(ModelRejected):
            await client.infer(call("identity", floats(1, 300_000)), SECONDS)
        await client.infer(classes, SECONDS)


async def test_statistics_count_items_and_runs(client: TritonClient) -> None:
    model = identity_name("INT8")
    before = await client.statistics(model, "", SECONDS)
    for rows in (1, 4, 4):
        await client.infer(call(model, Tensor("input", Datatype.INT8, (rows, 2), bytes(rows * 2))), SECONDS)

    async def are_counted() -> bool:  # Triton answers first and counts then
        return (await client.statistics(model, "1", SECONDS)).inferences - before.inferences >= 9

    await eventually(are_counted)
    after = await client.statistics(model, "1", SECONDS)
    assert after.inferences - before.inferences == 9
    assert after.executions - before.executions == 3
    assert after.executions_by_size[4] - before.executions_by_size.get(4, 0) == 2
    assert after.compute_infer.seconds > before.compute_infer.seconds
