"""Which attempts this worker holds, and which of them nobody wants any more.

It owns the leases to renew and the link from an attempt to the engine call that it is part of; it must not settle
anything.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from jobs.store import Lease


class Flights:
    """Leases in hand. One whose job is canceled or lost is dropped; a call whose leases are all dropped is cancelled.

    Everything goes by the lease, not by the job: after a lost lease the same worker may claim the same job again.
    """

    def __init__(self) -> None:
        self._calls: dict[Lease, _Call | None] = {}

    @contextmanager
    def holding(self, leases: Iterable[Lease]) -> Iterator[None]:
        """Hold these leases: they are renewed until the block ends or they are settled or dropped."""
        held = list(leases)
        self._calls.update(dict.fromkeys(held))
        try:
            yield
        finally:
            for lease in held:
                self.done(lease)

    @contextmanager
    def calling(self, leases: Iterable[Lease], task: "asyncio.Task[object]") -> Iterator[None]:
        """Tie an engine call to its leases: when all of them have been dropped, `task` is cancelled."""
        call = _Call(task, {lease for lease in leases if self.is_wanted(lease)})
        call.cancel_if_unwanted()
        self._calls.update(dict.fromkeys(call.wanted, call))
        try:
            yield
        finally:
            self._calls.update(dict.fromkeys(filter(self.is_wanted, call.wanted)))

    def leases(self) -> list[Lease]:
        """What to renew."""
        return list(self._calls)

    def is_wanted(self, lease: Lease) -> bool:
        """Whether this attempt may still be settled, as far as is known here."""
        return lease in self._calls

    def done(self, lease: Lease) -> None:
        """This attempt is settled or given up: renew it no longer."""
        self._calls.pop(lease, None)

    def drop(self, lease: Lease) -> bool:
        """Nobody wants this attempt any more; returns whether it was in hand."""
        if lease not in self._calls:
            return False
        call = self._calls.pop(lease)
        if call is not None:
            call.wanted.discard(lease)
            call.cancel_if_unwanted()
        return True

    def drop_job(self, job_id: str) -> bool:
        """Nobody wants this job any more; returns whether an attempt of it was in hand."""
        dropped = [self.drop(lease) for lease in self.leases() if lease.job_id == job_id]
        return any(dropped)


class _Call:
    """An engine call and the attempts that still want its answer."""

    __slots__ = ("task", "wanted")

    def __init__(self, task: "asyncio.Task[object]", wanted: set[Lease]) -> None:
        self.task = task
        self.wanted = wanted

    def cancel_if_unwanted(self) -> None:
        if not self.wanted:
            self.task.cancel()
