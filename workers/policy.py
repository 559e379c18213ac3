"""What becomes of a job whose attempt failed: tried again, given back, or failed for good.

Pure: randomness is a parameter, and the lane says what it knows of the engine.
"""

from random import Random
from typing import Final

from jobs.errors import EngineFailed, EngineLost, EngineTimeout, EngineUnavailable, JobFailure
from jobs.record import Outcome
from jobs.store import MAX_REDELIVERIES, Claimed, Fail, Release, Retry, Settlement

_BACKOFF_BASE_SECONDS: Final = 1.0
_BACKOFF_CAP_SECONDS: Final = 60.0


def after_failure(job: Claimed, failure: JobFailure, outcome: Outcome, rng: Random) -> Settlement:
    """How to settle an attempt that ended in `failure`; `outcome` holds it as plain data.

    An engine that is away costs the job nothing. One that dies under it counts like a worker that dies, and the job
    stays away for a random while, so that it meets others that were there as well less and less. Faults that may pass
    are tried again until `max_failures`. What the request itself is to blame for fails at once.
    """
    match failure:
        case EngineLost() if job.redeliveries >= MAX_REDELIVERIES:
            detail = f"The engine died {MAX_REDELIVERIES + 1} times in a row while it ran this job."
            return Fail(job.lease, Outcome(error=EngineFailed(detail).error))
        case EngineLost():
            return Release(job.lease, backoff_ms(job.redeliveries, rng), is_loss=True)
        case EngineUnavailable():
            return Release(job.lease)
        case EngineTimeout() | EngineFailed() if job.failures + 1 < job.request.max_failures:
            return Retry(job.lease, outcome, backoff_ms(job.failures, rng))
        case _:
            return Fail(job.lease, outcome)


def backoff_ms(failures: int, rng: Random) -> int:
    """How long to wait after this many earlier failures: exponential, with full jitter, a minute at most."""
    ceiling = min(_BACKOFF_CAP_SECONDS, _BACKOFF_BASE_SECONDS * 2 ** min(failures, 16))
    return int(rng.uniform(0, ceiling) * 1000)
