"""How many payload bytes a worker holds at once.

It counts; it must not know what the bytes are.
"""

from collections.abc import Sequence

from jobs.store import Claimed


class ByteBudget:
    """A cap that one job alone may exceed, so that a large one is late but never stuck."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._held_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more should be claimed now."""
        return self._held_bytes >= self._capacity_bytes

    def admit(self, jobs: Sequence[Claimed]) -> tuple[list[Claimed], list[Claimed]]:
        """Take bytes for as many of these jobs, from the first on, as fit; returns those and the rest."""
        for count, job in enumerate(jobs):
            nbytes = job_bytes(job)
            if self._held_bytes and self._held_bytes + nbytes > self._capacity_bytes:
                return list(jobs[:count]), list(jobs[count:])
            self._held_bytes += nbytes
        return list(jobs), []

    def free(self, jobs: Sequence[Claimed]) -> None:
        """Give the bytes of admitted jobs back."""
        self._held_bytes -= sum(job_bytes(job) for job in jobs)


def job_bytes(job: Claimed) -> int:
    """The size of a job's payload in bytes."""
    return sum(part.nbytes for part in job.request.inputs)
