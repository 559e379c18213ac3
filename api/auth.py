"""Who sends a request, by its API key, and whether they may do what they ask.

It owns the rules of admission; keys are made and kept by `jobs.apikeys`, and what is whose is the store's to check.
"""

import asyncio
import hmac
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from starlette.requests import Request

from api.origins import Origins
from api.problems import Problem, ProblemCode
from jobs.apikeys import ApiKey, ApiKeys, KeyScope, digest_of, is_token
from jobs.connection import StoreError
from jobs.record import LOCAL_TENANT

REFRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 5.0
"""A copy of the keys that is older admits nobody before it has been read again: a key may have been revoked."""
MAX_FAILURES: Final = 20
WINDOW_SECONDS: Final = 60.0
_LOOK_AGAIN_SECONDS: Final = 0.2
_REMEMBERED: Final = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the tenant that owns what they store and see, and the key that says so (None: keys are not in use)."""

    tenant: str
    key: ApiKey | None = None

    def may_use(self, model: str) -> bool:
        """Whether this model exists for them."""
        return self.key is None or not self.key.models or model in self.key.models

    @property
    def may_read(self) -> bool:
        """Whether they may see jobs, messages and models, in whatever answer."""
        return self.key is None or self.key.permits(KeyScope.READ)


class Failures:
    """Failed attempts by address, so that who has no valid key is told to slow down.

    Pure: `now` is in seconds. It remembers a bounded number of addresses, the latest ones.
    """

    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def seconds_locked(self, address: str, now: float) -> float:
        """For how long further failures from this address are too many; 0 where they are not."""
        begun_at, count = self._failed.get(address, (now, 0))
        return max(begun_at + WINDOW_SECONDS - now, 0.0) if count >= MAX_FAILURES else 0.0

    def failed(self, address: str, now: float) -> None:
        """Count an attempt."""
        begun_at, count = self._failed.get(address, (now, 0))
        if now - begun_at >= WINDOW_SECONDS:
            begun_at, count = now, 0
        self._failed[address] = (begun_at, count + 1)
        self._failed.move_to_end(address)
        if len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)


class Gate:
    """Admits requests by a copy of the keys that is about a second old; that long a revoked key may still be used.

    With `is_needed` nobody comes in without a key, even while there is none at all.
    """

    def __init__(
        self,
        api_keys: ApiKeys,
        origins: Origins,
        on_change: Callable[[], None] = lambda: None,
        *,
        is_needed: bool = False,
    ) -> None:
        """`on_change` is called when other keys than before let somebody in."""
        self.is_needed = is_needed
        self.refresh_seconds = REFRESH_SECONDS
        self._api_keys = api_keys
        self._origins = origins
        self._on_change = on_change
        self._live: Mapping[bytes, ApiKey] | None = None
        self._read_at: float | None = None
        self._failures = Failures()
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether everybody is the one local tenant: there never was a key, and none is needed."""
        return self._read_at is not None and self._live is None and not self.is_needed

    @property
    def has_keys(self) -> bool:
        """Whether anybody could come in with a key."""
        return bool(self._live)

    def still_admits(self, caller: Caller) -> bool:
        """Whether somebody who was admitted would be still: their key may have been revoked while they wait."""
        return self.is_open if caller.key is None else self._known(caller.key.digest) is not None

    async def admit(self, request: Request, scope: KeyScope) -> Caller:
        """The caller; raises the same 401 for every key that is none of ours, and StoreError where nobody can tell.

        Without keys it raises 403 for what a foreign page made a browser send.
        """
        if self._read_at is None or (not self.is_open and monotonic() - self._read_at > STALE_SECONDS):
            await self.refresh()
        if self.is_open:
            self._origins.check(request)
            return Caller(LOCAL_TENANT)
        key = await self._key(_token(request), request.client.host if request.client else "")
        if not key.permits(scope):
            raise Problem(ProblemCode.FORBIDDEN, f"This API key may not do that: it has no scope `{scope}`.")
        return Caller(key.tenant, key)

    async def _key(self, token: bytes, address: str) -> ApiKey:
        """The key of this token. A valid one is let in whatever else its address sent: nobody guesses 256 bits."""
        key = await self._find(digest_of(token)) if is_token(token) else None
        if key is not None:
            return key
        now = monotonic()
        locked_seconds = self._failures.seconds_locked(address, now)
        if locked_seconds:
            raise Problem(
                ProblemCode.TOO_MANY_ATTEMPTS,
                "Too many requests without a valid API key came from this address. Try again later.",
                headers={"Retry-After": str(int(locked_seconds) + 1)},
            )
        self._failures.failed(address, now)
        raise unauthenticated()

    async def _find(self, digest: bytes) -> ApiKey | None:
        """The live key of this hash; a key counts from its creation, so the copy is renewed where it lacks it.

        However many ask for one that is lacking, Redis is asked a few times a second.
        """
        key = self._known(digest)
        if key is not None:
            return key
        async with self._looking:
            if self._read_at is not None and monotonic() - self._read_at > _LOOK_AGAIN_SECONDS:
                await self.refresh()
        return self._known(digest)

    def _known(self, digest: bytes) -> ApiKey | None:
        key = (self._live or {}).get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None

    async def refresh(self) -> None:
        """Copy the keys; raises StoreError and keeps the old copy."""
        begun_at = monotonic()
        live = await self._api_keys.live()
        if self._live is not None and live is None:
            live = {}  # somebody emptied Redis: that must not open a service that asked for keys
        is_first, is_other = self._read_at is None, live != self._live
        self._live, self._read_at = live, begun_at
        if is_first and self.is_open:
            log.warning("there is no API key, so whoever connects may do everything; make one: inferq keys create NAME")
        if is_other:
            self._on_change()

    def changed(self) -> None:
        """Refresh now: somebody made or revoked a key."""
        self._changed.set()

    async def run(self) -> None:
        """Refresh every second, and whenever keys changed, until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self.refresh()
            except StoreError as exc:
                log.debug("API keys can't be read: %s", exc)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.refresh_seconds * random.uniform(0.8, 1.2)):
                    await self._changed.wait()


def unauthenticated() -> Problem:
    """What everybody is told who shows no valid key, whatever is wrong with it."""
    return Problem(
        ProblemCode.UNAUTHENTICATED,
        "Send a valid API key in the header `Authorization: Bearer KEY`.",
        headers={"WWW-Authenticate": 'Bearer realm="inferq"'},
    )


def _token(request: Request) -> bytes:
    """What stands behind `Bearer` in the one Authorization header, b'' where that is not what there is."""
    values = [value for name, value in request.scope["headers"] if name == b"authorization"]
    kind, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return bytes(token.strip(b" ")) if kind.lower() == b"bearer" else b""
