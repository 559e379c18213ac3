"""The engine's client against a scripted engine: connections, choice of address, restarts, cancellation, limits."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.datatypes import Datatype
from jobs.errors import EngineTimeout, EngineUnavailable, ModelNotFound, ModelRejected, OutputTooLarge
from jobs.tensors import Tensor
from tests.support.scripted_triton import ScriptedTriton, scripted_model
from workers.triton.client import TritonClient
from workers.triton.messages import BatchTensor, InferCall, RequestedOutput
from workers.triton.options import EngineOptions

pytestmark = pytest.mark.anyio

SECONDS = 5.0
MIB = 1 << 20


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedTriton]:
    """An engine with the model `echo`, and the decoupled model `many`."""
    async with ScriptedTriton([scripted_model("echo"), scripted_model("many", decoupled=True)]) as engine:
        yield engine


@pytest.fixture
async def client(scripted: ScriptedTriton) -> AsyncIterator[TritonClient]:
    """A client of that engine."""
    async with TritonClient(EngineOptions(addresses=(scripted.address,))) as client:
        yield client


def call(model: str = "echo", *, width: int = 3, **changes: Any) -> InferCall:
    """A call with one row of `width` FP32 numbers."""
    row = np.arange(width, dtype="<f4").tobytes()
    fields: dict[str, Any] = {"model": model, "version": "", "request_id": "r1"}
    return InferCall(**(fields | {"inputs": (Tensor("x", Datatype.FP32, (1, width), row),)} | changes))


async def in_flight(engine: ScriptedTriton, make: Callable[[], Any], count: int = 1) -> list[asyncio.Task[Any]]:
    """Tasks whose calls have all arrived at the engine."""
    wanted = engine.in_flight + count
    tasks = [asyncio.create_task(make()) for _ in range(count)]
    await engine.until(lambda: engine.in_flight == wanted)
    return tasks


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until the condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def resident_bytes() -> int:
    """How much memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def ended(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """The tasks' results and exceptions."""
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_call_carries_all_that_it_says(scripted: ScriptedTriton, client: TritonClient) -> None:
    parameters = {"flag": True, "count": -3, "huge": 2**64 - 1, "share": 0.5, "word": "x"}
    await client.infer(
        call(version="1", outputs=(RequestedOutput("y", classification=2),), parameters=parameters, priority=2), SECONDS
    )
    (seen,) = scripted.calls
    assert seen.model == "echo"
    assert seen.request.model_version == "1"
    assert seen.request.id == "r1"
    assert seen.parameters == parameters | {"priority": 2, "timeout": int(SECONDS * 1e6)}
    assert seen.request.outputs[0].parameters["classification"].int64_param == 2
    assert 0 < seen.seconds_left <= SECONDS


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


async def test_two_thousand_calls_use_one_connection(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B047: one channel per target and process."""
    for _ in range(20):
        await asyncio.gather(*(client.infer(call(), SECONDS) for _ in range(100)))
    assert len(scripted.calls) == 2000
    assert len(scripted.peers) == 1
    assert client.in_flight == 0


async def test_each_client_has_a_connection_of_its_own(scripted: ScriptedTriton) -> None:
    options = EngineOptions(addresses=(scripted.address,))
    async with TritonClient(options) as one, TritonClient(options) as other:
        await one.infer(call(), SECONDS)
        await other.infer(call(), SECONDS)
    assert len(scripted.peers) == 2


async def test_a_proxy_in_the_environment_is_not_for_the_engine(
    scripted: ScriptedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with TritonClient(EngineOptions(addresses=(scripted.address,))) as client:
        await client.infer(call(), SECONDS)


async def test_canceled_calls_are_canceled_in_the_engine_too(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B042: the RPC is canceled and the engine knows how long it may queue the request."""
    scripted.always("echo", "hang")
    tasks = await in_flight(scripted, lambda: client.infer(call(), 30.0), 100)
    for task in tasks:
        task.cancel()
    await scripted.until(lambda: scripted.cancellations == 100, timeout_seconds=1.0)
    assert all(isinstance(result, asyncio.CancelledError) for result in await ended(tasks))
    assert all(seen.parameters["timeout"] == 30_000_000 for seen in scripted.calls)
    assert client.in_flight == 0


async def test_a_call_may_set_its_own_queue_timeout(scripted: ScriptedTriton, client: TritonClient) -> None:
    await client.infer(call(timeout_us=1500, parameters={"timeout": 9}), SECONDS)
    assert scripted.calls[0].parameters == {"timeout": 1500}


@pytest.mark.parametrize("model", ["echo", "many"])
@pytest.mark.parametrize("leave", ["raise", "close", "drop"])
async def test_a_call_that_is_left_in_any_way_is_canceled(
    scripted: ScriptedTriton, client: TritonClient, model: str, leave: str
) -> None:
    """B054, V10: an RPC that is created and then dropped is never collected, so each way out cancels it."""
    scripted.always(model, "hang")
    await client.is_live(SECONDS)  # connected, so that the first suspension is the call's own
    coroutine = (client.infer if model == "echo" else client.infer_stream)(call(model), 30.0)
    while scripted.in_flight == 0:
        waiting = coroutine.send(None)
        await eventually(lambda it=waiting: it is None or it.done() or scripted.in_flight > 0)  # type: ignore[misc]
    if leave == "raise":
        with pytest.raises(ZeroDivisionError):
            coroutine.throw(ZeroDivisionError())
    elif leave == "close":
        coroutine.close()
    del coroutine
    gc.collect()
    await scripted.until(lambda: scripted.cancellations == 1, timeout_seconds=1.0)
    assert client.in_flight == 0


async def test_calls_that_end_early_leave_no_memory_behind(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B053: a third of the calls times out, a third is canceled in the engine; both with 256 KiB each way."""
    big = call(width=MIB // 16)
    scripted.always("echo", "hang")

    async def run(rounds: int) -> int:
        for _ in range(rounds):
            scripted.say("echo", "ok")
            await client.infer(big, SECONDS)
            (canceled,) = await in_flight(scripted, lambda: client.infer(big, SECONDS))
            canceled.cancel()
            with pytest.raises(EngineTimeout):
                await client.infer(big, 0.005)
            await ended([canceled])
            await scripted.until(lambda: scripted.in_flight == 0)
        return resident_bytes()

    before = await run(20)
    assert await run(200) - before < 25 * MIB  # 100 MiB where either kind kept its request


async def test_a_timeout_ends_the_call_on_both_sides(scripted: ScriptedTriton, client: TritonClient) -> None:
    scripted.always("echo", "hang")
    with pytest.raises(EngineTimeout):
        await client.infer(call(), 0.1)
    await scripted.until(lambda: scripted.in_flight == 0, timeout_seconds=1.0)


async def test_calls_go_where_the_fewest_are_in_flight() -> None:
    async with ScriptedTriton() as one, ScriptedTriton() as other:
        one.always("echo", "hang")
        async with TritonClient(EngineOptions(addresses=(one.address, other.address))) as client:
            slow = await in_flight(one, lambda: client.infer(call(), 30.0))
            for _ in range(4):
                await client.infer(call(), SECONDS)
            assert (len(one.calls), len(other.calls)) == (1, 4)
            other.always("echo", "hang")
            slow += [asyncio.create_task(client.infer(call(), 30.0)) for _ in range(9)]
            await one.until(lambda: one.in_flight == 5)
            await other.until(lambda: other.in_flight == 5)
        await ended(slow)


async def test_idle_addresses_take_turns() -> None:
    async with ScriptedTriton() as one, ScriptedTriton() as other:
        async with TritonClient(EngineOptions(addresses=(one.address, other.address))) as client:
            for _ in range(6):
                await client.infer(call(), SECONDS)
        assert (len(one.calls), len(other.calls)) == (3, 3)


async def test_an_address_that_is_down_is_passed_over() -> None:
    async with ScriptedTriton() as one, ScriptedTriton() as other:
        await one.stop()
        async with TritonClient(EngineOptions(addresses=(one.address, other.address))) as client:
            await asyncio.gather(*(client.infer(call(), SECONDS) for _ in range(10)))
            assert len(other.calls) == 10
            await one.start()
            async with asyncio.timeout(SECONDS):
                while not one.calls:
                    await client.infer(call(), SECONDS)


async def test_an_unavailable_address_is_tried_last_for_a_moment() -> None:
    async with (
        ScriptedTriton() as one,
        ScriptedTriton() as other,
        TritonClient(EngineOptions(addresses=(one.address, other.address))) as client,
    ):
        one.say("echo", "unavailable")
        with pytest.raises(EngineUnavailable):
            await client.infer(call(), SECONDS)
        for _ in range(5):
            await client.infer(call(), SECONDS)
        assert (len(one.calls), len(other.calls)) == (1, 5)
        async with asyncio.timeout(SECONDS):
            while len(one.calls) < 2:
                await client.infer(call(), SECONDS)


async def test_the_first_call_after_an_engine_restart_succeeds(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B052."""
    for _ in range(3):
        await client.infer(call(), SECONDS)
        await scripted.stop()
        await scripted.start()
    await client.infer(call(), SECONDS)
    assert len(scripted.calls) == 4


async def test_a_call_waits_a_moment_for_an_engine_that_comes_back(
    scripted: ScriptedTriton, client: TritonClient
) -> None:
    """B052: the reconnect's pause stays below the time that a call waits for a connection."""
    await client.infer(call(), SECONDS)
    await scripted.stop()
    waiting = [asyncio.create_task(client.infer(call(), SECONDS)) for _ in range(50)]
    await eventually(lambda: client.in_flight == 50)
    await scripted.start()
    assert not [result for result in await ended(waiting) if isinstance(result, BaseException)]


async def test_an_engine_that_stays_away_is_unavailable_before_the_deadline(scripted: ScriptedTriton) -> None:
    await scripted.stop()
    options = EngineOptions(addresses=(scripted.address,), connect_seconds=0.2)
    async with TritonClient(options) as client, asyncio.timeout(SECONDS):
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match=r"^The engine can't be reached\.$"):
                await client.infer(call(), 60.0)
        assert not await client.is_live(60.0)
        with pytest.raises(EngineUnavailable):
            await client.statistics("echo", "", 60.0)
        assert client.in_flight == 0


async def test_calls_that_a_stopping_engine_cuts_are_released(scripted: ScriptedTriton, client: TritonClient) -> None:
    scripted.always("echo", "hang")
    tasks = await in_flight(scripted, lambda: client.infer(call(), 30.0), 5)
    await scripted.stop()
    assert {type(result) for result in await ended(tasks)} == {EngineUnavailable}


async def test_closing_the_client_fails_its_calls_without_cancelling_their_tasks(
    scripted: ScriptedTriton, client: TritonClient
) -> None:
    scripted.always("echo", "hang")
    scripted.always("many", "hang")
    tasks = await in_flight(scripted, lambda: client.infer(call(), 30.0))
    tasks += await in_flight(scripted, lambda: client.infer_stream(call("many"), 30.0))
    await client.close()
    assert {type(result) for result in await ended(tasks)} == {EngineUnavailable}
    await scripted.until(lambda: scripted.cancellations == 2, timeout_seconds=1.0)


async def test_closing_the_client_ends_the_wait_for_a_connection(scripted: ScriptedTriton) -> None:
    await scripted.stop()
    client = TritonClient(EngineOptions(addresses=(scripted.address,), connect_seconds=60.0))
    client.open()
    waiting = asyncio.create_task(client.infer(call(), 60.0))
    await eventually(lambda: client.in_flight == 1)
    await client.close()
    async with asyncio.timeout(SECONDS):
        assert isinstance((await ended([waiting]))[0], EngineUnavailable)


async def test_a_client_may_be_closed_twice_and_before_it_is_open(scripted: ScriptedTriton) -> None:
    client = TritonClient(EngineOptions(addresses=(scripted.address,)))
    await client.close()
    with pytest.raises(EngineUnavailable, match="not open"):
        await client.infer(call(), SECONDS)
    client.open()
    client.open()
    await client.infer(call(), SECONDS)
    await client.close()
    await client.close()
    assert len(scripted.peers) == 1


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
    assert scripted.calls[0].metadata["triton_grpc_error"] == "true"
    assert scripted.calls[0].parameters["triton_enable_empty_final_response"] is True
    assert client.in_flight == 0


async def test_a_stream_that_breaks_off_is_canceled(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B054: an exception between two responses is a way out too."""
    scripted.say("many", "then:wrong_size")
    with pytest.raises(Exception, match="makes no sense"):
        await client.infer_stream(call("many"), SECONDS)
    await scripted.until(lambda: scripted.in_flight == 0, timeout_seconds=1.0)


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
