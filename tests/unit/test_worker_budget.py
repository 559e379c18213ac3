"""Memory for decoders: who waits, who goes alone, and that nothing of it is lost."""

from __future__ import annotations

import asyncio

import pytest

from workers.budget import DecodeRoom

pytestmark = pytest.mark.anyio


async def _begun(room: DecodeRoom, *sizes: int) -> list[asyncio.Task[None]]:
    """Those who want so much, in this order, each as far as it comes."""
    tasks = [asyncio.create_task(room.enter(size)) for size in sizes]
    await _let_run()
    return tasks


async def _let_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _are_in(tasks: list[asyncio.Task[None]]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_as_many_decode_as_there_is_memory_for_in_their_order() -> None:
    room = DecodeRoom(100)
    tasks = await _begun(room, 60, 40, 30, 0)
    assert _are_in(tasks) == [True, True, False, False], "a small one does not pass those before it"
    room.leave(40)
    await _let_run()
    assert _are_in(tasks) == [True] * 4
    assert room.held_bytes == 90


async def test_a_picture_larger_than_all_the_memory_goes_alone() -> None:
    room = DecodeRoom(100)
    tasks = await _begun(room, 10, 1000, 10)
    assert _are_in(tasks) == [True, False, False]
    room.leave(10)
    await _let_run()
    assert _are_in(tasks) == [True, True, False]
    room.leave(1000)
    await _let_run()
    assert _are_in(tasks) == [True] * 3


async def test_whoever_gives_up_holds_nothing_and_nobody_up() -> None:
    room = DecodeRoom(100)
    tasks = await _begun(room, 60, 60, 40)
    tasks[1].cancel()
    await _let_run()
    assert tasks[2].done()
    room.leave(60)
    room.leave(40)
    assert room.held_bytes == 0
    (first,) = await _begun(room, 100)
    late = asyncio.create_task(room.enter(50))
    await asyncio.sleep(0)
    room.leave(100)
    late.cancel()  # in the same step as it is given its place
    await asyncio.gather(first, late, return_exceptions=True)
    assert late.cancelled()
    assert room.held_bytes == 0
