"""A job as clients and receivers see it: the job object of the HTTP contract, from what the store says.

Pure: it reads no clock and no Redis, and it never sees the bytes of an output except as finished JSON.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from jobs.errors import ErrorCode, JobError
from jobs.record import Job, Outcome
from jobs.registry import LaneBeat, LaneState
from jobs.state import State
from jobs.store import Inspection

_ENDS: Final = {
    State.CANCELED: JobError(ErrorCode.CANCELED, "It was canceled on request."),
    State.EXPIRED: JobError(ErrorCode.EXPIRED, "No worker took it within its queue_ttl_seconds."),
}
_NOT_IN_LISTS: Final = frozenset({"queue", "output", "output_omitted"})
_IN_RECEIPTS: Final = ("id", "status", "done", "created_at", "run_at", "started_at", "finished_at", "expires_at")
_ALWAYS_LINKED: Final = ("self", "result", "events", "cancel")
_RAN_TO_AN_END: Final = frozenset({State.SUCCEEDED, State.FAILED})
_ERRORLESS: Final = frozenset({State.QUEUED, State.IN_PROGRESS, State.SUCCEEDED})


@lru_cache(maxsize=4096)
def timestamp(ms: int) -> str | None:
    """Unix milliseconds as RFC 3339 in UTC; None for 0, which means not yet."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"


def etag(job: Job) -> str:
    """Changes whenever the job's state or its webhook's does; weak, as a place in the queue moves without it."""
    told = f".{job.webhook_status}.{job.webhook_attempts}" if job.webhook_status else ""
    return f'W/"{job.state}.{job.attempt}.{job.failures}{told}"'


def job_error(job: Job) -> JobError | None:
    """Why the job has no result; None while it may still get one. An error that was retried is no end."""
    if job.state in _ERRORLESS:
        return None
    if job.state in _ENDS:
        return _ENDS[job.state]
    stored = job.outcome.error if job.outcome else None
    return stored or JobError(ErrorCode.LOST, "What its worker said of it is gone.")


def has_result(job: Job, now_ms: int) -> bool:
    """Whether there are outputs that may still be read."""
    return job.state is State.SUCCEEDED and job.outcome is not None and not job.has_expired(now_ms)


def waiting_for(job: Job, now_ms: int, lanes: Sequence[LaneBeat]) -> str | None:
    """What a queued job needs first: `lanes` are those of live workers that serve its model."""
    if job.state is not State.QUEUED:
        return None
    is_due = job.due_ms <= now_ms
    if not is_due and job.attempt == 0:
        return "schedule"
    if not lanes:
        return "no_worker"
    if all(lane.state is LaneState.ENGINE for lane in lanes):
        return "engine"
    return "backlog" if is_due else "backoff"


def job_object(
    inspection: Inspection, lanes: Sequence[LaneBeat], output: bytes | None = None, *, is_omitted: bool = False
) -> dict[str, Any]:
    """The whole job object. `output` is finished JSON, None where there is none or it `is_omitted` for its size."""
    job, rank, depth, now_ms = inspection
    request, outcome = job.request, job.outcome
    error = job_error(job)
    path = f"/jobs/{job.id}"
    return {
        "id": job.id,
        "status": job.state.value,
        "done": job.state.is_terminal,
        "model": request.model,
        "model_version": request.model_version or (outcome.model_version if outcome else "") or None,
        "created_at": timestamp(job.created_ms),
        "run_at": timestamp(request.run_at_ms),
        "started_at": timestamp(job.started_ms),
        "finished_at": timestamp(job.finished_ms),
        "expires_at": timestamp(job.result_expires_ms),
        "attempt": job.attempt,
        "failures": job.failures,
        "priority": request.priority.value,
        "queue": {
            "position": rank + 1 if rank >= 0 else None,
            "depth": depth or None,
            "waiting_for": waiting_for(job, now_ms, lanes),
        },
        "output": orjson.Fragment(output) if output is not None else None,
        "output_omitted": is_omitted,
        "error": error_object(error) if error else None,
        "timings": _timings(job),
        "batch": _batch(job),
        "webhook": _webhook(job),
        "metadata": request.metadata,
        "urls": {
            "self": path,
            "result": f"{path}/result",
            "events": f"{path}/events",
            "cancel": f"{path}/cancel",
            **({"deliveries": f"{path}/deliveries"} if request.webhook else {}),
        },
    }


def summary(job: Job) -> dict[str, Any]:
    """The job object of a list: without what takes a look at the queue or at outputs."""
    whole = job_object(Inspection(job, rank=-1, depth=0, now_ms=0), ())
    return {name: value for name, value in whole.items() if name not in _NOT_IN_LISTS}


def receipt(job: Job) -> dict[str, Any]:
    """The job object for somebody who may act on the job and not read it: its id, state, times and links."""
    whole = job_object(Inspection(job, rank=-1, depth=0, now_ms=0), ())
    urls = {name: path for name, path in whole["urls"].items() if name in _ALWAYS_LINKED}
    return {name: whole[name] for name in _IN_RECEIPTS} | {"urls": urls}


def error_object(error: JobError) -> dict[str, Any]:
    """An error as clients see it."""
    kind = error.kind
    return {"code": error.code.value, "title": kind.title, "detail": error.detail, "retryable": kind.retryable}


def _webhook(job: Job) -> Mapping[str, Any] | None:
    """Where messages go and how far the latest one is; never the secret that signs them."""
    if job.request.webhook is None:
        return None
    status = job.webhook_status.value if job.webhook_status else None
    return {"url": job.request.webhook.url, "status": status, "attempts": job.webhook_attempts}


def _timings(job: Job) -> Mapping[str, float | None]:
    """Seconds. The queue's share ends with the last attempt's start, so it holds what earlier attempts took."""
    arrived_ms = max(job.created_ms, job.request.run_at_ms)
    outcome = _last_word(job)
    spent = outcome.timings if outcome else None
    return {
        "queue_seconds": _seconds(job.started_ms - arrived_ms) if job.started_ms else None,
        "prepare_seconds": _seconds(spent.prepare_ms) if spent else None,
        "batch_wait_seconds": _seconds(spent.batch_wait_ms) if spent else None,
        "inference_seconds": _seconds(spent.inference_ms) if spent else None,
        "total_seconds": _seconds(job.finished_ms - job.created_ms) if job.finished_ms else None,
    }


def _seconds(ms: float) -> float:
    return round(max(ms, 0.0) / 1000, 6)


def _batch(job: Job) -> Mapping[str, Any] | None:
    outcome = _last_word(job)
    return {"size": outcome.batch_size, "id": outcome.batch_id} if outcome and outcome.batch_size else None


def _last_word(job: Job) -> Outcome | None:
    """What the attempt that ended the job came to; an outcome that stands in other states is of an earlier one."""
    return job.outcome if job.state in _RAN_TO_AN_END else None
