"""How calls end: canceled, timed out, dropped or closed, each ends in the engine too and leaves nothing behind."""

import asyncio
import gc
import os
from pathlib import Path

import pytest

from jobs.errors import EngineTimeout, EngineUnavailable
from tests.support.scripted_calls import SECONDS, call, ended, eventually, in_flight
from tests.support.scripted_triton import ScriptedTriton
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions

pytestmark = pytest.mark.anyio

MIB = 1 << 20


def resident_bytes() -> int:
    """How much memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_canceled_calls_are_canceled_in_the_engine_too(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B042: the RPC is canceled and the engine knows how long it may queue the request."""
    scripted.always("echo", "hang")
    tasks = await in_flight(scripted, lambda: client.infer(call(), 30.0), 100)
    for task in tasks:
        task.cancel()
    await scripted.until(lambda: scripted.cancellations == 100, timeout_seconds=1.0)
    assert all(isinstance(result, asyncio.CancelledError) for result in await ended(tasks))
    assert all(25_000_000 < seen.parameters["timeout"] <= 30_000_000 for seen in scripted.calls)
    assert client.in_flight == 0


async def test_a_short_call_that_is_left_ends_by_itself(scripted: ScriptedTriton, client: TritonClient) -> None:
    """Triton may die of a cancellation that meets the end of the call."""
    scripted.always("echo", "slow:0.02")
    tasks = await in_flight(scripted, lambda: client.infer(call(), SECONDS))
    tasks[0].cancel()
    assert isinstance((await ended(tasks))[0], asyncio.CancelledError)
    await scripted.until(lambda: scripted.in_flight == 0)
    assert scripted.cancellations == 0


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


async def test_a_stream_that_breaks_off_is_canceled(scripted: ScriptedTriton, client: TritonClient) -> None:
    """B054: an exception between two responses is a way out too."""
    scripted.say("many", "then:wrong_size")
    with pytest.raises(Exception, match="makes no sense"):
        await client.infer_stream(call("many"), SECONDS)
    await scripted.until(lambda: scripted.in_flight == 0, timeout_seconds=1.0)


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
