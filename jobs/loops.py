"""Ending tasks that talk to Redis, for certain.

It owns the one workaround that this takes; what the tasks do is their owners' business.
"""

import asyncio
from typing import Any, Final

_CANCEL_AGAIN_SECONDS: Final = 0.05


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks until all have ended; how they ended is nobody's concern any more.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which redis-py uses, can swallow a cancellation.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
