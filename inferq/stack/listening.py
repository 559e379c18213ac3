"""The one socket that all api processes accept on, bound before they start and kept while they restart.

Owns which addresses others than this machine's users can reach. Must not accept a connection itself.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from inferq.stack.errors import StackError

BACKLOG = 2048


def open_listening_socket(host: str, port: int) -> socket.socket:
    """A listening TCP socket on `host` (a name or an address) and `port` (0: a free one); StackError if refused."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise StackError(f"the host {host!r} can't be resolved: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StackError(f"can't listen on {host}:{port}: {error.strerror}{_advice(error)}") from error
    return listener


def _advice(error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return ""
    return "; another `inferq up` may run there, or still be stopping: wait for its end, or choose another --port"


def reachable_address(listener: socket.socket) -> tuple[str, int]:
    """Where this machine reaches the socket: a wildcard address stands for loopback."""
    host, port = listener.getsockname()[:2]
    wildcard = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound
    return wildcard.get(host, host), port


def is_for_strangers(listener: socket.socket) -> bool:
    """Whether others than this machine's users can reach the socket."""
    return not ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback
