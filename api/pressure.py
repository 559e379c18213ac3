"""How full the service is, by a copy of its load that is about a second old, and what that means to a caller.

It owns the memory limit, measured drain rates and the headers about them; the limits themselves hold in the store's
scripts, and each submit tells how it left the tenant. What is not known limits nobody.
"""

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

from api.problems import Problem, ProblemCode
from jobs.connection import Connection, StoreError
from jobs.load import BURST_SECONDS, MEMORY_SHARE, Load, read_load
from jobs.settings import StoreSettings
from jobs.store import Standing, Submission, Submitted

REFRESH_SECONDS: Final = 1.0
_WINDOW_SECONDS: Final = 30.0
_ROOM_SHARE: Final = 0.01
"""A caller comes back when so much of the limit has been drained, so that not all fight for the first free place."""
_UNKNOWN_SECONDS: Final = 30
_LONGEST_SECONDS: Final = 300

log = logging.getLogger(__name__)


class Limit(NamedTuple):
    """One limit as a caller meets it: how much of it is left, and how fast the jobs under it end (per second)."""

    name: str
    most: int
    left: int
    ended_per_second: float


class _Form(NamedTuple):
    """What stays the same in a tenant's headers for a while: the policies, and the text round what is left of each."""

    policies: str
    left: str


