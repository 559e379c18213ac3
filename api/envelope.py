"""What every answer has in common: a request id, security headers, a log line, and an end without a stack trace.

Pure ASGI, so bodies stream and hang-ups are seen; it must not read bodies or know routes.
"""

import re
from time import perf_counter
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access_log import AccessLog
from api.measures import Measures
from api.problems import Problem, ProblemCode
from api.refusal import refusal
from jobs.ids import random_id

_SANE_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")

DEFAULT_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_DEFAULT_NAMES: Final = frozenset(name for name, _ in DEFAULT_HEADERS)

log: Any = structlog.get_logger(__name__)


class Envelope:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, access_log: AccessLog | None, measures: Measures) -> None:
        self._app = app
        self._access_log = access_log
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._app(exchange.scope, receive, exchange.send)
        except Exception:  # a fault of ours: the client learns no more than where the log says it
            log.exception("request failed", request_id=exchange.request_id)
            if exchange.status:
                raise  # too late for another answer: the server cuts the connection
            problem = Problem(ProblemCode.INTERNAL_ERROR, "The server failed. Its log says why, under this request id.")
            await refusal(exchange.scope, problem)(exchange.scope, receive, exchange.send)
        finally:
            exchange.note(self._access_log, self._measures)


class _Exchange:
    """One request and its answer."""

    __slots__ = ("_is_head", "_send", "_started_at", "request_id", "scope", "status")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._started_at = perf_counter()
        self._send = send
        self._is_head = scope["method"] == "HEAD"
        self.status = 0
        self.request_id = _request_id(scope)
        # A HEAD is a GET whose body stays here, so that no route has to think of it.
        self.scope = {**scope, "method": "GET"} if self._is_head else scope
        self.scope["state"] = {**scope.get("state", {}), "request_id": self.request_id}

    async def send(self, message: Message) -> None:
        """Add what every answer has, and drop the body of an answer to HEAD."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            own = {name for name, _ in headers} & _DEFAULT_NAMES
            headers.extend(header for header in DEFAULT_HEADERS if header[0] not in own)
            headers.append((b"x-request-id", self.request_id.encode("ascii")))
            message = {**message, "headers": headers}
        elif self._is_head:
            message = {**message, "body": b""}
        await self._send(message)

    def note(self, access_log: AccessLog | None, measures: Measures) -> None:
        """Say what was asked and answered, and count it by its route as the table spells it."""
        seconds = perf_counter() - self._started_at
        measures.answered(self.scope["state"].get("route", ""), self.status, seconds)
        if access_log:
            method = "HEAD" if self._is_head else self.scope["method"]
            access_log.write(method, self.scope["path"], self.status, seconds, self.request_id)


def _request_id(scope: Scope) -> str:
    """The client's own where it is sane, else a fresh one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value).decode("ascii")
    return random_id()
