"""What an api process measures of itself, and what it knows of queues and Redis, as metrics.

It owns the families; bounded labels only: paths as the routes spell them, models, states. No tenant and no id.
"""

from collections.abc import Sequence
from typing import Final

from api.budget import Budget
from api.catalog import Catalog
from api.pressure import Pressure
from api.waiters import Waiters
from jobs.connection import StoreError
from jobs.metrics import MAX_SERIES, SECONDS, Family, Histogram, text_of
from jobs.registry import Registry

UNROUTED: Final = "(none)"


class Measures:
    """The families of one process, and where their values come from."""

    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        pressure: Pressure,
        waiters: Waiters,
        uploads: Budget,
        results: Budget,
    ) -> None:
        self._catalog, self._registry = catalog, registry
        self._pressure, self._waiters, self._uploads, self._results = pressure, waiters, uploads, results
        self.requests = Family("counter", "inferq_http_requests_total", "Requests answered.", ("route", "status"))
        self.seconds = Histogram("inferq_http_request_seconds", "Until the last byte.", SECONDS, ("route",))
        self._queued = Family("gauge", "inferq_queued_jobs", "Jobs that wait.", ("model",))
        self._running = Family("gauge", "inferq_running_jobs", "Jobs in progress.", ("model",))
        self._ready = Family("gauge", "inferq_model_ready", "1: a job would be run now.", ("model",))
        self._state = Family("gauge", "inferq_service", "What this process sees of the whole.", ("what",))

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request has got its answer; status 0: it got none."""
        self.requests.add(1, route or UNROUTED, str(status))
        self.seconds.observe(seconds, route or UNROUTED)

    async def page(self) -> str:
        """Everything as it is now; what Redis does not tell at the moment is left out."""
        for family in (self._queued, self._running, self._ready):
            family.clear()
        specs = sorted(self._catalog.models.values(), key=lambda spec: spec.name)[:MAX_SERIES]
        for spec in specs:
            self._ready.put(float(self._catalog.is_ready(spec)), spec.name)
        try:
            depths = await self._registry.depths([spec.name for spec in specs])
        except StoreError:
            depths = {}
        for model, (queued, running) in depths.items():
            self._queued.put(queued, model)
            self._running.put(running, model)
        self._note_state()
        return text_of(self._families())

    def _note_state(self) -> None:
        load = self._pressure.load
        for what, value in {
            "redis_up": float(self._catalog.fault() is None),
            "redis_memory_share": self._pressure.memory_share,
            "open_jobs": load.open_jobs,
            "open_bytes": load.open_bytes,
            "ended_jobs": load.ended,
            "workers": len(self._catalog.workers),
            "webhook_workers": len(self._catalog.webhook_workers),
            "waiting_requests": len(self._waiters),
            "upload_bytes": self._uploads.used_bytes,
            "result_bytes": self._results.used_bytes,
        }.items():
            self._state.put(value, what)

    def _families(self) -> Sequence[Family | Histogram]:
        return (self.requests, self.seconds, self._queued, self._running, self._ready, self._state)