class Pressure:
    """The load and its recent past. Pure but for `run`; times are `monotonic` seconds."""

    def __init__(self, connection: Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._past: deque[tuple[float, Load]] = deque()
        self._forms: dict[str, _Form] = {}
        self._told: dict[str, tuple[Standing, float]] = {}
        self._ahead_until: dict[str, float] = {}
        self.load = Load()

    def note(self, load: Load, now: float) -> None:
        """Take this for the load at `now`."""
        self.load = load
        self._forms.clear()
        self._told = {tenant: told for tenant, told in self._told.items() if told[1] > now}
        self._ahead_until = {tenant: until for tenant, until in self._ahead_until.items() if until > now}
        self._past.append((now, load))
        while now - self._past[0][0] > _WINDOW_SECONDS:
            self._past.popleft()

    def learn(self, tenant: str, standing: Standing, now: float) -> None:
        """Take this for how the tenant stands at `now`, as a submit has told."""
        self._told[tenant] = standing, now
        if standing.ahead_ms:
            self._ahead_until[tenant] = now + standing.ahead_ms / 1000

    @property
    def memory_share(self) -> float:
        """How much of its memory limit Redis uses, from 0 to 1; 0 where it has none."""
        most = self.load.max_memory_bytes
        return self.load.used_memory_bytes / most if most else 0.0

    def refuse_if_full(self) -> None:
        """Raise Problem where new jobs would have taken memory that the accepted ones need a moment ago.

        It spares a body its way; whether there is memory for it is decided when it is stored.
        """
        if self.memory_share >= MEMORY_SHARE:
            raise self._no_memory()

    def _no_memory(self) -> Problem:
        limit = Limit("memory", self.load.max_memory_bytes, 0, self._rate("ended"))
        return _problem(ProblemCode.STORE_FULL, "The store has no room for another job. Try again later.", limit)

    def refusal(self, word: Submitted, submission: Submission) -> Problem:
        """What a submission is answered that the store refused with this word."""
        tenant, model = submission.tenant, submission.request.model
        if word is Submitted.NO_MEMORY:
            return self._no_memory()
        if word in (Submitted.FULL, Submitted.CROWDED):
            is_model = word is Submitted.FULL
            field = f"ended:model:{model}" if is_model else "ended"
            most = self._settings.max_queued if is_model else self._settings.max_open
            detail = f"The queue of model {model!r} is full." if is_model else "All queues together are full."
            return _problem(ProblemCode.QUEUE_FULL, detail, Limit("queue", most, 0, self._rate(field)))
        limit = next(limit for limit in self._quotas(tenant) if limit.name == _QUOTAS[word])
        detail = f"You have used up your quota of {_QUOTA_WORDS[word]}. Try again later."
        return _problem(ProblemCode.QUOTA_EXCEEDED, detail, limit)

    def standing(self, tenant: str, now: float) -> Mapping[str, str]:
        """What is left of the tenant's quotas, as headers. It is asked for every job, so most of it is kept ready."""
        form = self._forms.get(tenant)
        if form is None:
            form = self._forms[tenant] = self._form(tenant)
        if told := self._told.get(tenant):
            jobs, nbytes, _ = told[0]
        else:
            jobs, nbytes = self.load.tenant_jobs(tenant), self.load.tenant_bytes(tenant)
        settings = self._settings
        left = [max(settings.tenant_max_open - jobs, 0), max(settings.tenant_max_open_bytes - nbytes, 0)]
        if settings.tenant_rate:
            left.append(self._rate_left(tenant, now))
        return {"RateLimit-Policy": form.policies, "RateLimit": form.left % tuple(left)}

    def _rate_left(self, tenant: str, now: float) -> int:
        """How many jobs the tenant may submit at once, as the script counts them: a whole burst where it is silent."""
        rate = self._settings.tenant_rate
        ahead_seconds = max(self._ahead_until.get(tenant, now) - now, 0.0)
        return max(int(max(1.0, rate * BURST_SECONDS) - ahead_seconds * rate), 0)

    def _form(self, tenant: str) -> _Form:
        quotas = [limit for limit in self._quotas(tenant) if limit.name != "rate" or self._settings.tenant_rate]
        return _Form(", ".join(map(_policy, quotas)), ", ".join(_left(limit, "%d") for limit in quotas))

    def _quotas(self, tenant: str) -> tuple[Limit, ...]:
        """The tenant's limits as if all were used up."""
        settings, ended = self._settings, self._rate(f"ended:tenant:{tenant}")
        return (
            Limit("jobs", settings.tenant_max_open, 0, ended),
            Limit("bytes", settings.tenant_max_open_bytes, 0, ended),
            Limit("rate", max(1, int(settings.tenant_rate * BURST_SECONDS)), 0, settings.tenant_rate),
        )

    def _rate(self, field: str) -> float:
        """How many jobs a second have ended lately."""
        if len(self._past) < 2:
            return 0.0
        (begun_at, first), (ended_at, last) = self._past[0], self._past[-1]
        return max(last.sums.get(field, 0) - first.sums.get(field, 0), 0) / max(ended_at - begun_at, 0.001)

    async def run(self) -> None:
        """Read the load every second until cancelled."""
        while True:
            try:
                begun_at = monotonic()  # what a submit tells from now on is newer
                self.note(await read_load(self._connection), begun_at)
            except StoreError as exc:
                log.debug("the load can't be read: %s", exc)
            await asyncio.sleep(REFRESH_SECONDS * random.uniform(0.8, 1.2))


_QUOTAS: Final = {Submitted.QUOTA_JOBS: "jobs", Submitted.QUOTA_BYTES: "bytes", Submitted.QUOTA_RATE: "rate"}
_QUOTA_WORDS: Final = {
    Submitted.QUOTA_JOBS: "jobs that have not ended",
    Submitted.QUOTA_BYTES: "bytes in jobs that have not ended",
    Submitted.QUOTA_RATE: "jobs a second",
}


def seconds_until_room(limit: Limit) -> int:
    """When to come back: once a little of the limit has been drained at the measured rate; bounded both ways."""
    if limit.ended_per_second <= 0:
        return _UNKNOWN_SECONDS
    needed = 1 if limit.name in ("rate", "bytes", "memory") else max(1, int(limit.most * _ROOM_SHARE))
    return min(max(math.ceil(needed / limit.ended_per_second), 1), _LONGEST_SECONDS)


def _problem(code: ProblemCode, detail: str, limit: Limit) -> Problem:
    seconds = seconds_until_room(limit)
    members: dict[str, Any] = {"violated-policies": [limit.name]} if code is ProblemCode.QUOTA_EXCEEDED else {}
    headers = {**_headers(limit), "Retry-After": str(seconds)}
    return Problem(code, detail, headers=headers, **members)


def _headers(*limits: Limit) -> dict[str, str]:
    """`RateLimit` and `RateLimit-Policy` as the IETF's draft has them."""
    left = ", ".join(_left(limit, str(limit.left)) for limit in limits)
    return {"RateLimit-Policy": ", ".join(map(_policy, limits)), "RateLimit": left}


def _policy(limit: Limit) -> str:
    """q: how much may be had; w: in how many seconds, where it is had anew with time."""
    window = f";w={max(1, round(limit.most / limit.ended_per_second))}" if limit.name == "rate" else ""
    return f'"{limit.name}";q={limit.most}{window}'


def _left(limit: Limit, remaining: str) -> str:
    """r: how much is left; t: seconds until there is more."""
    return f'"{limit.name}";r={remaining};t={seconds_until_room(limit)}'
