"""The client's connections: one for each address, the choice between addresses, and engines that go and come back."""

import asyncio

import pytest

from jobs.errors import EngineUnavailable
from tests.support.scripted_calls import SECONDS, call, ended, eventually, in_flight
from tests.support.scripted_triton import ScriptedTriton
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions

pytestmark = pytest.mark.anyio


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
