"""Random lives of many jobs at once, with stale owners, repeated calls and jumps of time, against a plain model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from jobs import keys
from jobs.record import LOCAL_TENANT, Priority
from jobs.state import State
from jobs.store import Fail, Lease, Release, Retry, Settlement, Submission, Submitted, Succeed, Suspects
from tests.property.store_model import ModelStore
from tests.support.stores import LEASE_MS, MODEL, Rig, Snapshot, a_result, a_submission, an_error, open_rig

HEAD_START_MS = 600_000
T = TypeVar("T")

any_job = st.integers(0, 11)
delays = st.sampled_from([0, 0, 0, 1, 700, 30_000])
attempts = st.sampled_from([0, 0, 0, 0, -1, 1])
"""Added to a job's true attempt: most callers hold the lease, some lost it, one is ahead of its time."""


@dataclass
class Seen:
    """What the store held of a job, as far as the laws speak of it."""

    state: State
    attempt: int
    outcome: bytes


class StoreMachine(RuleBasedStateMachine):
    """Each rule does the same to the store and to the model and compares the answers; the laws are checked between."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.exits = AsyncExitStack()
        self.rig: Rig = self.run(self.exits.enter_async_context(open_rig(url)))
        self.model = ModelStore()
        self.submissions: list[Submission] = []
        self.seen: dict[str, Seen] = {}
        self.is_large: dict[Lease, bool] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.exits.aclose())
        self.runner.close()

    @property
    def now(self) -> int:
        return self.rig.clock.now_ms

    def pick(self, index: int) -> str:
        """The id of one of the jobs ever submitted; of none, before the first."""
        return self.submissions[index % len(self.submissions)].id if self.submissions else "0" * 32

    def lease(self, index: int, ahead: int) -> Lease:
        job_id = self.pick(index)
        job = self.model.jobs.get(job_id)
        return Lease(job_id, (job.attempt if job else 1) + ahead)

    @rule(priority=st.sampled_from(Priority), delay_ms=delays, ttl_ms=st.sampled_from([5_000, 60_000, 3_600_000]))
    def submit(self, priority: Priority, delay_ms: int, ttl_ms: int) -> None:
        run_at_ms = self.now + delay_ms if delay_ms else 0
        job = a_submission(priority=priority, run_at_ms=run_at_ms, queue_ttl_ms=ttl_ms)
        assert self.run(self.rig.store.submit(job))[:2] == (Submitted.OK, job.id)
        head_start_ms = priority.head_start_ms(HEAD_START_MS)
        self.model.submit(job.id, self.now, head_start_ms=head_start_ms, delay_ms=delay_ms, ttl_ms=ttl_ms)
        self.submissions.append(job)

    @rule(index=any_job)
    @precondition(lambda self: self.submissions)
    def submit_again(self, index: int) -> None:
        job = self.submissions[index % len(self.submissions)]
        if job.id in self.model.jobs:
            assert self.run(self.rig.store.submit(job))[:2] == (Submitted.OK, job.id)

    @rule(limit=st.integers(0, 4), is_idle=st.booleans(), lease_ms=st.sampled_from([1_000, LEASE_MS]))
    def claim(self, limit: int, is_idle: bool, lease_ms: int) -> None:
        claimed = self.run(self.rig.claim(limit, suspects=Suspects(is_idle), lease_ms=lease_ms))
        expected = self.model.claim(self.now, limit, lease_ms, is_idle=is_idle)
        assert [tuple(one.lease) for one in claimed] == expected

    @rule(index=any_job, ahead=attempts)
    def extend(self, index: int, ahead: int) -> None:
        lease = self.lease(index, ahead)
        lost = self.run(self.rig.store.extend([lease], LEASE_MS))
        assert (lease not in lost) == self.model.extend(self.now, *lease, LEASE_MS)

    @rule(index=any_job, ahead=attempts, is_large=st.booleans())
    def succeed(self, index: int, ahead: int, is_large: bool) -> None:
        lease = self.lease(index, ahead)
        is_large = self.is_large.setdefault(lease, is_large)  # an attempt that says it again says the same
        output = f"{lease} {self.now}".encode() * 100 if is_large else None
        word = self.settle(Succeed(lease, a_result(), output))
        assert word == self.model.end(*lease, State.SUCCEEDED, output)

    @rule(index=any_job, ahead=attempts)
    def fail(self, index: int, ahead: int) -> None:
        lease = self.lease(index, ahead)
        assert self.settle(Fail(lease, an_error())) == self.model.end(*lease, State.FAILED, None)

    @rule(index=any_job, ahead=attempts, delay_ms=delays)
    def retry(self, index: int, ahead: int, delay_ms: int) -> None:
        lease = self.lease(index, ahead)
        word = self.settle(Retry(lease, an_error(), delay_ms))
        assert word == self.model.give_back(self.now, *lease, delay_ms, is_failure=True)

    @rule(index=any_job, ahead=attempts, delay_ms=delays, is_loss=st.booleans())
    def release(self, index: int, ahead: int, delay_ms: int, is_loss: bool) -> None:
        lease = self.lease(index, ahead)
        word = self.settle(Release(lease, delay_ms, is_loss))
        assert word == self.model.give_back(self.now, *lease, delay_ms, is_loss=is_loss)

    def settle(self, settlement: Settlement) -> object:
        return self.run(self.rig.store.settle([settlement]))[settlement.lease]

    @rule()
    def reap(self) -> None:
        requeued, failed = self.run(self.rig.store.reap([MODEL]))[MODEL]
        assert (set(requeued), set(failed)) == self.model.reap(self.now)

    @rule()
    def sweep(self) -> None:
        swept = self.run(self.rig.store.expire())
        assert (set(swept.expired), swept.lost) == (self.model.sweep(self.now), [])

    @rule(index=any_job)
    def look(self, index: int) -> None:
        inspection = self.run(self.rig.store.get(self.pick(index), LOCAL_TENANT))
        expected = self.model.look(self.now, self.pick(index))
        assert (inspection is None) == (expected is None)
        if inspection and expected:
            job = inspection.job
            assert (job.state, job.attempt, job.failures) == (expected.state, expected.attempt, expected.failures)

    @rule(index=any_job)
    def cancel(self, index: int) -> None:
        job_id = self.pick(index)
        assert self.run(self.rig.store.cancel(job_id, LOCAL_TENANT)) == self.model.cancel(job_id)

    @rule(index=any_job, force=st.booleans())
    def delete(self, index: int, force: bool) -> None:
        job_id = self.pick(index)
        assert self.run(self.rig.store.delete(job_id, LOCAL_TENANT, force=force)) == self.model.delete(
            job_id, force=force
        )
        if job_id not in self.model.jobs:
            self.seen.pop(job_id, None)

    @rule(milliseconds=st.sampled_from([1, 700, 1_000, 5_000, LEASE_MS, 60_000, 3_600_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.rig.clock.advance(milliseconds)

    @invariant()
    def the_laws_hold(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        snapshot = await self.rig.snapshot()
        queues = {
            name: {member.decode() for member, _ in snapshot.get(key.encode(), ([], False))[0]}  # type: ignore[attr-defined]
            for name, key in (
                ("ready", keys.ready_key(MODEL)),
                ("scheduled", keys.scheduled_key(MODEL)),
                ("leased", keys.leased_key(MODEL)),
                ("open", keys.OPEN_KEY),
                ("index", keys.index_key(LOCAL_TENANT)),
                ("share", keys.share_key(MODEL, LOCAL_TENANT)),
                ("turns", keys.turns_key(MODEL)),
            )
        }
        outputs = {key.decode(): value for key, (value, _) in snapshot.items() if key.startswith(b"inferq:out:")}
        for job_id, job in self.model.jobs.items():
            fields, has_ttl = snapshot[keys.job_key(job_id).encode()]
            assert isinstance(fields, dict)
            assert has_ttl
            self._check_history(job_id, fields)
            counts = [int(fields[name]) for name in (b"attempt", b"failures", b"redeliveries")]
            assert counts == [job.attempt, job.failures, job.redeliveries]
            assert State(fields[b"state"].decode()) is job.state
            place = {State.QUEUED: "scheduled" if job.is_scheduled else "ready", State.IN_PROGRESS: "leased"}
            places = {name for name in ("ready", "scheduled", "leased", "open") if job_id in queues[name]}
            assert places == (set() if job.is_done else {place[job.state], "open"})
            assert (keys.input_key(job_id).encode() in snapshot) == (not job.is_done)
            if job.output is not None:
                assert outputs.pop(keys.output_key(job_id, job.attempt)) == job.output
        assert outputs == {}, "an output is there that no job shows"
        assert queues["index"] == set(self.model.jobs)
        self._check_load(snapshot, queues)
        for name in ("ready", "scheduled", "leased", "open"):
            assert queues[name] <= set(self.model.jobs)

    def _check_load(self, snapshot: Snapshot, queues: dict[str, set[str]]) -> None:
        """Each tenant's part of the queue and the sums are those of the jobs that there are."""
        assert queues["share"] == queues["ready"]
        assert queues["turns"] == ({LOCAL_TENANT} if queues["ready"] else set())
        held: Any = snapshot.get(keys.HELD_KEY.encode(), ({}, False))[0]
        sums: Any = snapshot.get(keys.LOAD_KEY.encode(), ({}, False))[0]
        assert {job_id.decode() for job_id in held} == queues["open"]
        nbytes = sum(int(entry.partition(b":")[0]) for entry in held.values())
        assert int(sums.get(b"bytes", 0)) == int(sums.get(f"bytes:model:{MODEL}".encode(), 0)) == nbytes
        assert int(sums.get(f"jobs:tenant:{LOCAL_TENANT}".encode(), 0)) == len(held)

    def _check_history(self, job_id: str, fields: dict[bytes, bytes]) -> None:
        """An end stands, an attempt only grows."""
        now = Seen(State(fields[b"state"].decode()), int(fields[b"attempt"]), fields.get(b"outcome", b""))
        before = self.seen.get(job_id, now)
        assert now.attempt >= before.attempt
        if before.state.is_terminal:
            assert now == before
        self.seen[job_id] = now


@pytest.mark.timeout(60)
def test_any_life_of_any_jobs_follows_the_model(store_url: str) -> None:
    examples, steps = (100, 50) if store_url else (80, 40)
    run_state_machine_as_test(
        lambda: StoreMachine(store_url),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
