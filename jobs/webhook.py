"""What a job's owner asked to be told: where to, on which events, and how messages are proven to be ours.

It owns the words of webhooks and the form of secrets; sending is the webhook worker's business.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from jobs import keys
from jobs.state import TERMINAL, State

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what every secret begins with
MOST_SECRETS: Final = 2
"""The current one and, while rotating, the one before or after it."""
ANY_TENANT: Final = "*"
"""Stands for every tenant that is not named."""
_SECRET_BYTES: Final = range(24, 65)


class WebhookEvent(StrEnum):
    """What a message can be about; its `type`."""

    STARTED = "job.started"
    SUCCEEDED = "job.succeeded"
    FAILED = "job.failed"
    CANCELED = "job.canceled"
    EXPIRED = "job.expired"

    @property
    def word(self) -> str:
        """The event as scripts and ids spell it: the state that a job came to."""
        return self.value.removeprefix("job.")


ENDS: Final = tuple(event for event in WebhookEvent if event.word in {state.value for state in TERMINAL})
"""The events that are told where a client does not choose."""


class DeliveryStatus(StrEnum):
    """How far a message is; the last two absorb until somebody asks for it again."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One job's wish to be told about. `url` is in the spelling of `jobs.destination`; no `secrets`: the server's."""

    url: str
    events: tuple[WebhookEvent, ...] = ENDS
    secrets: tuple[str, ...] = field(default=(), repr=False)
    include_output: bool = False

    @property
    def host(self) -> str:
        """Host and port, by which the load on receivers is kept apart."""
        return self.url.split("/", 3)[2]

    @property
    def words(self) -> str:
        """The events for scripts, each between spaces."""
        return f" {' '.join(event.word for event in self.events)} "

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Webhook":
        """The inverse of `asdict`."""
        events = tuple(WebhookEvent(event) for event in plain["events"])
        return cls(plain["url"], events, tuple(plain["secrets"]), plain["include_output"])


def event_of(state: State) -> WebhookEvent:
    """What is told when a job comes to this state."""
    return WebhookEvent.STARTED if state is State.IN_PROGRESS else WebhookEvent(f"job.{state}")


def secret_key(secret: str) -> bytes:
    """The bytes to sign with; raises ValueError, which never holds the secret."""
    if not re.match(SECRET_PREFIX, secret):
        raise ValueError(f"a webhook secret begins with {SECRET_PREFIX}")
    encoded = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"after {SECRET_PREFIX} a webhook secret is base64") from None
    if len(key) not in _SECRET_BYTES:
        raise ValueError(f"a webhook secret has {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} bytes, not {len(key)}")
    return key


class TenantSecrets(Mapping[str, tuple[str, ...]]):
    """The live secrets of each tenant: those that it was given, else those that derive from the ones of ANY_TENANT.

    Iterated over, it shows who was given some.
    """

    def __init__(self, given: Mapping[str, tuple[str, ...]]) -> None:
        self._given = {tenant: secrets for tenant, secrets in given.items() if tenant != ANY_TENANT}
        self._masters = given.get(ANY_TENANT, ())

    def __getitem__(self, tenant: str) -> tuple[str, ...]:
        if tenant in self._given or not self._masters:
            return self._given[tenant]
        return tuple(derived_secret(master, tenant) for master in self._masters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def derived_secret(master: str, tenant: str) -> str:
    """A tenant's own secret: HMAC-SHA256 over its name with the bytes of `master`, which it does not reveal."""
    digest = hmac.digest(secret_key(master), tenant.encode(), hashlib.sha256)
    return SECRET_PREFIX + base64.b64encode(digest).decode("ascii")


def tenant_secrets(text: str, default: str = "local") -> Mapping[str, tuple[str, ...]]:
    """Secrets from `whsec_…`, `tenant=whsec_…` and `*=whsec_…` by commas; raises ValueError that holds no secret."""
    parts: dict[str, list[str]] = {}
    for place, part in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        tenant, equals, secret = part.partition("=")
        is_named = bool(equals) and not part.startswith(SECRET_PREFIX)
        if is_named and tenant != ANY_TENANT and not keys.is_name(tenant):
            raise ValueError(f"before the = of entry {place} stands no tenant's name: {keys.NAME_FORM}")
        if is_named and not secret.strip():
            raise ValueError(f"entry {place} has a tenant's name and no secret")
        parts.setdefault(tenant if is_named else default, []).append(secret if is_named else part)
    return TenantSecrets({tenant: parse_secrets(secrets) for tenant, secrets in parts.items()})


def parse_secrets(parts: Iterable[str]) -> tuple[str, ...]:
    """One secret, or two while rotating; raises ValueError, which never holds a secret."""
    secrets = tuple(part.strip() for part in parts if part.strip())
    for secret in secrets:
        secret_key(secret)
    if len(secrets) > MOST_SECRETS:
        raise ValueError(f"at most {MOST_SECRETS} webhook secrets can be live at once")
    return secrets
