"""The store as a page of plain Python: what each event does to jobs that are kept in a dict.

Owns no clock and no randomness. Must not share code with `jobs.store`: it is what the scripts are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.state import TERMINAL, State
from jobs.store import ALONE_FROM, MAX_REDELIVERIES, Canceled, Deleted, Settled

LOOK_AGAIN_MS = 5_000


@dataclass
class ModelJob:
    """One job; `due_ms` and `lease_until_ms` count while it is queued and in progress."""

    id: str
    score: int
    due_ms: int
    deadline_ms: int
    look_ms: int
    is_scheduled: bool
    state: State = State.QUEUED
    attempt: int = 0
    failures: int = 0
    redeliveries: int = 0
    lease_until_ms: int = 0
    output: bytes | None = None

    @property
    def is_done(self) -> bool:
        return self.state in TERMINAL

    def requeue(self, due_ms: int, now: int) -> None:
        self.state, self.due_ms, self.is_scheduled = State.QUEUED, due_ms, due_ms > now


class ModelStore:
    """Jobs of one model and tenant by id."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}

    def submit(self, job_id: str, now: int, *, head_start_ms: int, delay_ms: int, ttl_ms: int) -> None:
        if job_id not in self.jobs:
            due, is_later = now + delay_ms, delay_ms > 0
            self.jobs[job_id] = ModelJob(job_id, due - head_start_ms, due, due + ttl_ms, due + ttl_ms, is_later)

    def claim(self, now: int, limit: int, lease_ms: int, *, is_idle: bool) -> list[tuple[str, int]]:
        for job in self._queued():
            job.is_scheduled = job.is_scheduled and job.due_ms > now
        claimed: list[tuple[str, int]] = []
        for job in sorted((job for job in self._queued() if not job.is_scheduled), key=lambda job: (job.score, job.id)):
            if len(claimed) >= limit:
                break
            if job.deadline_ms <= now:
                job.state = State.EXPIRED
                continue
            is_suspect = job.redeliveries >= ALONE_FROM
            if is_suspect and (claimed or not is_idle):
                break
            job.state, job.attempt, job.lease_until_ms = State.IN_PROGRESS, job.attempt + 1, now + lease_ms
            claimed.append((job.id, job.attempt))
            if is_suspect:
                break
        return claimed

    def extend(self, now: int, job_id: str, attempt: int, lease_ms: int) -> bool:
        job = self._held(job_id, attempt)
        if job is None:
            return False
        job.lease_until_ms = now + lease_ms
        return True

    def end(self, job_id: str, attempt: int, state: State, output: bytes | None) -> Settled:
        job = self._held(job_id, attempt)
        if job is None:
            other = self.jobs.get(job_id)
            is_repeated = other is not None and (other.state, other.attempt) == (state, attempt)
            return Settled.ALREADY if is_repeated else Settled.LEASE_LOST
        job.state, job.output = state, output
        job.failures += state is State.FAILED
        return Settled.OK

    def give_back(
        self, now: int, job_id: str, attempt: int, delay_ms: int, *, is_failure: bool = False, is_loss: bool = False
    ) -> Settled:
        job = self._held(job_id, attempt)
        if job is None:
            return Settled.LEASE_LOST
        job.failures += is_failure
        job.redeliveries += is_loss
        job.requeue(now + delay_ms, now)
        return Settled.OK

    def reap(self, now: int) -> tuple[set[str], set[str]]:
        requeued, failed = set(), set()
        for job in self.jobs.values():
            if job.state is State.IN_PROGRESS and job.lease_until_ms <= now:
                if job.redeliveries < MAX_REDELIVERIES:
                    job.redeliveries += 1
                    job.requeue(now, now)
                    requeued.add(job.id)
                else:
                    job.state = State.FAILED
                    failed.add(job.id)
        return requeued, failed

    def sweep(self, now: int) -> set[str]:
        expired = set()
        for job in self.jobs.values():
            if job.is_done or job.look_ms > now:
                continue
            if job.state is State.IN_PROGRESS:
                job.look_ms = now + LOOK_AGAIN_MS
            elif job.deadline_ms <= now:
                job.state = State.EXPIRED
                expired.add(job.id)
            else:
                job.look_ms = job.deadline_ms
        return expired

    def look(self, now: int, job_id: str) -> ModelJob | None:
        job = self.jobs.get(job_id)
        if job is not None and job.state is State.QUEUED and job.deadline_ms <= now:
            job.state = State.EXPIRED
        return job

    def cancel(self, job_id: str) -> Canceled:
        job = self.jobs.get(job_id)
        if job is None:
            return Canceled.NOT_FOUND
        if job.is_done:
            return Canceled.DONE
        was_queued = job.state is State.QUEUED
        job.state = State.CANCELED
        return Canceled.CANCELED if was_queued else Canceled.STOPPING

    def delete(self, job_id: str, *, force: bool) -> Deleted:
        job = self.jobs.get(job_id)
        if job is None:
            return Deleted.NOT_FOUND
        if not job.is_done and not force:
            return Deleted.NOT_DONE
        del self.jobs[job_id]
        return Deleted.OK

    def _queued(self) -> Iterable[ModelJob]:
        return (job for job in self.jobs.values() if job.state is State.QUEUED)

    def _held(self, job_id: str, attempt: int) -> ModelJob | None:
        job = self.jobs.get(job_id)
        return job if job and job.state is State.IN_PROGRESS and job.attempt == attempt else None
