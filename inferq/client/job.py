"""A job as the server last described it.

Owns how the job object is read; it is a snapshot and must not talk to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job has no result: a stable `code`, its `title`, and one sentence about this job."""

    code: str
    title: str
    detail: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Job:
    """One job at one instant. `raw` is the whole job object, with what has no attribute here.

    A key without the scope `read` is told what the job is called, its state and its times: `model` is '' then.
    """

    id: str
    status: str
    done: bool
    model: str
    error: JobError | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether there is a result."""
        return self.status == "succeeded"

    @property
    def output(self) -> Mapping[str, Any] | None:
        """The output as JSON where it is small enough to be part of the job; `result` has it always, and exactly."""
        output: Mapping[str, Any] | None = self.raw.get("output")
        return output

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the job was submitted with under this name; nothing where it had none, or the key may not read."""
        metadata: Mapping[str, Any] = self.raw.get("metadata") or {}
        return metadata

    @property
    def created_at(self) -> datetime:
        """When the server stored it, by Redis' clock, in UTC."""
        return datetime.fromisoformat(self.raw["created_at"])

    @property
    def attempt(self) -> int:
        """The number of its latest attempt; 0 before the first, and where the key may not read."""
        return int(self.raw.get("attempt") or 0)

    @property
    def webhook(self) -> Mapping[str, Any] | None:
        """`url`, and `status` and `attempts` of its latest message; None for a job that tells nobody."""
        webhook: Mapping[str, Any] | None = self.raw.get("webhook")
        return webhook

    @property
    def waiting_for(self) -> str | None:
        """What a queued job needs first: backlog, schedule, no_worker, engine or backoff."""
        queue: Mapping[str, Any] = self.raw.get("queue") or {}
        return queue.get("waiting_for")

    @property
    def batch_size(self) -> int:
        """How many jobs shared its engine call; 0 before it ran."""
        batch: Mapping[str, Any] = self.raw.get("batch") or {}
        return int(batch.get("size") or 0)

    @property
    def total_seconds(self) -> float | None:
        """From submit to the end; None before it."""
        timings: Mapping[str, Any] = self.raw.get("timings") or {}
        return timings.get("total_seconds")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Job:
        """The job that a job object describes; KeyError or TypeError where it is none."""
        error = plain.get("error")
        return cls(
            id=plain["id"],
            status=plain["status"],
            done=plain["done"],
            model=plain.get("model", ""),
            error=JobError(error["code"], error["title"], error["detail"], error["retryable"]) if error else None,
            raw=plain,
        )
