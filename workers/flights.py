"""Which jobs this worker holds, and which of them nobody wants any more.

It owns the leases to renew and the link from a job to the engine call that it is part of; it must not settle anything.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from jobs.store import Lease


class Flights:
    """Leases in hand. A job that is canceled or lost is dropped; a call whose jobs are all dropped is cancelled."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._calls: dict[str, _Call] = {}

    @contextmanager
    def holding(self, leases: Iterable[Lease]) -> Iterator[None]:
        """Hold these leases: they are renewed until the block ends or their job is dropped."""
        held = list(leases)
        self._leases.update((lease.job_id, lease) for lease in held)
        try:
            yield
        finally:
            for lease in held:
                self.done(lease)

    @contextmanager
    def calling(self, leases: Iterable[Lease], task: "asyncio.Task[object]") -> Iterator[None]:
        """Tie an engine call to its jobs: when all of them have been dropped, `task` is cancelled."""
        call = _Call(task, {lease.job_id for lease in leases if self.is_wanted(lease)})
        call.cancel_if_unwanted()
        self._calls.update(dict.fromkeys(call.wanted, call))
        try:
            yield
        finally:
            for job_id in call.wanted:
                self._calls.pop(job_id, None)

    def leases(self) -> list[Lease]:
        """What to renew."""
        return list(self._leases.values())

    def is_wanted(self, lease: Lease) -> bool:
        """Whether this attempt may still be settled, as far as is known here."""
        return self._leases.get(lease.job_id) == lease

    def done(self, lease: Lease) -> None:
        """This attempt is settled or given up: renew it no longer."""
        if self._leases.get(lease.job_id) == lease:
            del self._leases[lease.job_id]

    def drop(self, job_id: str) -> bool:
        """Nobody wants this job any more; returns whether it was in hand."""
        if self._leases.pop(job_id, None) is None:
            return False
        call = self._calls.pop(job_id, None)
        if call is not None:
            call.wanted.discard(job_id)
            call.cancel_if_unwanted()
        return True


class _Call:
    """An engine call and the jobs that still want its answer."""

    __slots__ = ("task", "wanted")

    def __init__(self, task: "asyncio.Task[object]", wanted: set[str]) -> None:
        self.task = task
        self.wanted = wanted

    def cancel_if_unwanted(self) -> None:
        if not self.wanted:
            self.task.cancel()
