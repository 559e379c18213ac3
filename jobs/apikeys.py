"""API keys: what is kept of them in Redis, and what each of them may do.

It owns their form and their records; it keeps no key itself, only its hash, and must not know HTTP.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from jobs import codec, keys
from jobs.connection import Call, Connection

TOKEN_PREFIX: Final = "inferq_"  # noqa: S105 - public by intent
"""By which people, and programs that look for leaked secrets, recognise a key."""

_TOKEN_BYTES: Final = 32
_TOKEN: Final = re.compile(rb"inferq_[A-Za-z0-9_-]{43}")
_MODEL: Final = re.compile(r"[^\s/,\x00-\x20\x7f]{1,255}")
"""A folder's name; without spaces and commas, which stand between names."""
MAX_WEIGHT: Final = 1000
_TELL: Final = Call("PUBLISH", keys.API_KEYS_CHANNEL, "")
"""Apis that hear it read the keys anew; one that does not reads them within about a second all the same."""


class KeyScope(StrEnum):
    """What a key lets its holder do; `admin` includes all others, and what concerns all jobs of a tenant at once."""

    SUBMIT = "submit"
    READ = "read"
    CANCEL = "cancel"
    ADMIN = "admin"


DEFAULT_SCOPES: Final = frozenset({KeyScope.SUBMIT, KeyScope.READ, KeyScope.CANCEL})


class KeyRefused(ValueError):
    """A key can't be made or revoked as asked; the message says why."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key's record. Its tenant owns what is submitted with it; keys may share one, so that they can be replaced.

    `models` empty means all. `digest` is the SHA-256 of the key; `revoked_ms` 0 means that it is live.
    """

    name: str
    tenant: str
    scopes: frozenset[KeyScope]
    models: tuple[str, ...]
    created_ms: int
    digest: bytes
    revoked_ms: int = 0

    def permits(self, scope: KeyScope) -> bool:
        """Whether the holder may do this."""
        return scope in self.scopes or KeyScope.ADMIN in self.scopes

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "tenant": self.tenant,
            "scopes": sorted(self.scopes),
            "models": list(self.models),
            "created_ms": self.created_ms,
            "digest": self.digest,
            "revoked_ms": self.revoked_ms,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "ApiKey":
        """The inverse of `to_plain`; unknown scopes of a newer version permit nothing here."""
        known = {scope.value for scope in KeyScope}
        scopes = frozenset(KeyScope(word) for word in plain["scopes"] if word in known)
        return cls(**(plain | {"scopes": scopes, "models": tuple(plain["models"])}))


def new_token() -> str:
    """A fresh key of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def is_token(data: bytes) -> bool:
    """Whether this has the form of a key; nothing else is ever looked up."""
    return _TOKEN.fullmatch(data) is not None


def digest_of(token: bytes) -> bytes:
    """What is stored of a key. It is random and long, so that one round of SHA-256 can't be undone by guessing."""
    return hashlib.sha256(token).digest()


class ApiKeys:
    """The keys in one Redis; raises what `Connection.run` raises."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        name: str,
        *,
        tenant: str = "",
        scopes: frozenset[KeyScope] = DEFAULT_SCOPES,
        models: tuple[str, ...] = (),
        weight: int | None = None,
    ) -> str:
        """Make a key and return it: this is the only time that it can be had. Raises KeyRefused.

        The tenant is called like the key unless said otherwise; `weight` sets the tenant's share of a busy model.
        """
        tenant = tenant or name
        for what, word in (("name", name), ("tenant", tenant)):
            if not keys.is_name(word):
                raise KeyRefused(f"the {what} {word!r} is not {keys.NAME_FORM}")
        for model in models:
            if not _MODEL.fullmatch(model):
                raise KeyRefused(f"{model!r} is no model's name; commas stand between names")
        if weight is not None and not 1 <= weight <= MAX_WEIGHT:
            raise KeyRefused(f"the weight {weight} is not between 1 and {MAX_WEIGHT}")
        ((seconds, _),) = await self._connection.run(Call("TIME"))
        token = new_token()
        key = ApiKey(name, tenant, scopes, models, int(seconds) * 1000, digest_of(token.encode()))
        (is_new,) = await self._connection.run(Call("HSETNX", keys.API_KEYS_KEY, name, codec.encode(key.to_plain())))
        if not is_new and await self._stored(name) != key:  # equal: our own call, repeated after a lost reply
            raise KeyRefused(f"there is, or was, a key called {name!r}; names are not used again")
        await self._connection.run(_TELL)
        if weight is not None:
            await self._connection.run(Call("HSET", keys.WEIGHTS_KEY, tenant, weight))
        return token

    async def all(self) -> list[ApiKey]:
        """Every key, revoked ones included, by name."""
        (records,) = await self._connection.run(Call("HVALS", keys.API_KEYS_KEY))
        return sorted(_readable(records), key=lambda key: key.name)

    async def live(self) -> dict[bytes, ApiKey] | None:
        """The keys that let somebody in, by digest; None where there never was any key at all."""
        (records,) = await self._connection.run(Call("HVALS", keys.API_KEYS_KEY))
        return {key.digest: key for key in _readable(records) if not key.revoked_ms} if records else None

    async def weights(self) -> dict[str, int]:
        """The tenants' shares, where they are not 1."""
        (flat,) = await self._connection.run(Call("HGETALL", keys.WEIGHTS_KEY))
        return {tenant.decode(): int(weight) for tenant, weight in flat.items()}

    async def revoke(self, name: str) -> None:
        """End a key for good; harmless twice. Raises KeyRefused where there is none of this name."""
        key = await self._stored(name)
        if key is None:
            raise KeyRefused(f"there is no key called {name!r}")
        if key.revoked_ms:
            return
        ((seconds, _),) = await self._connection.run(Call("TIME"))
        revoked = key.to_plain() | {"revoked_ms": int(seconds) * 1000}
        await self._connection.run(Call("HSET", keys.API_KEYS_KEY, name, codec.encode(revoked)), _TELL)

    async def _stored(self, name: str) -> ApiKey | None:
        (raw,) = await self._connection.run(Call("HGET", keys.API_KEYS_KEY, name))
        return _read(raw) if raw is not None else None


def _readable(records: Iterable[bytes]) -> list[ApiKey]:
    return [key for raw in records if (key := _read(raw)) is not None]


def _read(raw: bytes) -> ApiKey | None:
    """The record, or None where it is damaged or of a newer version: such a key lets nobody in."""
    try:
        with codec.reading("API key"):
            return ApiKey.from_plain(codec.decode(raw))
    except codec.CodecError:
        return None
