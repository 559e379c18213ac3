"""The primary that Sentinels name, behind the same bounded pool: `redis+sentinel://host:port,host:port/service/db`.

It owns the form of that URL and who is believed to be the primary; it must not know what is sent there.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

SCHEMES: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
FORM: Final = "redis+sentinel://[user:password@]host:port,host:port/service/db"
DEFAULT_PORT: Final = 26379
_ASK_SECONDS: Final = 1.0
"""What one Sentinel may take to answer; a dead one must leave the call time to ask the next."""


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """Where the Sentinels are, what they call the primary, and how to connect to each of both kinds."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    options: dict[str, Any]
    sentinel_options: dict[str, Any]
    is_encrypted: bool

    @classmethod
    def parse(cls, url: str) -> "SentinelUrl":
        """The URL's parts; raises ValueError without repeating what may be a password.

        User and password are the primary's; the query may hold `sentinel_username` and `sentinel_password`, and what
        the client library takes.
        """
        parts = urlsplit(url)
        credentials, at, hosts = parts.netloc.rpartition("@")
        service, _, database = parts.path.strip("/").partition("/")
        if not service or not hosts or (database and not database.isdecimal()):
            raise ValueError(f"expected {FORM}")
        options = parse_url(f"{SCHEMES[parts.scheme]}://{credentials}{at}primary/{database or 0}?{parts.query}")
        plain: dict[str, Any] = dict(options)
        for name in ("host", "connection_class"):
            plain.pop(name, None)
        asked = {name: plain.pop(f"sentinel_{name}", None) for name in ("username", "password")}
        return cls(
            tuple(_address(host) for host in hosts.split(",")),
            unquote(service),
            plain,
            {name: value for name, value in asked.items() if value},
            parts.scheme == "rediss+sentinel",
        )


def _address(text: str) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal():
        raise ValueError(f"expected {FORM}")
    return host.strip("[]"), int(port)


class _PrimaryConnection(SentinelManagedConnection):
    """Believes only a server that says itself that it is the primary: after a failover Sentinels may lag behind."""

    async def on_connect(self) -> None:
        await super().on_connect()
        await self.send_command("ROLE")
        try:
            role, *_ = await self.read_response()
        except NoPermissionError:
            return
        if role not in (b"master", "master"):
            raise RedisConnectionError(f"{self.host}:{self.port} is not the primary any more")


class _EncryptedPrimaryConnection(_PrimaryConnection, SentinelManagedSSLConnection):
    """The same over TLS."""


class PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to whoever is the primary now, as many as allowed; callers wait for a free one.

    Each new connection asks the Sentinels. When they name another primary, the idle connections to the old one close.
    """

    @classmethod
    def at(cls, url: str, timeout_seconds: float, **options: Any) -> "PrimaryPool":
        """A pool that is not opened yet; `options` are those of a plain pool. Raises ValueError for a wrong URL."""
        found = SentinelUrl.parse(url)
        patience = min(_ASK_SECONDS, timeout_seconds / 4)
        ask = {"socket_timeout": patience, "socket_connect_timeout": patience, "ssl": found.is_encrypted}
        ask |= {name: value for name, value in options.items() if name.startswith("ssl_")}
        manager = Sentinel(  # type: ignore[no-untyped-call]
            list(found.sentinels), sentinel_kwargs=ask | found.sentinel_options
        )
        kind = _EncryptedPrimaryConnection if found.is_encrypted else _PrimaryConnection
        return cls(found.service, manager, connection_class=kind, **found.options, **options)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections; all of them means those to the Sentinels as well."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()
