"""What a lane knows of its engine: whether it answers, how fast, and what its refusals mean just now.

It turns answers into the breaker's and the sizer's state; it must not call anything.
"""

from jobs.errors import EngineUnavailable, JobFailure, ModelNotFound
from workers.breaker import Breaker
from workers.sizer import BatchSizer


class EngineWatch:
    """One model's breaker and sizer, fed by the batches that ran."""

    def __init__(self, sizer: BatchSizer, reload_grace_seconds: float, now: float) -> None:
        """`now` counts as the last time that the engine was known to serve the model (monotonic seconds)."""
        self.breaker = Breaker()
        self.sizer = sizer
        self._reload_grace_seconds = reload_grace_seconds
        self._served_at = now

    def answered(self, rows: int, sent: float, ended: float) -> None:
        """A call of `rows` rows was answered with a result."""
        self.breaker.succeed()
        self.sizer.observe(rows, sent, ended)
        self._served_at = ended

    def serving(self, now: float) -> None:
        """The engine says that the model is ready."""
        self._served_at = now
        self.breaker.close()

    def is_in_grace(self, now: float) -> bool:
        """Whether a model that is gone may still be a reload."""
        return now - self._served_at < self._reload_grace_seconds

    def judge(self, failure: JobFailure, now: float) -> JobFailure:
        """What a failure means to the jobs, knowing the engine's recent past.

        A model that was served a moment ago and is gone now is being reloaded: that is "unavailable" until the grace
        ends. Anything unavailable opens the breaker.
        """
        if isinstance(failure, ModelNotFound) and self.is_in_grace(now):
            failure = EngineUnavailable(failure.detail)
        if isinstance(failure, EngineUnavailable):
            self.breaker.trip(now)
        return failure
