"""What a webhook worker measures: attempts, how messages end, and how many wait.

It owns the families. Labels are words of ours alone: no host, no tenant, no id.
"""

from typing import Final

from jobs.metrics import SECONDS, Family, Histogram, text_of
from jobs.webhook import DeliveryStatus
from workers.webhooks.sender import Reply

DELIVERED: Final = DeliveryStatus.DELIVERED.value


class Measures:
    """The families of one worker."""

    def __init__(self) -> None:
        self._attempts = Family("counter", "inferq_webhook_attempts_total", "Sends by what came of them.", ("result",))
        self._ended = Family(
            "counter", "inferq_webhook_deliveries_total", "Messages delivered, and given up (failed).", ("result",)
        )
        self._seconds = Histogram("inferq_webhook_attempt_seconds", "One send.", SECONDS)
        self._in_flight = Family("gauge", "inferq_webhook_attempts_in_flight", "Sends under way.")
        self._queued = Family(
            "gauge",
            "inferq_webhook_queued",
            "Messages of all workers: in the queue (those in hand and those that wait for their next attempt included) "
            "and in line for a host that has no room.",
            ("where",),
        )

    def attempted(self, reply: Reply, seconds: float) -> None:
        """A message was sent, or could not be."""
        self._attempts.add(1, reply.fault.value if reply.fault else DELIVERED)
        self._seconds.observe(seconds)

    def ended(self, status: DeliveryStatus) -> None:
        """A message will not be tried again."""
        self._ended.add(1, status.value)

    def page(self, in_flight: int, queued: tuple[int, int] | None) -> str:
        """Everything as it is now; `queued`: in the queue and in line, None where Redis does not say."""
        self._in_flight.put(in_flight)
        self._queued.clear()
        if queued is not None:
            self._queued.put(queued[0], "queue")
            self._queued.put(queued[1], "line")
        return text_of((self._attempts, self._ended, self._seconds, self._in_flight, self._queued))
