"""A webhook worker on a test's store, with a clock that a test moves and a receiver on loopback.

Owns opening and closing. Must not patch the product: what runs is the worker of `python -m workers webhooks`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from random import Random
from time import monotonic
from typing import Any

from pydantic import SecretStr

from jobs import keys
from jobs.addresses import Address
from jobs.deliveries import Delivery
from jobs.webhook import DeliveryStatus
from tests.support.databases import Database
from tests.support.eventually import eventually
from tests.support.stores import Clock, Rig, open_rig
from tests.support.webhooks import SECRET, Outbox
from workers.webhooks.settings import WebhookWorkerSettings
from workers.webhooks.worker import WebhookWorker

ALLOW = ("127.0.0.0/8", "localhost", "::1")


class Middle(Random):
    """No jitter."""

    def random(self) -> float:
        return 0.5


@dataclass
class Names:
    """A resolver that answers as told; several answers for a name are given one after the other, the last for ever."""

    answers: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str) -> Sequence[Address]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError(f"no such name: {host}")
        rounds = self.answers[host]
        return [ip_address(text) for text in rounds[min(self.asked.count(host), len(rounds)) - 1]]


@dataclass
class Worker:
    """A running worker and what surrounds it."""

    rig: Rig
    outbox: Outbox
    names: Names
    worker: WebhookWorker

    @property
    def clock(self) -> Clock:
        return self.rig.clock

    async def one(self, job_id: str) -> Delivery:
        """The only delivery of a job."""
        (delivery,) = await self.outbox.deliveries.of_job(job_id)
        return delivery

    async def tried(self, job_id: str, attempts: int) -> Delivery:
        """The only delivery of a job, once it was tried so often and put back."""

        async def is_tried() -> bool:
            delivery = await self.one(job_id)
            return delivery.attempts >= attempts and not self.worker.tasks

        await eventually(is_tried)
        return await self.one(job_id)

    async def ended(self, job_id: str) -> Delivery:
        """The only delivery of a job, once it is not tried any more."""

        async def is_over() -> bool:
            return (await self.one(job_id)).status is not DeliveryStatus.PENDING and not self.worker.tasks

        await eventually(is_over)
        return await self.one(job_id)

    async def look(self) -> None:
        """Take what is due by the clock, now."""
        await self.worker.take_once(monotonic())

    async def queued(self) -> dict[str, int]:
        """Due instants in ms of what is in arq's queue."""
        entries = await self.rig.redis.zrange(keys.DELIVERIES_QUEUE, 0, -1, withscores=True)
        return {delivery.decode(): int(score) for delivery, score in entries}


@asynccontextmanager
async def running_worker(
    valkey_url: str,
    *,
    names: Names | None = None,
    tls: ssl.SSLContext | None = None,
    clock: Clock | None = None,
    allow: tuple[str, ...] = ALLOW,
    uses_system_names: bool = False,
    **options: Any,
) -> AsyncIterator[Worker]:
    """A worker on an empty database, which asks `names` unless it `uses_system_names`."""
    url = Database.WEBHOOKS.at(valkey_url)
    settings = WebhookWorkerSettings(
        redis_url=url, webhook_secret=SecretStr(options.pop("secret", SECRET)), webhook_allow=allow, **options
    )
    async with open_rig(url, clock) as rig:
        outbox, names = Outbox(rig), names or Names()
        worker = WebhookWorker(
            settings,
            rig.store,
            outbox.deliveries,
            resolve=None if uses_system_names else names,
            tls=tls,
            rng=Middle(),
            handle_signals=False,
        )
        running = asyncio.create_task(worker.main())
        try:
            yield Worker(rig, outbox, names, worker)
        finally:
            worker.stop_soon()
            await running
