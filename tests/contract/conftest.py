"""The store's contract runs on both kinds of server."""

from tests.support.stores import rig, store_url

__all__ = ["rig", "store_url"]
