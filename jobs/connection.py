"""Our own connection to Redis: bounded pool, a deadline on every call, scripts, errors in our words.

It owns how calls are sent and what their failures mean; it must not know keys or jobs.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from jobs import keys, outbox, sentinel
from jobs.settings import SettingsError, StoreSettings

_COPIED_BYTES: Final = 16 * 1024
_LUA: Final = Path(__file__).parent / "lua"
_USES: Final = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_SCHEMES: Final = ("redis", "rediss", "unix", *sentinel.SCHEMES)
_UNSUPPORTED_REPLIES: Final = ("MOVED ", "ASK ", "CLUSTERDOWN", "CROSSSLOT")
_FAULTS: Final = (RedisError, OSError)  # asyncio.timeout raises TimeoutError, an OSError
_AWAY: Final = (RedisConnectionError, RedisTimeoutError, BusyLoadingError, ReadOnlyError, NoScriptError, OSError)
_AWAY_REPLIES: Final = ("MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "MISCONF", "UNBLOCKED", "UNKILLABLE", "BUSY ")


class StoreError(Exception):
    """Redis did not do what was asked; nothing is known to have changed."""


class StoreUnavailable(StoreError):
    """Redis is away, loading, a replica, or too slow: try again later."""


class StoreFull(StoreError):
    """Redis is at its memory limit and refuses to store more."""


class StoreMisconfigured(StoreError):
    """This Redis can't be used safely; one sentence says what to change."""


@cache
def script_source(name: str) -> str:
    """The Lua source of an event: the key names, the preludes that it uses, then its own file."""
    body = (_LUA / f"{name}.lua").read_text()
    used = _USES.search(body)
    preludes = [(_LUA / f"_{part}.lua").read_text() for part in (used.group(1).split() if used else [])]
    return "\n".join([keys.lua_prelude(), outbox.lua_prelude(), *preludes, body])


def translate(exc: Exception) -> StoreError:
    """What a failed call means to the caller."""
    message = str(exc) or type(exc).__name__
    if isinstance(exc, OutOfMemoryError) or "OOM command not allowed" in message:
        return StoreFull("Redis is at its memory limit; free memory or raise maxmemory")
    if isinstance(exc, MasterNotFoundError):
        return StoreUnavailable(_unnamed(message))
    if isinstance(exc, AuthenticationError | NoPermissionError):
        return StoreMisconfigured(f"Redis refuses our credentials: {message}")
    if message.startswith(_UNSUPPORTED_REPLIES):
        return StoreMisconfigured("Redis Cluster is not supported; use one primary, with Sentinel for failover")
    if isinstance(exc, _AWAY) or message.startswith(_AWAY_REPLIES):
        return StoreUnavailable(f"Redis does not answer as a primary: {message}")
    return StoreError(f"Redis refused a call: {message}")


def _unnamed(message: str) -> str:
    """The library's sentence, `No master found for 'x' : …`, in ours: its errors are objects of the library."""
    found, _, errors = message.partition(" : ")
    service = found.rpartition(" ")[2]
    return f"no Sentinel names a primary for the service {service}{', and not all of them answer' if errors else ''}"


def _refusal(exc: Exception) -> StoreError:
    error = translate(exc)
    error.__cause__ = exc
    return error


def _pool(settings: StoreSettings) -> BlockingConnectionPool:
    """A bounded pool whose callers wait, for the one server that the URL names or for the primary of its Sentinels."""
    url, timeout_seconds = settings.redis_url, settings.redis_timeout_seconds
    options: dict[str, Any] = {
        "max_connections": settings.redis_pool_size,
        "timeout": timeout_seconds,
        "socket_timeout": None,  # a deadline for each call, set where it is made, in place of one for each reply
        "socket_connect_timeout": timeout_seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        **_tls(settings),
    }
    try:
        scheme = url.partition("://")[0]
        if scheme not in _SCHEMES:
            raise ValueError(f"it begins with {', '.join(f'{name}://' for name in _SCHEMES)}")
        if scheme in sentinel.SCHEMES:
            return sentinel.PrimaryPool.at(url, timeout_seconds, **options)
        return BlockingConnectionPool.from_url(url, **options)
    except ValueError as exc:
        raise SettingsError(f"INFERQ_REDIS_URL is no address of Redis: {exc}") from exc


