"""Free TCP ports for programs that can't be handed a socket.

Owns the choice alone. Must not keep a port: between the choice and the program's bind somebody else may take it.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
CANDIDATES = range(10_240, 32_768)
"""Below Linux's ephemeral range. In it, any outgoing connection may take the port while its owner restarts, and a
client that retries a closed loopback port may even connect to itself."""


def free_port(host: str = LOOPBACK) -> int:
    """A port nobody listens on right now; OSError when a hundred tries find none."""
    for _ in range(100):
        port = random.choice(CANDIDATES)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {host} in {CANDIDATES}")
