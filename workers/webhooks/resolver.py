"""Names to addresses, without letting a slow name server hold anybody else up.

It owns threads and nothing else: what may be connected to is judged elsewhere, on every send anew.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

from jobs.addresses import Address

_THREADS: Final = 256

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""The addresses of a name, best first; raises OSError where it has none."""


class SystemResolver:
    """The operating system's resolver. All who ask for a name while it is looked up share one thread and one answer.

    Threads of its own, as a lookup can't be cancelled: names that never resolve fill these, not the event loop's.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        """`threads` bounds the lookups at once; a caller that never has more on their way never waits for others'."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolve")
        self._lookups: dict[str, asyncio.Future[Sequence[Address]]] = {}

    async def __call__(self, host: str) -> Sequence[Address]:
        """See `Resolve`."""
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host)
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda done: self._forget(host, done))
        return await asyncio.shield(lookup)

    def pending(self, host: str) -> "asyncio.Future[Sequence[Address]] | None":
        """The lookup of a name that goes on, whether or not somebody waits for it; not to be cancelled."""
        return self._lookups.get(host)

    def _forget(self, host: str, done: "asyncio.Future[Sequence[Address]]") -> None:
        del self._lookups[host]
        if not done.cancelled():
            done.exception()  # seen, even if nobody waits for it any more

    def close(self) -> None:
        """Give up waiting lookups; running ones end by themselves. Legal twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str) -> Sequence[Address]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(ip_address(str(address[0])) for *_, address in found))
