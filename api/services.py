"""What all requests of one api process share: the store, the catalog, the waiters, and the loops that keep them fresh.

It owns their lifetime and that store calls go out in blocks; it decides nothing about a request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from api.auth import Gate
from api.budget import Budget, too_many_results, too_many_uploads
from api.catalog import Catalog
from api.intake import IntakeLimits, WebhookRules
from api.measures import Measures, Sources
from api.origins import Origins
from api.pressure import Pressure
from api.probe import StoreProbe
from api.settings import ApiSettings
from api.waiters import CHANNELS, Waiters
from jobs.apikeys import ApiKeys
from jobs.connection import StoreError, StoreUnavailable
from jobs.gather import Gatherer
from jobs.keys import API_KEYS_CHANNEL
from jobs.listener import Listener
from jobs.loops import end
from jobs.metrics import measured
from jobs.registry import Registry
from jobs.store import Inspection, JobStore, Submission, SubmitReply

_BLOCK: Final = 64
_BATCH_BLOCK: Final = 250
_BATCH_BLOCK_BYTES: Final = 4 * 1024 * 1024
_ALONE_BYTES: Final = 1024 * 1024
"""A payload from this size on is sent by itself, so that it holds nobody up."""
_DURABLE_BLOCKS: Final = 16
"""How many blocks may wait for the disk at once."""
_RESTART_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class Services:
    """One process' share of the product."""

    def __init__(self, settings: ApiSettings, store: JobStore) -> None:
        self.settings = settings
        self.store = store
        self.limits = {has_secret: _limits(settings, has_secret=has_secret) for has_secret in (False, True)}
        """What a request may ask, by whether there is a secret to sign its tenant's messages with."""
        self.registry = Registry(store.connection)
        self.catalog = Catalog(self.registry)
        self.waiters = Waiters()
        origins = Origins(settings.allow_origins, any_host=settings.allow_unauthenticated)
        self.gate = Gate(ApiKeys(store.connection), origins, self.waiters.wake_all)
        self.pressure = Pressure(store.connection, settings)
        self.uploads = Budget(settings.upload_bytes, too_many_uploads)
        self.results = Budget(settings.result_bytes, too_many_results)
        self.probe = StoreProbe(store.connection)
        self.measures = Measures(
            Sources(self.catalog, self.registry, self.pressure, self.waiters, self.uploads, self.results)
        )
        self._submissions = Gatherer(
            store.submit_many, most=_BLOCK, in_flight=_DURABLE_BLOCKS if settings.durable else 1
        )
        self._looks = Gatherer(self._look_at, most=_BLOCK // 2)

    async def submit(self, submission: Submission) -> SubmitReply:
        """Store a job; raises StoreError. A caller that gives up may or may not have stored it."""
        is_alone = memoryview(submission.payload).nbytes >= _ALONE_BYTES
        reply = await (self.store.submit(submission) if is_alone else self._submissions(submission))
        self._learn(submission, reply)
        return reply

    async def submit_all(self, submissions: Sequence[Submission]) -> list[SubmitReply | StoreError]:
        """Store many jobs, a block in each round trip; each has its own reply, or why it may not be stored.

        After a block that Redis did not answer for the others are not tried, so that nobody waits for each in turn.
        """
        replies: list[SubmitReply | StoreError] = []
        for block in _blocks(submissions):
            if replies and isinstance(replies[-1], StoreUnavailable):
                replies.extend([replies[-1]] * len(block))
                continue
            try:
                stored = await self.store.submit_many(block)
            except StoreError as exc:
                replies.extend([exc] * len(block))
                continue
            self._learn(block[-1], stored[-1])
            replies.extend(stored)
        return replies

    def _learn(self, submission: Submission, reply: SubmitReply) -> None:
        if reply.standing is not None:
            self.pressure.learn(submission.tenant, reply.standing, monotonic())

    async def look(self, job_id: str, tenant: str) -> Inspection | None:
        """A job of this tenant, or None; raises StoreError."""
        return await self._looks((job_id, tenant))

    async def _look_at(self, wanted: Sequence[tuple[str, str]]) -> list[Inspection | None]:
        return await asyncio.gather(*(self.store.get(job_id, tenant) for job_id, tenant in wanted))

    def faults(self) -> list[str]:
        """Why this process would not accept a job now; empty when it would."""
        found = [self.catalog.fault(), self.probe.fault]
        if self.waiters.is_quiet:
            found.append("This process is shutting down")
        if not self.catalog.models:
            found.append("No worker has registered a model yet")
        return [fault for fault in found if fault]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loops while the context lasts; on the way out nothing is left behind, the store included."""
        channels = (*CHANNELS, API_KEYS_CHANNEL)
        listener = Listener(self.store.connection, channels, self._on_message, self._on_gap)
        runs = (self.catalog.run, self.gate.run, self.pressure.run, listener.run, self.probe.run)
        loops = [asyncio.create_task(_keep_running(run)) for run in runs]
        try:
            async with measured(self.settings, self.measures.page):
                yield
        finally:
            self.waiters.quiet()
            await end(*loops)
            await self._submissions.close()
            await self._looks.close()
            await self.store.close()

    def _on_message(self, channel: str, ids: list[str]) -> None:
        if channel == API_KEYS_CHANNEL:
            self.gate.changed()
        else:
            self.waiters.on_ids(channel, ids)

    def _on_gap(self) -> None:
        self.probe.look_again()
        self.waiters.wake_all()


def _limits(settings: ApiSettings, *, has_secret: bool) -> IntakeLimits:
    rules = WebhookRules(settings.webhook_allowed, has_secret)
    return IntakeLimits(settings.max_body_bytes, settings.max_pixels, settings.max_json_bytes, webhooks=rules)


def _blocks(submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
    """In order, each block of bounded length and, unless it is a single job, of bounded size."""
    block: list[Submission] = []
    nbytes = 0
    for submission in submissions:
        size = memoryview(submission.payload).nbytes
        if block and (len(block) == _BATCH_BLOCK or nbytes + size > _BATCH_BLOCK_BYTES):
            yield block
            block, nbytes = [], 0
        block.append(submission)
        nbytes += size
    if block:
        yield block


async def _keep_running(run: Callable[[], Awaitable[None]]) -> None:
    """Run a loop until cancelled. A fault of ours in it must not leave a process that looks alive but is deaf."""
    while True:
        try:
            await run()
        except Exception:  # see above: it is logged, and the loop starts anew
            log.exception("a loop of the api failed and starts again")
        await asyncio.sleep(_RESTART_SECONDS)
