"""One POST to a receiver, and what came of it.

It owns what is sent and how much of the answer is read, and when. It must not know deliveries, and it never raises for
what a receiver does.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

import aiohttp
from yarl import URL

from jobs.addresses import Address
from jobs.destination import AllowList, Destination, ForbiddenDestination, parse
from workers.webhooks.connections import Use, session
from workers.webhooks.guard import Guard
from workers.webhooks.resolver import Resolve

MOST_READ_BYTES: Final = 64 * 1024
_DRAIN_SECONDS: Final = 1.0
"""How long the rest of an answer is read for the connection's sake, once its status has said all."""
_SHARE_TO_CONNECT: Final = 1 / 3
_LONGEST_RETRY_AFTER: Final = 40
_LEAST_STATUS: Final = 100


class Fault(StrEnum):
    """Why an attempt was not a success; part of the public contract, never renamed."""

    STATUS = "status"
    """It answered, but not with 2xx."""
    NAME = "name_not_resolved"
    FORBIDDEN = "address_forbidden"
    CONNECTION = "not_connected"
    TLS = "tls_failed"
    TIMEOUT = "timed_out"
    CUT_OFF = "cut_off"
    """The connection broke, or what came was not HTTP."""
    UNSIGNED = "no_secret"
    """Nothing was sent: this server has lost the secret to sign with."""
    INTERNAL = "internal_error"
    """Nothing was sent: we failed, and the worker's log says why."""
    JOB_GONE = "job_gone"
    """Nothing was sent: the job's record is not there any more."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one POST: a status (0: none came), and why it is no success (None: it is one)."""

    status: int = 0
    fault: Fault | None = None
    retry_after_ms: int = 0


class Sender:
    """Sends; an asynchronous context manager. Connections are kept for a moment and shared by address and name."""

    def __init__(
        self,
        allowed: AllowList,
        resolve: Resolve,
        *,
        timeout_seconds: float,
        user_agent: str = "inferq",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`timeout_seconds` bounds one `send` in all. `tls` is made from the system's authorities if not given."""
        self._allowed = allowed
        self._guard = Guard(allowed, resolve)
        self._timeout_seconds = timeout_seconds
        self._headers = {"User-Agent": user_agent, "Content-Type": "application/json", "Accept": "*/*"}
        self._tls = tls or ssl.create_default_context()
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> "Sender":
        self._kept, self._fresh = [
            await self._open.enter_async_context(
                session(
                    self._guard.make_socket,
                    keep=keep,
                    read_bytes=MOST_READ_BYTES,
                    connect_seconds=self._timeout_seconds * _SHARE_TO_CONNECT,
                )
            )
            for keep in (True, False)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._kept = self._fresh = None
        await self._open.aclose()

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """POST a JSON body to a URL and return within the timeout."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                destination = parse(url, self._allowed)
                async with self._guard.admitted(destination) as addresses:
                    return await self._post_to_any(addresses, destination, headers, body)
        except ForbiddenDestination:
            return Reply(fault=Fault.FORBIDDEN)
        except (aiohttp.ClientError, OSError) as exc:  # TimeoutError is an OSError
            return Reply(fault=fault_of(exc))

    async def _post_to_any(
        self, addresses: Sequence[Address], destination: Destination, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        """The reply of the first address that can be connected to."""
        for address in addresses[:-1]:
            with suppress(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
                return await self._post(address, destination, headers, body)
        return await self._post(addresses[-1], destination, headers, body)

    async def _post(self, address: Address, destination: Destination, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply of one address; once more over a new connection where one that was kept had gone bad meanwhile.

        Whether the receiver had read the message by then nobody knows; it may get it twice, as it may at any time.
        """
        use = Use()
        try:
            return await self._exchange(self._kept, use, address, destination, headers, body)
        except aiohttp.ClientError:
            if not use.is_reused:
                raise
        return await self._exchange(self._fresh, use, address, destination, headers, body)

    async def _exchange(
        self,
        client: aiohttp.ClientSession | None,
        use: Use,
        address: Address,
        destination: Destination,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Reply:
        if client is None:
            raise RuntimeError("the sender is not open")
        is_secure = destination.scheme == "https"
        url = URL(Destination(destination.scheme, str(address), destination.port, destination.target).url, encoded=True)
        async with client.post(
            url,
            data=body,
            headers={**self._headers, **headers, "Host": destination.authority},
            allow_redirects=False,
            ssl=self._tls,
            server_hostname=destination.host if is_secure else None,
            trace_request_ctx=use,
        ) as response:
            reply = _reply(response)
            await _drain(response)
            return reply


def _reply(response: aiohttp.ClientResponse) -> Reply:
    if response.status < _LEAST_STATUS:
        return Reply(fault=Fault.CUT_OFF)
    is_success = 200 <= response.status < 300
    asked = response.headers.get("Retry-After", "") if response.status in (429, 503) else ""
    retry_after_ms = pause_asked_for_ms(asked, datetime.now(UTC))
    return Reply(response.status, None if is_success else Fault.STATUS, retry_after_ms)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read a small answer to its end, so that its connection can be used again; give up on any other one."""
    left = MOST_READ_BYTES
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in response.content.iter_any():
                left -= len(chunk)
                if left < 0:
                    break
            else:
                return
    response.close()


def pause_asked_for_ms(retry_after: str, now: datetime) -> int:
    """What a Retry-After header means: seconds, or a date; 0 for what can't be read."""
    text = retry_after.strip()
    if not text or len(text) > _LONGEST_RETRY_AFTER:
        return 0
    if text.isascii() and text.isdigit():
        return int(text) * 1000
    try:
        asked = parsedate_to_datetime(text)
        pause = asked.replace(tzinfo=asked.tzinfo or UTC) - now
    except (ValueError, TypeError, OverflowError, IndexError):  # all of which the parser lets through
        return 0
    return max(0, round(pause.total_seconds() * 1000))


def fault_of(exc: aiohttp.ClientError | OSError) -> Fault:
    """The third party's errors in our words."""
    match exc:
        case TimeoutError():
            return Fault.TIMEOUT
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return Fault.TLS
        case aiohttp.ClientConnectorError():
            return Fault.CONNECTION
        case aiohttp.ClientError():
            return Fault.CUT_OFF
        case _:
            return Fault.NAME
