"""The life of one delivery: load it, write the message, sign it, send it, record what came of it.

It owns what follows from what a receiver does. How it is sent, when it is tried again and how many are sent at once is
decided elsewhere.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Final

from jobs.codec import CodecError
from jobs.connection import StoreError
from jobs.deliveries import Attempt, Deliveries, Parcel
from jobs.store import JobStore
from jobs.webhook import DeliveryStatus
from workers.persist import persist
from workers.webhooks.hosts import Pace
from workers.webhooks.message import message_body
from workers.webhooks.schedule import next_pause_ms
from workers.webhooks.sender import Fault, Reply, Sender
from workers.webhooks.signing import signed_headers

GONE: Final = 410
"""The receiver wants no more of it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Carried:
    """What one run came to: `again_ms` is when the message is tried again (Unix ms), None when that is over."""

    again_ms: int | None = None
    pace: Pace = Pace.PROMPT


@dataclass(frozen=True, slots=True)
class Courier:
    """Carries one message a call, any number of calls at once. Raises StoreError while Redis is away."""

    store: JobStore
    deliveries: Deliveries
    sender: Sender
    secrets: tuple[str, ...]
    pauses_seconds: tuple[float, ...]
    rng: Random = field(default_factory=Random)
    clock: Callable[[], float] = monotonic

    async def carry(self, delivery: str) -> Carried:
        """Send a message once, if it is due and not done with already."""
        try:
            parcel = await self.deliveries.load(delivery)
        except CodecError as exc:
            log.warning("delivery %s can't be read and is dropped: %s", delivery, exc)
            return Carried()
        if parcel is None or parcel.delivery.status is not DeliveryStatus.PENDING:
            return Carried()
        if parcel.delivery.next_ms > parcel.now_ms:
            return Carried(again_ms=parcel.delivery.next_ms)
        began = self.clock()
        try:
            reply = await self._send(parcel)
        except StoreError:
            raise
        except Exception:  # a fault of ours: it counts as an attempt, or it would come again for ever
            log.exception("delivery %s could not be sent", delivery)
            reply = Reply(fault=Fault.INTERNAL)
        return await self._record(parcel, reply, round((self.clock() - began) * 1000))

    async def _send(self, parcel: Parcel) -> Reply:
        delivery, job, now_ms = parcel
        webhook = job.request.webhook if job else None
        if job is None or webhook is None:
            return Reply(fault=Fault.JOB_GONE)
        secrets = webhook.secrets or self.secrets
        if not secrets:
            log.error("job %s: its message can't be signed, as INFERQ_WEBHOOK_SECRET is not set here", job.id)
            return Reply(fault=Fault.UNSIGNED)
        body = await message_body(self.store, delivery, job, now_ms)
        headers = signed_headers(secrets, delivery.id, now_ms // 1000, body)
        return await self.sender.send(webhook.url, headers, body)

    async def _record(self, parcel: Parcel, reply: Reply, duration_ms: int) -> Carried:
        delivery, _, now_ms = parcel
        status, next_ms = self._judge(parcel, reply, now_ms + duration_ms)
        attempt = Attempt(now_ms, duration_ms, reply.status, reply.fault or "")
        is_ours = await persist(lambda: self.deliveries.attempt(delivery, attempt, status, next_ms))
        if status is DeliveryStatus.FAILED:
            log.warning("delivery %s failed for good: %s", delivery.id, reply.fault)
        pace = Pace.SLOW if reply.fault is Fault.TIMEOUT else Pace.PROMPT
        return Carried(next_ms if is_ours and status is DeliveryStatus.PENDING else None, pace)

    def _judge(self, parcel: Parcel, reply: Reply, ended_ms: int) -> tuple[DeliveryStatus, int]:
        """What a reply makes of a delivery, and when it is tried again (Unix ms, 0 = never)."""
        delivery = parcel.delivery
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
        if pause_ms is None:
            return DeliveryStatus.FAILED, 0
        return DeliveryStatus.PENDING, ended_ms + pause_ms