def _tls(settings: StoreSettings) -> dict[str, Any]:
    """What an encrypted connection must prove: the name in the certificate too, which the library does not ask for."""
    if not settings.redis_url.startswith("rediss"):
        return {}
    files = {
        "ssl_ca_certs": settings.redis_ca_file,
        "ssl_certfile": settings.redis_cert_file,
        "ssl_keyfile": settings.redis_key_file,
    }
    return {"ssl_check_hostname": True, **{name: str(path) for name, path in files.items() if path}}


class Call:
    """One command, or one script by its name."""

    __slots__ = ("args", "script")

    def __init__(self, *args: Any, script: str | None = None) -> None:
        self.args = args
        self.script = script


def _packed(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[bytes | memoryview]:
    """What is sent: packed by hiredis, which is quick, but for large payloads, which it would copy."""
    chunks: list[bytes | memoryview] = []
    small: list[bytes] = []
    for command in commands:
        if command[0] == "SET" and len(command[2]) > _COPIED_BYTES:
            chunks += (b"".join(small), *connection.pack_command(*command))
            small = []
        else:
            small.append(hiredis.pack_command(command))
    return [*chunks, b"".join(small)]


class Connection:
    """A pool of connections to one primary. Safe to share between tasks of one event loop."""

    def __init__(self, client: Redis, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._shas: dict[str, str] = {}

    @classmethod
    def from_settings(cls, settings: StoreSettings) -> "Connection":
        """A connection that is not yet opened: the first call does that. Raises SettingsError for a wrong URL."""
        return cls(Redis(connection_pool=_pool(settings)), settings.redis_timeout_seconds)

    @property
    def client(self) -> Redis:
        """The underlying client, for arq, which brings its own calls."""
        return self._client

    async def close(self) -> None:
        """Close every connection. Legal twice."""
        await self._client.aclose(close_connection_pool=True)

    async def run(self, *calls: Call) -> list[Any]:
        """Send the calls in one round trip and return their replies; scripts are loaded when the server lacks them.

        A call whose connection turned out to be dead is sent once more, so every call must bear repetition.
        Raises StoreUnavailable after the deadline at the latest, StoreFull, StoreMisconfigured or StoreError.
        """
        replies = await self.replies(*calls)
        for reply in replies:
            if isinstance(reply, StoreError):
                raise reply
        return replies

    async def replies(self, *calls: Call) -> list[Any]:
        """As `run`, but what Redis refused is a StoreError in its place in the list."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                try:
                    replies = await self._send(calls)
                except RedisConnectionError:
                    replies = await self._send(calls)
                first = next((i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)), None)
                if first is not None:  # what came after it may have relied on it
                    self._shas.clear()
                    replies[first:] = await self._send(calls[first:])
        except _FAULTS as exc:
            raise translate(exc) from exc
        return [_refusal(reply) if isinstance(reply, Exception) else reply for reply in replies]

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        unknown = {call.script for call in calls if call.script and call.script not in self._shas}
        if unknown:
            await self._load(sorted(unknown))
        commands = [("EVALSHA", self._shas[call.script], 0, *call.args) if call.script else call.args for call in calls]
        pool = self._client.connection_pool
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command(_packed(connection, commands))
            return [await self._reply(connection, command[0]) for command in commands]
        except BaseException:  # replies that nobody has read must not meet the next caller
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)

    async def _reply(self, connection: Any, name: str) -> Any:
        """The next reply; what Redis refused is an exception in its place."""
        try:
            return await self._client.parse_response(connection, name)
        except ResponseError as exc:
            return exc

    async def _load(self, names: Sequence[str]) -> None:
        for name in names:
            sha = await self._client.script_load(script_source(name))
            self._shas[name] = sha.decode() if isinstance(sha, bytes) else sha

    async def block_pop(self, key_names: Sequence[str], timeout_seconds: float) -> str | None:
        """The first of these lists that has an element, which is taken; None when none had within the time.

        It waits half of a call's deadline at most, so that a silent server is never taken for an empty list.
        """
        wait_seconds = min(timeout_seconds, self._timeout_seconds / 2)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                reply = await self._client.execute_command("BLPOP", *key_names, wait_seconds)  # type: ignore[no-untyped-call]
        except _FAULTS as exc:
            raise translate(exc) from exc
        return reply[0].decode() if reply else None

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[AsyncIterator[tuple[str, bytes]]]:
        """Messages of these channels as (channel, data), once the subscription stands.

        The inner iterator raises StoreUnavailable when the connection is lost: messages may then have been missed.
        """
        pubsub = self._client.pubsub(ignore_subscribe_messages=False)
        try:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await pubsub.subscribe(*channels)
                    for _ in channels:
                        await pubsub.get_message(timeout=None)
            except _FAULTS as exc:
                raise translate(exc) from exc
            async with aclosing(self._messages(pubsub)) as messages:
                yield messages
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _messages(self, pubsub: Any) -> AsyncGenerator[tuple[str, bytes], None]:
        """What was published. After half a deadline of silence the server must answer a PING in the other half."""
        is_asked = False
        while True:
            try:
                message = await pubsub.get_message(timeout=self._timeout_seconds / 2)
                if message is None and is_asked:
                    raise RedisTimeoutError("no answer to a PING")
                if message is None:
                    async with asyncio.timeout(self._timeout_seconds):
                        await pubsub.ping()
            except _FAULTS as exc:
                raise translate(exc) from exc
            is_asked = message is None
            if message is not None and message["type"] == "message":
                yield message["channel"].decode(), message["data"]

    async def check(self, *, needs_disk: bool = False) -> list[str]:
        """Prove that this server can be used, and return warnings.

        Raises StoreMisconfigured for Redis Cluster, for a replica, for a Sentinel that is named as if it were Redis,
        for a `maxmemory-policy` that evicts, and where jobs must be on disk (`needs_disk`) for a server that never
        waits for its disk.
        """
        info = await self._permitted(Call("INFO"))
        if info is None:
            return ["INFO is not permitted: see to it that maxmemory-policy is noeviction and appendonly is on"]
        if info.get("cluster_enabled"):
            raise StoreMisconfigured("Redis Cluster is not supported; use one primary, with Sentinel for failover")
        if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):  # Redis' word, Valkey's
            raise StoreMisconfigured(
                "This is a Sentinel; say so in INFERQ_REDIS_URL: redis+sentinel://host:port/service/db"
            )
        if info.get("role") == "slave":
            raise StoreMisconfigured("This Redis is a replica; point INFERQ_REDIS_URL at the primary")
        policy = info.get("maxmemory_policy")
        if policy not in (None, "noeviction"):
            raise StoreMisconfigured(f"maxmemory-policy is {policy}, which drops jobs; set it to noeviction")
        warnings = await self._check_disk(bool(info.get("aof_enabled")), needs_disk)
        if policy is None:
            warnings.append("maxmemory-policy is unknown (INFO does not say); it must be noeviction, or jobs get lost")
        return warnings

    async def _check_disk(self, has_log: bool, needs_disk: bool) -> list[str]:
        if not needs_disk:
            return [] if has_log else ["appendonly is off: jobs do not survive a restart of Redis"]
        if not has_log:
            raise StoreMisconfigured("INFERQ_DURABLE is on, but this Redis keeps no log; set appendonly to yes")
        fsync = (await self._permitted(Call("CONFIG", "GET", "appendfsync")) or {}).get("appendfsync")
        if fsync == "no":
            raise StoreMisconfigured("INFERQ_DURABLE is on, but appendfsync is no; set it to always or everysec")
        if fsync == "everysec":
            return ["INFERQ_DURABLE is on and appendfsync is everysec: a submit waits for up to a second"]
        return []

    async def _permitted(self, call: Call) -> dict[str, Any] | None:
        """A reply of names and values, None where our credentials may not ask."""
        (reply,) = await self.replies(call)
        if isinstance(reply, StoreError):
            if isinstance(reply.__cause__, NoPermissionError):
                return None
            raise reply
        if isinstance(reply, list):
            return {
                str(name, "utf-8"): str(value, "utf-8") for name, value in zip(reply[::2], reply[1::2], strict=True)
            }
        found: dict[str, Any] = reply
        return found
