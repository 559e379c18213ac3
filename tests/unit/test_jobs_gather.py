"""Gathering calls into blocks: everyone is answered, with their own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from jobs.gather import Gatherer

pytestmark = pytest.mark.anyio


class Doubler:
    """Answers twice the number, remembers the blocks, and waits to be let go on."""

    def __init__(self) -> None:
        self.blocks: list[list[int]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.blocks.append(list(items))
        await self.go.wait()
        if -1 in items:
            raise ValueError("no negative numbers")
        return [2 * item for item in items]


async def test_a_call_right_after_an_answer_is_answered_too() -> None:
    gatherer = Gatherer(Doubler(), most=4)
    async with asyncio.timeout(5):
        assert [await gatherer(i) for i in range(50)] == [2 * i for i in range(50)]


async def test_what_arrives_while_a_block_is_on_its_way_goes_out_together() -> None:
    send = Doubler()
    send.go.clear()
    gatherer = Gatherer(send, most=4)
    calls = [asyncio.create_task(gatherer(i)) for i in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = asyncio.create_task(gatherer(6))
    await asyncio.sleep(0)
    send.go.set()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*calls, late) == [0, 2, 4, 6, 8, 10, 12]
    assert send.blocks == [[0, 1, 2, 3], [4, 5, 6]]


async def test_one_bad_item_costs_its_neighbours_nothing() -> None:
    gatherer = Gatherer(Doubler(), most=4)
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(gatherer(i) for i in (1, -1, 3)), return_exceptions=True)
    assert answers[0] == 2
    assert isinstance(answers[1], ValueError)
    assert answers[2] == 6


async def test_closing_frees_those_who_wait() -> None:
    send = Doubler()
    send.go.clear()
    gatherer = Gatherer(send, most=1)
    calls = [asyncio.create_task(gatherer(i)) for i in range(3)]
    await asyncio.sleep(0)
    await gatherer.close()
    await gatherer.close()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
