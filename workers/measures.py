"""What an inference worker measures: batches, engine calls, and how attempts ended.

It owns the families; bounded labels only: models, error codes. No tenant and no id.
"""

from collections.abc import Mapping, Sequence

from jobs.metrics import SECONDS, SIZES, Family, Histogram, text_of
from jobs.record import Outcome
from jobs.registry import LaneBeat, LaneState
from jobs.store import Fail, Retry, Settlement, Succeed


class Families:
    """The metrics of one worker, in the order of its page."""

    def __init__(self) -> None:
        self.attempts = Family(
            "counter",
            "inferq_attempts_total",
            "Attempts by how they ended (succeeded, failed, retried, released), with the error's code of those that "
            "failed or are retried.",
            ("model", "outcome", "code"),
        )
        self.prepare = Histogram("inferq_prepare_seconds", "From upload to tensor, one job.", SECONDS, ("model",))
        self.calls = Histogram("inferq_engine_call_seconds", "One engine call.", SECONDS, ("model",))
        self.rows = Histogram("inferq_batch_rows", "Rows of one engine call.", SIZES, ("model",))
        self.in_flight = Family("gauge", "inferq_batches_in_flight", "Batches under way.", ("model",))
        self.credits = Family("gauge", "inferq_batch_credits", "Batches that may be under way.", ("model",))
        self.engine = Family("gauge", "inferq_engine_ready", "1: the engine answers for the model.", ("model",))

    def all(self) -> Sequence[Family | Histogram]:
        """Each of them."""
        return tuple(vars(self).values())


class Measures:
    """What one worker counts, and how its lanes stand."""

    def __init__(self) -> None:
        self._families = Families()

    def called(self, model: str, rows: int, seconds: float) -> None:
        """The engine has answered a call."""
        self._families.rows.observe(rows, model)
        self._families.calls.observe(seconds, model)

    def settled(self, model: str, settlement: Settlement) -> None:
        """An attempt has ended and that is recorded."""
        self._families.attempts.add(1, model, *_outcome(settlement))
        if isinstance(settlement, Succeed):
            self._families.prepare.observe(settlement.outcome.timings.prepare_ms / 1000, model)

    def page(self, lanes: Mapping[str, LaneBeat]) -> str:
        """Everything as it is now."""
        its = self._families
        for model, lane in lanes.items():
            its.in_flight.put(lane.in_flight, model)
            its.credits.put(lane.credits, model)
            its.engine.put(float(lane.state is LaneState.READY), model)
        return text_of(its.all())


def _outcome(settlement: Settlement) -> tuple[str, str]:
    """How an attempt ended, and the code of its error, '' where it has none."""
    match settlement:
        case Fail(outcome=outcome):
            return "failed", _code(outcome)
        case Retry(outcome=outcome):
            return "retried", _code(outcome)
        case Succeed():
            return "succeeded", ""
        case _:
            return "released", ""


def _code(outcome: Outcome) -> str:
    return outcome.error.code.value if outcome.error else "unknown"
