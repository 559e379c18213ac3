"""Runs calls side by side in a few threads, for the client that blocks.

Owns the threads and how they end; must not know what is called.
"""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


def side_by_side(calls: Sequence[Callable[[Callable[[], bool]], T]], threads: int) -> list[T]:
    """What the calls return, in their order; raises what the first of them raises, or Ctrl-C, and waits no longer.

    Each call is given a function that says whether its result is no longer wanted. A thread that is still busy then
    ends by itself, and does not keep the process from ending.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    ended: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
    is_over = threading.Event()
    for place in range(len(calls)):
        waiting.put(place)

    def work() -> None:
        while not is_over.is_set():
            try:
                place = waiting.get_nowait()
            except Empty:
                return
            try:
                ended.put((place, calls[place](is_over.is_set), None))
            except BaseException as exc:  # raised where it is waited for
                ended.put((place, None, exc))

    results: dict[int, T] = {}
    try:
        for _ in range(min(max(1, threads), len(calls))):
            threading.Thread(target=work, name="inferq-wait", daemon=True).start()
        for _ in calls:
            place, result, error = ended.get()
            if error is not None:
                raise error
            results[place] = result
    finally:
        is_over.set()
    return [results[place] for place in range(len(calls))]
