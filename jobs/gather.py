"""Natural batching of store calls: what arrives while a block is on its way goes out together as the next one.

It never waits for more to come, and each caller gets its own answer; it knows nothing of what is sent.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from jobs.connection import StoreUnavailable

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Gatherer(Generic[Item, Reply]):
    """Turns single calls into blocks of at most `most`, with at most `in_flight` blocks on their way."""

    def __init__(
        self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]], *, most: int, in_flight: int = 1
    ) -> None:
        """`send` answers each item of a block, in order; sending an item twice must be harmless."""
        self._send = send
        self._most = most
        self._in_flight = in_flight
        self._waiting: deque[tuple[Item, asyncio.Future[Reply]]] = deque()
        self._senders: set[asyncio.Task[None]] = set()

    async def __call__(self, item: Item) -> Reply:
        """The reply to one item; raises what `send` raised for it. A caller that gives up is not sent any more."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._senders) < self._in_flight:
            self._senders.add(asyncio.create_task(self._send_blocks()))
        return await future

    async def close(self) -> None:
        """Give up on what is on its way; callers that still wait are cancelled. Legal twice."""
        for sender in list(self._senders):
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        while self._waiting:
            self._waiting.popleft()[1].cancel()

    async def _send_blocks(self) -> None:
        try:
            while block := self._next_block():
                try:
                    await self._settle(block)
                finally:
                    for _, future in block:
                        future.cancel()  # no effect on those that have their answer
        finally:
            # Here and not in a done callback, which comes a turn of the loop later: a call between would find the
            # place taken by a sender that sends no more, and wait for ever.
            self._senders.discard(_this_task())

    def _next_block(self) -> list[tuple[Item, asyncio.Future[Reply]]]:
        block: list[tuple[Item, asyncio.Future[Reply]]] = []
        while self._waiting and len(block) < self._most:
            item, future = self._waiting.popleft()
            if not future.done():
                block.append((item, future))
        return block

    async def _settle(self, block: list[tuple[Item, asyncio.Future[Reply]]]) -> None:
        """Send a block. What fails as a block is sent one by one, so that nobody pays for a neighbour's error."""
        try:
            replies = await self._send([item for item, _ in block])
        except Exception as exc:  # whatever it is, it belongs to the callers: this task has nobody to tell
            if len(block) == 1 or isinstance(exc, StoreUnavailable):
                for _, future in block:
                    if not future.done():
                        future.set_exception(exc)
                return
            for pair in block:
                await self._settle([pair])
            return
        for (_, future), reply in zip(block, replies, strict=True):
            if not future.done():
                future.set_result(reply)


def _this_task() -> "asyncio.Task[None]":
    task = asyncio.current_task()
    assert task is not None
    return task
