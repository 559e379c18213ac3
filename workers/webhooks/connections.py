"""aiohttp's client as receivers of webhooks need it: what ends a message is the head of an answer, not what follows.

It owns the sessions and their bounds: no redirects' memory, no proxies, no cookies, no compression. It must not know
what is sent.
"""

import socket
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

_KEPT_ALIVE_SECONDS: Final = 2.0
"""Shorter than servers keep idle connections, so that one is seldom used while its server is closing it."""
_UNSET: Final = ("User-Agent", "Accept", "Accept-Encoding")
_FIRST_FINAL_STATUS: Final = 200

MakeSocket = Callable[[tuple[Any, ...]], socket.socket]


@dataclass(slots=True)
class Use:
    """One use of a session; whether it got a connection that had served before, which its server may be closing."""

    is_reused: bool = False


def session(make_socket: MakeSocket, *, keep: bool, read_bytes: int, connect_seconds: float) -> aiohttp.ClientSession:
    """A session whose sockets are all made by `make_socket`; it keeps no connection for later unless `keep`.

    A request's `trace_request_ctx` must be a `Use` of its own.
    """
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        connector=_Connector(make_socket, keep=keep),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_UNSET,
        auto_decompress=False,
        trust_env=False,
        read_bufsize=read_bytes,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
        trace_configs=[trace],
    )


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    use: Use = context.trace_request_ctx
    use.is_reused = True


class _Connector(aiohttp.TCPConnector):
    def __init__(self, make_socket: MakeSocket, *, keep: bool) -> None:
        super().__init__(
            limit=0,  # how many may be in flight is decided before a message is taken in hand
            socket_factory=make_socket,
            happy_eyeballs_delay=None,
            **({"keepalive_timeout": _KEPT_ALIVE_SECONDS} if keep else {"force_close": True}),
        )
        self._factory = cast("partial[ResponseHandler]", partial(_Answer, loop=get_running_loop()))


class _Answer(ResponseHandler):
    """What comes on one connection. The head of an answer is handed over before anything behind it is looked at.

    aiohttp parses what came in one go in one go, and what is no HTTP behind a good head, such as the body of a 204,
    then takes the head down with it.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__(loop)
        self._has_head = False

    def set_response_params(self, **params: Any) -> None:
        self._has_head = False
        super().set_response_params(**params)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._has_head = data[0].code >= _FIRST_FINAL_STATUS
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        while not self._has_head and self._exception is None:
            line_end = data.find(b"\n") + 1
            if line_end in (0, len(data)):
                break
            super().data_received(data[:line_end])
            data = data[line_end:]
        if data and self._has_head and (self._payload is None or self._payload.is_eof()):
            self._hang_up()  # an answer that nobody has asked for must not become the one of the next message
        else:
            super().data_received(data)

    def _hang_up(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()
