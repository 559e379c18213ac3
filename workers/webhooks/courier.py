"""The life of one delivery in hand: write the message, sign it, send it, record what came of it.

It owns what follows from what a receiver does. How it is sent, when it is tried again and how many are sent at once is
decided elsewhere.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Final

from jobs.codec import CodecError
from jobs.connection import StoreError
from jobs.deliveries import Attempt, Delivery, Record, Taken
from jobs.store import JobStore
from jobs.webhook import DeliveryStatus
from workers.persist import persist
from workers.webhooks.measures import Measures
from workers.webhooks.message import message_body
from workers.webhooks.schedule import next_pause_ms
from workers.webhooks.sender import Fault, Reply, Sender
from workers.webhooks.signing import signed_headers

GONE: Final = 410
"""The receiver wants no more of it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Courier:
    """Carries one message a call, any number of calls at once. Raises StoreError while Redis is away."""

    store: JobStore
    record: Callable[[Record], Awaitable[bool]]
    sender: Sender
    secrets: Mapping[str, tuple[str, ...]]
    pauses_seconds: tuple[float, ...]
    measures: Measures
    rng: Random = field(default_factory=Random)
    clock: Callable[[], float] = monotonic

    async def carry(self, taken: Taken) -> Reply | None:
        """Send a message once and record it; None where what was taken can't be read."""
        try:
            delivery = taken.delivery()
        except CodecError as exc:
            log.warning("delivery %s is dropped: %s", taken.id, exc)
            return None
        began = self.clock()
        try:
            reply = await self._send(delivery, taken)
        except StoreError:
            raise
        except Exception:  # a fault of ours: it counts as an attempt, or it would come again for ever
            log.exception("delivery %s could not be sent", taken.id)
            reply = Reply(fault=Fault.INTERNAL)
        await self._record(delivery, reply, taken.taken_ms, round((self.clock() - began) * 1000))
        return reply

    async def _send(self, delivery: Delivery, taken: Taken) -> Reply:
        job, now_ms = taken.job(), taken.taken_ms
        webhook = job.request.webhook if job else None
        if job is None or webhook is None:
            return Reply(fault=Fault.JOB_GONE)
        secrets = webhook.secrets or self.secrets.get(delivery.tenant, ())
        if not secrets:
            log.error("job %s: INFERQ_WEBHOOK_SECRET has none to sign the messages of %r with", job.id, delivery.tenant)
            return Reply(fault=Fault.UNSIGNED)
        body = await message_body(self.store, delivery, job, now_ms)
        headers = signed_headers(secrets, delivery.id, now_ms // 1000, body)
        return await self.sender.send(webhook.url, headers, body)

    async def _record(self, delivery: Delivery, reply: Reply, began_ms: int, duration_ms: int) -> None:
        status, next_ms = self._judge(delivery, reply, began_ms + duration_ms)
        attempt = Attempt(began_ms, duration_ms, reply.status, reply.fault or "")
        record = Record(delivery, attempt, status, next_ms)
        self.measures.attempted(reply, duration_ms / 1000)
        if not await persist(lambda: self.record(record)) or status is DeliveryStatus.PENDING:
            return
        self.measures.ended(status)
        if status is DeliveryStatus.FAILED:
            log.warning("delivery %s failed for good: %s", delivery.id, reply.fault)

    def _judge(self, delivery: Delivery, reply: Reply, ended_ms: int) -> tuple[DeliveryStatus, int]:
        """What a reply makes of a delivery, and when it is tried again (Unix ms, 0 = never)."""
        if reply.fault is None:
            return DeliveryStatus.DELIVERED, 0
        if reply.fault is Fault.JOB_GONE or reply.status == GONE:
            return DeliveryStatus.FAILED, 0
        pause_ms = next_pause_ms(
            self.pauses_seconds,
            tried=delivery.tried + 1,
            waited_ms=ended_ms - delivery.since_ms,
            chance=self.rng.random(),
            asked_ms=reply.retry_after_ms,
        )
        return (DeliveryStatus.FAILED, 0) if pause_ms is None else (DeliveryStatus.PENDING, ended_ms + pause_ms)
