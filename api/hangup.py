"""Whether the client of a request that waits is still there.

It owns what counts as hanging up; what a wait then comes to is its own business. Who closes only the sending half of a
connection looks from here like somebody who is gone, and so is waited with no longer, but is answered.
"""

from typing import Final

from starlette.types import Receive, Scope

from api.waiters import Watch

HALF_CLOSED: Final = "half_closed"
"""In a request's state: an event that is set once its client has sent the last that it will ever send."""


def has_half_closed(scope: Scope) -> bool:
    """Whether nothing more can come from the client."""
    event = scope.get("state", {}).get(HALF_CLOSED)
    return event is not None and event.is_set()


async def end_on_hang_up(scope: Scope, receive: Receive, watch: Watch) -> None:
    """End the watch when the client hangs up; run it as a task, and cancel it."""
    while not has_half_closed(scope) and (await receive())["type"] != "http.disconnect":
        pass
    watch.end()
