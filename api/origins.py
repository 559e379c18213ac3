"""Which web pages may make a browser call the service while no API key is asked for.

A page that somebody opens can send requests to this machine, in the name of whoever sits there. It owns how such a
request is told from others; with keys there is nothing to tell, since a browser adds no key by itself.
"""

import re
import socket
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from starlette.requests import Request

from api.problems import Problem, ProblemCode

_REMEMBERED: Final = 1_000
_PRIVATE: Final = ("localhost", "internal")
"""Top-level domains that nobody can register (RFC 6761; ICANN's resolution 2024.07.29.06)."""

_NAME: Final = re.compile(r"[a-z0-9._-]*", re.ASCII)
_PORT: Final = re.compile(r"(:[0-9]{0,5})?", re.ASCII)


class Origins:
    """Refuses pages of origins that are not allowed, and pages that have given this machine a name of their own."""

    def __init__(self, allowed: Collection[str], *, any_host: bool) -> None:
        """`allowed` are origins (`https://app.example`), or `*`; with `any_host` the service has names of its own."""
        self._allowed = frozenset(origin.lower() for origin in allowed)
        self._any_host = any_host
        self._refusal = lru_cache(_REMEMBERED)(self._why_not)

    def check(self, request: Request) -> None:
        """Raises Problem with 403 for a request that a page of a foreign origin may have caused."""
        host, origin = b"", b""
        for name, value in request.scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if refusal := self._refusal(host, origin):
            raise Problem(ProblemCode.FOREIGN_PAGE, refusal)

    def _why_not(self, host: bytes, origin: bytes) -> str:
        """Why these headers are refused, '' where they are not."""
        name, page = host.decode("latin-1").lower(), origin.decode("latin-1").lower()
        if not self._any_host and not _is_ours(name):
            return (
                "Without API keys this service answers only to what no web page can make lead here: addresses, "
                "`localhost`, names without a dot, and names that end in `.localhost` or `.internal`. "
                "Make an API key (inferq keys create NAME) or set INFERQ_ALLOW_UNAUTHENTICATED=1."
            )
        if page and page.partition("://")[2] != name and not self._allowed & {"*", page}:
            return (
                "Without API keys pages of other origins may not call this service. Name theirs in "
                "INFERQ_ALLOW_ORIGINS, or make an API key (inferq keys create NAME)."
            )
        return ""


def _is_ours(host: str) -> bool:
    """Whether this is an address, or a name that no stranger can make lead here."""
    if host.startswith("["):
        literal, bracket, port = host[1:].partition("]")
        return bool(bracket) and _PORT.fullmatch(port) is not None and _is_address(socket.AF_INET6, literal)
    name, colon, port = host.partition(":")
    name = name.removesuffix(".")
    if not _NAME.fullmatch(name) or not _PORT.fullmatch(colon + port):
        return False
    last = name.rpartition(".")[2]
    if last.isdecimal():  # as browsers have it, such a name is an address or none at all
        return _is_address(socket.AF_INET, name)
    return last == name or last in _PRIVATE


def _is_address(family: socket.AddressFamily, text: str) -> bool:
    """Whether this spells an address; for IPv4 in any of the ways that there are (127.1)."""
    try:
        socket.inet_aton(text) if family is socket.AF_INET else socket.inet_pton(family, text)
    except OSError:
        return False
    return True
