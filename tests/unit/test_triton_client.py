"""The client against a scripted engine: what calls carry, limits of size, streams, and what it tells of models."""

import numpy as np
import pytest

from jobs.datatypes import Datatype
from jobs.errors import ModelNotFound, ModelRejected, OutputTooLarge
from jobs.tensors import Tensor
from tests.support.scripted_calls import SECONDS, call
from tests.support.scripted_triton import ScriptedModel, ScriptedTriton, scripted_model
from workers.triton.client import TritonClient
from workers.triton.messages import BatchTensor, RequestedOutput
from workers.triton.options import EngineOptions

pytestmark = pytest.mark.anyio

MIB = 1 << 20


async def test_a_call_carries_all_that_it_says(scripted: ScriptedTriton, client: TritonClient) -> None:
    parameters = {"flag": True, "count": -3, "huge": 2**64 - 1, "share": 0.5, "word": "x"}
    await client.infer(
        call(version="1", outputs=(RequestedOutput("y", classification=2),), parameters=parameters, priority=2), SECONDS
    )
    (seen,) = scripted.calls
    assert seen.model == "echo"
    assert seen.request.model_version == "1"
    assert seen.request.id == "r1"
    timeout_us = seen.parameters["timeout"]
    assert seen.parameters == parameters | {"priority": 2, "timeout": timeout_us}
    assert 0 < timeout_us <= SECONDS * 1e6  # what is left once there is a connection
    assert seen.request.outputs[0].parameters["classification"].int64_param == 2
    assert 0 < seen.seconds_left <= SECONDS + 0.1  # gRPC rounds what it sends upwards


async def test_rows_in_several_buffers_arrive_as_one_tensor(scripted: ScriptedTriton, client: TritonClient) -> None:
    rows = np.arange(12, dtype="<f4").reshape(3, 4)
    parts = (rows[0].tobytes(), memoryview(rows[1]), bytearray(rows[2].tobytes()))
    reply = await client.infer(call(inputs=(BatchTensor("x", Datatype.FP32, (3, 4), parts),)), SECONDS)
    (output,) = reply.outputs
    assert output.array().tolist() == rows.tolist()
    assert reply.model_version == "1"
    assert scripted.calls[0].batch_size == 3


async def test_outputs_come_in_the_order_asked_for() -> None:
    model = scripted_model("two", outputs=[("a", "FP32", (-1,)), ("b", "INT64", (2,)), ("c", "BYTES", (1,))])
    async with ScriptedTriton([model]) as engine, TritonClient(EngineOptions(addresses=(engine.address,))) as client:
        asked = await client.infer(call("two", outputs=(RequestedOutput("c"), RequestedOutput("a"))), SECONDS)
        all_of_them = await client.infer(call("two"), SECONDS)
    assert [output.name for output in asked.outputs] == ["c", "a"]
    assert [output.name for output in all_of_them.outputs] == ["a", "b", "c"]


async def test_a_call_may_set_its_own_queue_timeout(scripted: ScriptedTriton, client: TritonClient) -> None:
    await client.infer(call(timeout_us=1500, parameters={"timeout": 9}), SECONDS)
    assert scripted.calls[0].parameters == {"timeout": 1500}


@pytest.mark.parametrize("size", [4 * MIB - 1, 4 * MIB + 1, 33 * MIB])
async def test_messages_above_the_usual_four_mebibytes_pass_both_ways(size: int) -> None:
    """B030."""
    model = scripted_model("bytes", inputs=[("x", "UINT8", (-1,))], outputs=[("y", "UINT8", (-1,))])
    data = np.random.default_rng(0).bytes(size)
    inputs = (Tensor("x", Datatype.UINT8, (1, size), data),)
    async with ScriptedTriton([model]) as engine, TritonClient(EngineOptions(addresses=(engine.address,))) as client:
        reply = await client.infer(call("bytes", inputs=inputs), SECONDS)
    assert reply.outputs[0].data == data


async def test_a_request_above_the_limit_is_refused_before_it_is_sent(scripted: ScriptedTriton) -> None:
    """B030."""
    async with TritonClient(EngineOptions(addresses=(scripted.address,), message_bytes=4096)) as client:
        await client.infer(call(width=1000), SECONDS)
        with pytest.raises(ModelRejected, match=r"^The request has \d+ bytes; the engine's link allows 4096\.$"):
            await client.infer(call(width=1025), SECONDS)
    assert len(scripted.calls) == 1


async def test_a_response_above_the_limit_is_too_large_not_a_busy_engine(scripted: ScriptedTriton) -> None:
    """B030, T: Triton link."""
    scripted.always("echo", "huge:5000")
    scripted.always("many", "times:30")
    async with TritonClient(EngineOptions(addresses=(scripted.address,), message_bytes=4096)) as client:
        with pytest.raises(OutputTooLarge):
            await client.infer(call(), SECONDS)
        with pytest.raises(OutputTooLarge):
            await client.infer_stream(call("many", width=100), SECONDS)
        scripted.always("echo", "ok")
        await client.infer(call(), SECONDS)


