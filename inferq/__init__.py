"""What a person types and imports: the command line, the Python client and the embedded stack.

It starts `api` and `workers` as processes and talks HTTP to them; it imports neither.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferq.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> object:
    """The clients, imported when they are asked for: the command line and the stack do without them."""
    if name in __all__:
        from inferq import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
