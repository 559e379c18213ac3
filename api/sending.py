"""Sends large results in pieces, no faster than they are read, and counts them for as long as they are held.

It owns what counts as large; it must not know what a result means.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.budget import Budget, Share
from jobs.record import Outcome
from jobs.tensors import Buffer

LARGE_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024


class LargeResponse(StreamingResponse):
    """What it holds is given back once it is sent or nobody waits for it any more."""

    nbytes = 0
    """What it sends, where that is known."""

    def __init__(self, pieces: AsyncIterator[bytes], headers: Mapping[str, str] | None, media_type: str) -> None:
        super().__init__(pieces, 200, headers, media_type)
        self.held = ExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.held:
            await super().__call__(scope, receive, send)


def sent(parts: Sequence[Buffer], headers: Mapping[str, str], media_type: str) -> Response:
    """The response whose body is these parts, which are not copied as a whole where they are large."""
    nbytes = sum(memoryview(part).nbytes for part in parts)
    if nbytes <= LARGE_BYTES:
        return Response(b"".join(parts), 200, headers, media_type)
    response = LargeResponse(_pieces(parts), {**headers, "Content-Length": str(nbytes)}, media_type)
    response.nbytes = nbytes
    return response


async def _pieces(parts: Sequence[Buffer]) -> AsyncIterator[bytes]:
    """Copies, since the connection would keep all of a part for the sake of its last piece."""
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE_BYTES):
            yield bytes(view[start : start + _PIECE_BYTES])


class Hold:
    """A result's share of the budget, until a response takes it over."""

    def __init__(self, stack: ExitStack, share: Share) -> None:
        self._stack = stack
        self._share = share

    def hand_over(self, response: Response) -> None:
        """A large response holds the result for longer, and is counted by itself where it is the larger of the two."""
        if isinstance(response, LargeResponse):
            self._share.add(max(0, response.nbytes - self._share.nbytes))
            response.held = self._stack.pop_all()


@contextmanager
def holding(budget: Budget, outcome: Outcome | None) -> Iterator[Hold]:
    """Around reading and encoding a result; raises Problem where it is large and the process holds too much already."""
    nbytes = sum(part.nbytes for part in outcome.outputs) if outcome else 0
    with ExitStack() as stack:
        share = stack.enter_context(budget.open())
        if nbytes > LARGE_BYTES:
            share.add(nbytes)
        yield Hold(stack, share)
