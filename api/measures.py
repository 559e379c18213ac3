"""What an api process measures of itself, and what it knows of queues and Redis, as metrics.

It owns the families; bounded labels only: paths as the routes spell them, models, roles. No tenant and no id. What is
not its own (queues, workers, Redis) every api process tells alike: whoever reads takes the largest, not the sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from api.budget import Budget
from api.catalog import Catalog
from api.pressure import Pressure
from api.waiters import Waiters
from jobs.connection import StoreError
from jobs.metrics import MAX_SERIES, SECONDS, Family, Histogram, text_of
from jobs.registry import Registry, WorkerRole

UNROUTED: Final = "(none)"


class Families:
    """The metrics of one process, in the order of its page."""

    def __init__(self) -> None:
        self.requests = Family(
            "counter", "inferq_http_requests_total", "Requests; status 0: the caller left first.", ("route", "status")
        )
        self.seconds = Histogram("inferq_http_request_seconds", "From head to last byte sent.", SECONDS, ("route",))
        self.waiting = Family("gauge", "inferq_waiting_requests", "Requests that wait for jobs, streams included.")
        self.uploads = Family("gauge", "inferq_upload_bytes", "Request bodies that the process holds.")
        self.results = Family("gauge", "inferq_result_bytes", "Large results that the process holds to send them.")
        self.ready = Family("gauge", "inferq_model_ready", "1: a job would be run now.", ("model",))
        self.lanes = Family("gauge", "inferq_model_workers", "Live workers that serve the model.", ("model",))
        self.queued = Family("gauge", "inferq_queued_jobs", "Jobs that wait, scheduled ones included.", ("model",))
        self.age = Family(
            "gauge", "inferq_queue_age_seconds", "For how long the job that is next has been due.", ("model",)
        )
        self.running = Family("gauge", "inferq_running_jobs", "Jobs in progress.", ("model",))
        self.workers = Family("gauge", "inferq_workers", "Live workers: inference, webhooks.", ("role",))
        self.open_jobs = Family("gauge", "inferq_open_jobs", "Jobs that have not ended, of all models.")
        self.open_bytes = Family("gauge", "inferq_open_bytes", "Their requests.")
        self.ended = Family("counter", "inferq_ended_jobs_total", "Jobs that ever ended, however they did.")
        self.redis = Family("gauge", "inferq_redis_up", "1: Redis answers this process.")
        self.memory = Family(
            "gauge", "inferq_redis_memory_ratio", "Redis' memory over its maxmemory, 0 to 1; 0: it has none."
        )

    def all(self) -> Sequence[Family | Histogram]:
        """Each of them."""
        return tuple(vars(self).values())


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the values come from that nobody reports."""

    catalog: Catalog
    registry: Registry
    pressure: Pressure
    waiters: Waiters
    uploads: Budget
    results: Budget


class Measures:
    """What is counted as it happens, and what is looked up for each page."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._families = Families()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request has got its answer; status 0: it got none."""
        self._families.requests.add(1, route or UNROUTED, str(status))
        self._families.seconds.observe(seconds, route or UNROUTED)

    async def page(self) -> str:
        """Everything as it is now; what Redis does not tell at the moment is left out."""
        await self._note_models()
        self._note_service()
        return text_of(self._families.all())

    async def _note_models(self) -> None:
        its, catalog, registry = self._families, self._sources.catalog, self._sources.registry
        for family in (its.ready, its.lanes, its.queued, its.age, its.running):
            family.clear()
        specs = sorted(catalog.models.values(), key=lambda spec: spec.name)[:MAX_SERIES]
        names = [spec.name for spec in specs]
        for spec in specs:
            its.ready.put(float(catalog.is_ready(spec)), spec.name)
            its.lanes.put(len(catalog.lanes(spec.name)), spec.name)
        try:
            depths, ages = await registry.depths(names), await registry.ages_seconds(names)
        except StoreError:
            return
        for model, (queued, running) in depths.items():
            its.queued.put(queued, model)
            its.running.put(running, model)
            its.age.put(ages[model], model)

    def _note_service(self) -> None:
        its, sources, load = self._families, self._sources, self._sources.pressure.load
        its.waiting.put(len(sources.waiters))
        its.uploads.put(sources.uploads.used_bytes)
        its.results.put(sources.results.used_bytes)
        its.workers.put(len(sources.catalog.workers), WorkerRole.INFERENCE.value)
        its.workers.put(len(sources.catalog.webhook_workers), WorkerRole.WEBHOOKS.value)
        its.open_jobs.put(load.open_jobs)
        its.open_bytes.put(load.open_bytes)
        its.ended.put(load.ended)
        its.redis.put(float(sources.catalog.fault() is None))
        its.memory.put(sources.pressure.memory_share)
