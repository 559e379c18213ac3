"""How many of a worker's places each tenant holds, and may hold, so that its bad receivers leave room for others.

Pure. It must not know hosts: what one of those may have in flight is decided elsewhere.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

SHARE: Final = 2
"""So many times what it leaves free a tenant may hold: two thirds of an idle worker, and less the fuller that is."""
GOOD_SHARE: Final = 6
"""The same for sends to hosts that did well lately: what a tenant's other hosts can't take from these."""

SLOW_SHARE: Final = 1
"""The same for sends to hosts that ran out of time the last time: what these can't take from hosts nobody knows of."""


class Places:
    """A place is held while a message is in hand, and then for as long as the lookup of its host's name goes on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @property
    def free(self) -> int:
        """How many nobody holds."""
        return max(0, self._most - self._held.total())

    @property
    def held(self) -> Mapping[str, int]:
        """How many each tenant holds, for those that hold any."""
        return self._held

    def begun(self, tenant: str) -> None:
        """A message of this tenant was taken in hand."""
        self._held[tenant] += 1

    def ended(self, tenant: str) -> None:
        """It is in hand no more, and leaves nothing behind."""
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
