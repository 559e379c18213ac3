"""Reads request bodies: how many bytes, how fast, and whether all of them came.

It owns the caps on size and speed; it must not know what a body means.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from typing import Final

from starlette.requests import Request
from starlette.types import Scope

from api.problems import Problem, ProblemCode

_MAX_LENGTH_DIGITS: Final = 18
_MIN_BYTES_PER_SECOND: Final = 1024

WHOLE: Final = "body_is_whole"
"""In a request's state: all of its body was there before anybody looked at it, so there is nothing to wait for."""


class RequestHeaders:
    """The headers of one request by lower-case name, collected in one pass because intake asks for several."""

    __slots__ = ("_values",)

    def __init__(self, scope: Scope) -> None:
        self._values: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self._values.setdefault(name, []).append(value)

    def has(self, name: bytes) -> bool:
        """Whether the header is given, be it empty."""
        return name in self._values

    def one(self, name: bytes) -> str:
        """The header's value, '' where it is not given; raises Problem where it is given more than once."""
        found = self._values.get(name)
        if found is None:
            return ""
        if len(found) > 1:
            raise Problem(
                ProblemCode.INVALID_REQUEST, f"The header {name.decode('ascii')} is given {len(found)} times."
            )
        return found[0].decode("latin-1").strip()


class _BodyUnread(AbstractContextManager[None]):
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Problem):
            error.close = True


_BODY_UNREAD: Final = _BodyUnread()


def body_unread() -> AbstractContextManager[None]:
    """Problems that are raised in here end the connection, since the request's body was not read to its end."""
    return _BODY_UNREAD


async def read_body(request: Request, headers: RequestHeaders, *, max_bytes: int, grace_seconds: float = 20.0) -> bytes:
    """The whole body, which may take `grace_seconds` and from then on must keep up a rate of 1 KiB per second.

    Raises Problem: too large (as soon as that is known), too slow, cut short, or with a content encoding.
    """
    with body_unread():
        _refuse_encoding(headers)
    return await read_encoded_body(request, headers, max_bytes=max_bytes, grace_seconds=grace_seconds)


async def read_encoded_body(
    request: Request, headers: RequestHeaders, *, max_bytes: int, grace_seconds: float = 20.0
) -> bytes:
    """The same for a body whose content encoding is the caller's business: the bytes as they were sent."""
    with body_unread():
        declared = _declared_length(headers)
        if declared is not None and declared > max_bytes:
            raise _too_large(max_bytes)
    body = await _receive(request, max_bytes, grace_seconds)
    if declared is not None and len(body) != declared:
        raise _cut_short()
    return body


def _refuse_encoding(headers: RequestHeaders) -> None:
    encoding = headers.one(b"content-encoding").lower()
    if encoding not in ("", "identity"):
        raise Problem(
            ProblemCode.UNSUPPORTED_MEDIA_TYPE,
            f"The body has the Content-Encoding {encoding}; send it without one.",
            headers={"Accept-Encoding": "identity"},
        )


def _declared_length(headers: RequestHeaders) -> int | None:
    """None where there is none."""
    text = headers.one(b"content-length")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_LENGTH_DIGITS):
        raise Problem(ProblemCode.INVALID_REQUEST, "Content-Length is not a number of bytes.")
    return int(text)


async def _receive(request: Request, max_bytes: int, grace_seconds: float) -> bytes:
    buffer = BytesIO()  # grows in place and gives its bytes away without copying them
    state = request.scope.get("state", {})
    upload = state.get("upload")
    received = 0
    begun_at = asyncio.get_running_loop().time()
    deadline = None if state.get(WHOLE) else asyncio.timeout_at(begun_at + grace_seconds)
    try:
        async with deadline or nullcontext():
            while True:
                message = await request.receive()
                if message["type"] != "http.request":
                    raise _cut_short()
                chunk, has_more = message.get("body", b""), message.get("more_body", False)
                received += len(chunk)
                if received > max_bytes:
                    raise _too_large(max_bytes, close=has_more)
                if upload is not None:
                    upload.add(len(chunk))
                if not has_more and len(chunk) == received:
                    return bytes(chunk)
                buffer.write(chunk)
                if not has_more:
                    return buffer.getvalue()
                if deadline is not None:
                    deadline.reschedule(begun_at + grace_seconds + received / _MIN_BYTES_PER_SECOND)
    except TimeoutError:
        raise Problem(
            ProblemCode.BODY_TOO_SLOW,
            f"Only {received} bytes of the body arrived in time; after {grace_seconds:g} seconds it must keep up "
            f"{_MIN_BYTES_PER_SECOND} bytes per second.",
            close=True,
        ) from None


def _too_large(max_bytes: int, *, close: bool = True) -> Problem:
    return Problem(
        ProblemCode.PAYLOAD_TOO_LARGE,
        f"The body is larger than the {max_bytes} bytes that this server takes.",
        close=close,
        max_body_bytes=max_bytes,
    )


def _cut_short() -> Problem:
    return Problem(ProblemCode.INCOMPLETE_BODY, "The body is shorter than it was announced.")