async def test_a_request_above_the_engines_own_limit_is_rejected() -> None:
    """B030."""
    async with (
        ScriptedTriton(message_bytes=4096) as engine,
        TritonClient(EngineOptions(addresses=(engine.address,))) as client,
    ):
        with pytest.raises(ModelRejected):
            await client.infer(call(width=2000), SECONDS)


async def test_a_stream_gives_all_its_responses_in_order(scripted: ScriptedTriton, client: TritonClient) -> None:
    scripted.say("many", "times:5", "times:0", "ok")
    assert [len(await client.infer_stream(call("many"), SECONDS)) for _ in range(3)] == [5, 0, 1]
    assert "triton_grpc_error" not in scripted.calls[0].metadata, "Triton dies of it"
    assert scripted.calls[0].parameters["triton_enable_empty_final_response"] is True
    assert client.in_flight == 0


async def test_health_asks_every_address() -> None:
    async with ScriptedTriton() as one, ScriptedTriton() as other:
        options = EngineOptions(addresses=(one.address, other.address), connect_seconds=0.2)
        async with TritonClient(options) as client:
            one.is_ready = False
            assert await client.is_live(SECONDS)
            assert await client.is_ready(SECONDS)
            assert await client.is_model_ready("echo", "", SECONDS)
            other.ready("echo", False)
            one.ready("echo", False)
            assert not await client.is_model_ready("echo", "", SECONDS)
            assert not await client.is_model_ready("nobody", "", SECONDS)
            await other.stop()
            assert not await client.is_ready(SECONDS)
            assert await client.is_live(SECONDS)


async def test_the_index_lists_models_that_are_not_ready_too(scripted: ScriptedTriton, client: TritonClient) -> None:
    scripted.ready("many", False)
    entries = await client.index(SECONDS)
    assert [(entry.name, entry.version, entry.is_ready) for entry in entries] == [
        ("echo", "1", True),
        ("many", "1", False),
    ]


async def test_a_model_is_described_from_metadata_and_configuration() -> None:
    model = scripted_model(
        "cats",
        inputs=[("image", "UINT8", (224, 224, 3))],
        outputs=[("p", "FP32", (1000,))],
        instances=3,
        versions=("10", "9"),
        parameter='{"inputs": {"image": {"kind": "image", "resize": 256, "crop": 224}}}',
    )
    async with ScriptedTriton([model]) as engine, TritonClient(EngineOptions(addresses=(engine.address,))) as client:
        spec = await client.describe("cats", "", SECONDS)
        with pytest.raises(ModelNotFound):
            await client.describe("dogs", "", SECONDS)
    assert (spec.name, spec.versions, spec.max_batch_size, spec.instances) == ("cats", ("9", "10"), 8, 3)
    assert spec.refusal is None
    assert spec.inputs[0].image is not None
    assert spec.inputs[0].image.crop == (224, 224)


async def test_a_model_with_one_version_is_described_with_one_look_at_a_configuration(
    scripted: ScriptedTriton, client: TritonClient
) -> None:
    await client.describe("echo", "", SECONDS)
    assert scripted.configurations == [("echo", "")]


async def test_each_version_of_a_model_is_described_and_all_by_one_address() -> None:
    """Engines that are being updated one by one have other versions."""
    older = scripted_model("m", inputs=[("x", "FP32", (2,))], max_batch_size=4).config
    newest = scripted_model("m", inputs=[("x", "FP32", (3,))]).config
    models = [ScriptedModel(newest, ("1", "2"), {"1": older}), ScriptedModel(newest, ("2", "3"))]
    async with (
        ScriptedTriton(models[:1]) as one,
        ScriptedTriton(models[1:]) as other,
        TritonClient(EngineOptions(addresses=(one.address, other.address))) as client,
    ):
        specs = {spec.versions: spec for spec in [await client.describe("m", "", SECONDS) for _ in range(4)]}
        assert {version for _, version in one.configurations} == {"", "1"}
    assert set(specs) == {("1", "2"), ("2", "3")}
    assert specs["2", "3"].variants == ()
    (variant,) = specs["1", "2"].variants
    assert (variant.versions, variant.max_batch_size, variant.inputs[0].dims) == (("1",), 4, (2,))
    assert specs["1", "2"].inputs[0].dims == (3,)


async def test_statistics_are_summed_over_addresses() -> None:
    async with (
        ScriptedTriton() as one,
        ScriptedTriton() as other,
        TritonClient(EngineOptions(addresses=(one.address, other.address))) as client,
    ):
        rows = Tensor("x", Datatype.FP32, (2, 1), bytes(8))
        for _ in range(4):
            await client.infer(call(inputs=(rows,)), SECONDS)
        await client.infer(call(), SECONDS)
        statistics = await client.statistics("echo", "", SECONDS)

    assert (statistics.inferences, statistics.executions) == (9, 5)
    assert statistics.success.count == 5
    assert statistics.executions_by_size == {1: 1, 2: 4}
