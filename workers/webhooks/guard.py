"""The only way to a socket: an address that was resolved for this send, judged, and is connected to as it is.

It owns what may be dialled and when; it must not know HTTP. No address is dialled by its name, so a name that changes
its mind after it was judged changes nothing.
"""

import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, Final

from jobs.addresses import Address
from jobs.destination import AllowList, Destination, ForbiddenDestination
from workers.webhooks.resolver import Resolve

MOST_ADDRESSES: Final = 4
"""Of one name; a send's time would not last for more."""


class Guard:
    """Admits the addresses of a destination for the length of one send."""

    def __init__(self, allowed: AllowList, resolve: Resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._admitted: Counter[tuple[Address, int]] = Counter()

    @asynccontextmanager
    async def admitted(self, destination: Destination) -> AsyncIterator[Sequence[Address]]:
        """The addresses that may be dialled inside the block, best first.

        Raises ForbiddenDestination where all are forbidden, and OSError where the name has none.
        """
        _, host, port, _ = destination
        literal = destination.literal
        found = [literal] if literal is not None else await self._resolve(host)
        objections = {address: self._allowed.objection(address, host, port) for address in found}
        addresses = [address for address, objection in objections.items() if objection is None][:MOST_ADDRESSES]
        if not addresses:
            meanings = sorted({objection.meaning for objection in objections.values() if objection is not None})
            raise ForbiddenDestination(f"leads to addresses that webhooks may not reach ({', '.join(meanings)})")
        dialled = [(address, port) for address in addresses]
        self._admitted.update(dialled)
        try:
            yield addresses
        finally:
            self._admitted.subtract(dialled)
            for entry in dialled:
                if not self._admitted[entry]:
                    del self._admitted[entry]

    def make_socket(self, target: tuple[Any, ...]) -> socket.socket:
        """The socket for an entry as of getaddrinfo, made only if a send in progress has had it judged.

        Whatever the HTTP client believes that it should do, it gets no other one.
        """
        family, kind, protocol, _, (host, port, *_) = target
        if (ip_address(host), port) not in self._admitted:
            raise ForbiddenDestination(f"was about to connect to {host} port {port}, which nobody has judged")
        return socket.socket(family, kind, protocol)
