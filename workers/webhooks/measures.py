"""What a webhook worker measures: attempts, how messages end, and how many wait.

It owns the families. Labels are words of ours alone: no host, no tenant, no id.
"""

from collections.abc import Sequence
from typing import Final

from jobs.metrics import SECONDS, Family, Histogram, text_of
from jobs.webhook import DeliveryStatus
from workers.webhooks.sender import Reply

DELIVERED: Final = DeliveryStatus.DELIVERED.value


class Families:
    """The metrics of one worker, in the order of its page."""

    def __init__(self) -> None:
        self.attempts = Family("counter", "inferq_webhook_attempts_total", "Sends by what came of them.", ("result",))
        self.seconds = Histogram("inferq_webhook_attempt_seconds", "One send.", SECONDS)
        self.in_flight = Family("gauge", "inferq_webhook_attempts_in_flight", "Sends under way.")
        self.ended = Family(
            "counter", "inferq_webhook_deliveries_total", "Messages delivered, and given up (failed).", ("result",)
        )
        self.queued = Family(
            "gauge",
            "inferq_webhook_queued",
            "Messages of all workers: in the queue (those in hand and those that wait for their next attempt included) "
            "and in line for a host or tenant that has no room.",
            ("where",),
        )

    def all(self) -> Sequence[Family | Histogram]:
        """Each of them."""
        return tuple(vars(self).values())


class Measures:
    """What one worker counts, and how its queue stands."""

    def __init__(self) -> None:
        self._families = Families()

    def attempted(self, reply: Reply, seconds: float) -> None:
        """A message was sent, or could not be."""
        self._families.attempts.add(1, reply.fault.value if reply.fault else DELIVERED)
        self._families.seconds.observe(seconds)

    def ended(self, status: DeliveryStatus) -> None:
        """A message will not be tried again."""
        self._families.ended.add(1, status.value)

    def page(self, in_flight: int, queued: tuple[int, int] | None) -> str:
        """Everything as it is now; `queued`: in the queue and in line, None where Redis does not say."""
        its = self._families
        its.in_flight.put(in_flight)
        its.queued.clear()
        if queued is not None:
            its.queued.put(queued[0], "queue")
            its.queued.put(queued[1], "line")
        return text_of(its.all())
