"""What an inference worker measures: batches, engine calls, and how attempts ended.

It owns the families; bounded labels only: models, error codes. No tenant and no id.
"""

from collections.abc import Mapping, Sequence

from jobs.metrics import SECONDS, SIZES, Family, Histogram, text_of
from jobs.registry import LaneBeat, LaneState
from jobs.store import Fail, Retry, Settlement, Succeed


class Measures:
    """The families of one worker."""

    def __init__(self) -> None:
        self._ended = Family("counter", "inferq_attempts_total", "Attempts by how they ended.", ("model", "outcome"))
        self._sizes = Histogram("inferq_batch_rows", "Rows of one engine call.", SIZES, ("model",))
        self._calls = Histogram("inferq_engine_call_seconds", "One engine call.", SECONDS, ("model",))
        self._prepare = Histogram("inferq_prepare_seconds", "From upload to tensor, one job.", SECONDS, ("model",))
        self._in_flight = Family("gauge", "inferq_batches_in_flight", "Batches under way.", ("model",))
        self._credits = Family("gauge", "inferq_batch_credits", "Batches that may be under way.", ("model",))
        self._engine = Family("gauge", "inferq_engine_ready", "1: the engine answers for the model.", ("model",))

    def called(self, model: str, rows: int, seconds: float) -> None:
        """The engine has answered a call."""
        self._sizes.observe(rows, model)
        self._calls.observe(seconds, model)

    def settled(self, model: str, settlement: Settlement) -> None:
        """An attempt has ended and that is recorded."""
        self._ended.add(1, model, _outcome(settlement))
        if isinstance(settlement, Succeed):
            self._prepare.observe(settlement.outcome.timings.prepare_ms / 1000, model)

    def page(self, lanes: Mapping[str, LaneBeat]) -> str:
        """Everything as it is now."""
        for model, lane in lanes.items():
            self._in_flight.put(lane.in_flight, model)
            self._credits.put(lane.credits, model)
            self._engine.put(float(lane.state is LaneState.READY), model)
        return text_of(self._families())

    def _families(self) -> Sequence[Family | Histogram]:
        gauges = (self._in_flight, self._credits, self._engine)
        return (self._ended, self._sizes, self._calls, self._prepare, *gauges)


def _outcome(settlement: Settlement) -> str:
    """`succeeded`, `released`, or the code of the error and whether it is tried again."""
    if isinstance(settlement, Fail | Retry):
        error = settlement.outcome.error
        code = error.code.value if error else "unknown"
        return f"{code}, retried" if isinstance(settlement, Retry) else code
    return "succeeded" if isinstance(settlement, Succeed) else "released"
