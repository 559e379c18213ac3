"""Laws of the store hold on both kinds of server."""

from tests.support.stores import store_url

__all__ = ["store_url"]
