"""What became of every accepted job, counted.

Owns what counts as lost, duplicated or late. Must not start or kill anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from inferq.chaos.killer import KINDS, Kill
from inferq.chaos.load import Followed, Load, is_right
from inferq.client import AsyncClient, Job, NotFound

REDELIVERY_SECONDS: Final = 20.0
"""What is promised after `kill -9` of a worker. Without Valkey or Triton nothing can run: after theirs it counts from
their restart."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The result. `lost` jobs are unknown now, or did not end; `duplicated` ones have two results or two ids."""

    accepted: int
    refused: list[str]
    statuses: Counter[str]
    lost: list[str]
    duplicated: list[str]
    wrong: list[str]
    late: list[str]
    redelivered: int
    longest_gap_seconds: float
    kills: Counter[str]

    @property
    def is_kept(self) -> bool:
        """Whether there were jobs and every promise to them was kept; a refusal breaks none."""
        return self.accepted > 0 and not (self.lost or self.duplicated or self.wrong or self.statuses["failed"])

    def rows(self) -> Iterator[tuple[str, str]]:
        """For a person."""
        yield "kills", ", ".join(f"{kind} {self.kills[kind]}" for kind in KINDS)
        yield "accepted", str(self.accepted)
        yield "refused", f"{len(self.refused)} ({self.refused[0]})" if self.refused else "0"
        yield "terminal", ", ".join(f"{status} {count}" for status, count in self.statuses.most_common()) or "0"
        yield "lost", _named(self.lost)
        yield "duplicated results", _named(self.duplicated)
        yield "wrong results", _named(self.wrong)
        yield "run more than once", str(self.redelivered)
        yield "late redeliveries", _named(self.late)
        yield "longest gap", f"{self.longest_gap_seconds:.1f} s"


async def tally(client: AsyncClient, load: Load, kills: Sequence[Kill]) -> Tally:
    """Ask for every accepted job again, and compare with how its end first looked."""
    found = {one.job.id: await _looked_up(client, one.job.id) for one in load.accepted}
    listed = Counter([job.raw["metadata"].get("number") async for job in client.list()])
    done = [(one, job) for one in load.accepted if (job := found[one.job.id]) is not None and job.done]
    changed = [one.job.id for one, job in done if one.first_end is not None and one.first_end.raw != job.raw]
    return Tally(
        accepted=len(load.accepted),
        refused=load.refused,
        statuses=Counter(job.status for _, job in done),
        lost=[job_id for job_id, job in found.items() if job is None or not job.done],
        duplicated=changed + [f"number {number}" for number, count in listed.items() if count > 1],
        wrong=[job.id for one, job in done if job.succeeded and not is_right(job, one.number)],
        late=[job.id for _, job in done if is_late(job, kills)],
        redelivered=sum(job.raw["attempt"] > 1 for _, job in done),
        longest_gap_seconds=longest_gap(load.accepted),
        kills=Counter(kill.kind for kill in kills),
    )


async def _looked_up(client: AsyncClient, job_id: str) -> Job | None:
    try:
        return await client.get(job_id)
    except NotFound:
        return None


def is_late(job: Job, kills: Iterable[Kill]) -> bool:
    """Whether the last attempt began later than promised after the kill that made it necessary."""
    started = datetime.fromisoformat(job.raw["started_at"]).timestamp() if job.raw["attempt"] > 1 else 0.0
    created = datetime.fromisoformat(job.raw["created_at"]).timestamp()
    instants = [kill.at if kill.kind == "worker" else kill.back_at for kill in kills if kill.kind != "api"]
    causes = [at for at in instants if created <= at <= started]
    return bool(causes) and started - max(causes) > REDELIVERY_SECONDS


def longest_gap(jobs: Iterable[Followed]) -> float:
    """The longest time in which no end was seen although some accepted job was open."""
    changes: list[tuple[float, int]] = []
    for one in jobs:
        if one.ended_at:
            created = datetime.fromisoformat(one.job.raw["created_at"]).timestamp()
            changes += [(created, 1), (one.ended_at, -1)]
    longest, open_jobs, since = 0.0, 0, 0.0
    for at, change in sorted(changes):
        if open_jobs == 0:
            since = at
        elif change < 0:
            longest, since = max(longest, at - since), at
        open_jobs += change
    return longest


def _named(ids: Sequence[str]) -> str:
    """How many, and the first of them to look at."""
    return f"{len(ids)} ({', '.join(ids[:5])})" if ids else "0"
