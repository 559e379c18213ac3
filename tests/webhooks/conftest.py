"""What tests of webhooks share: a store on each kind of server."""

from tests.support.stores import rig, store_url

__all__ = ["rig", "store_url"]
