"""Jobs with webhooks on a test's store, and what becomes of their deliveries.

Owns short verbs. Must not assert anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs import outbox
from jobs.deliveries import UNSHARED, Attempt, Deliveries, Delivery, Hand, Record, Shares, Taken
from jobs.store import Fail, Succeed
from jobs.webhook import DeliveryStatus, Webhook, WebhookEvent
from tests.support.stores import Rig, a_result, an_error

URL = "https://receiver.example/hook"
HOST = "receiver.example"
SECRET = "whsec_" + "c2VjcmV0" * 4
LEASE_MS = 20_000
DONE = Attempt(at_ms=1, duration_ms=2, status=200)
REFUSED = Attempt(at_ms=1, duration_ms=2, status=500, fault="status")


class Outbox:
    """The deliveries of a rig."""

    def __init__(self, rig: Rig, *, has_webhooks: bool = True) -> None:
        self.rig = rig
        self._has_webhooks = has_webhooks
        self._now_ms = 0
        self.deliveries = Deliveries(rig.connection, rig.clock)

    async def submit(self, *events: WebhookEvent, url: str = URL, **options: Any) -> str:
        """The id of a new job that wants these messages, or those about its end."""
        webhook = Webhook(url, events) if events else Webhook(url)
        return await self.rig.submit(webhook=webhook if self._has_webhooks else None, **options)

    async def succeed(self, output: bytes | None = None, **options: Any) -> str:
        """The id of a job that succeeded, inline or with an output of its own."""
        job_id = await self.submit(**options)
        outcome = a_result() if output is None else an_error()
        await self.rig.store.settle([Succeed(await self.rig.lease(), outcome, output)])
        return job_id

    async def fail(self, **options: Any) -> str:
        """The id of a job that failed."""
        job_id = await self.submit(**options)
        await self.rig.store.settle([Fail(await self.rig.lease(), an_error())])
        return job_id

    async def hand(self, limit: int = 100, *, room: int = 8, shares: Shares = UNSHARED, **rooms: int) -> Hand:
        """What a worker would be given now; `rooms` by the first label of a host in `.example`."""
        named = {f"{name}.example": room for name, room in rooms.items()}
        return await self.deliveries.take(limit, lease_ms=LEASE_MS, room=room, rooms=named, shares=shares)

    async def taken(self) -> list[str]:
        """The ids of it."""
        return [taken.id for taken in (await self.hand()).taken]

    async def only(self) -> Taken:
        """The one delivery that is due."""
        (taken,) = (await self.hand()).taken
        return taken

    async def delivery(self, delivery: str) -> Delivery:
        """A delivery that must be there."""
        job_id = outbox.job_of(delivery) or ""
        return {found.id: found for found in await self.deliveries.of_job(job_id)}[delivery]

    async def settle(self, delivery: str, status: DeliveryStatus, attempt: Attempt = DONE, next_ms: int = 0) -> bool:
        """Record an attempt as the worker does, each at an instant of its own."""
        self._now_ms += 1
        made = replace(attempt, at_ms=self._now_ms)
        (is_first,) = await self.deliveries.record([Record(await self.delivery(delivery), made, status, next_ms)])
        return is_first


def message(job_id: str, event: WebhookEvent) -> str:
    """The id of a message."""
    return outbox.delivery_id(job_id, event)
