"""Who uses which database of the session's Valkey.

Owns the numbers. Tests empty the one that they use; only those of one enum member may do so to each other.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class Database(IntEnum):
    """The databases that tests share, by who uses them; the server has 16."""

    API = 5
    FACADE = 6
    """Stays as it is for the whole session, as its product runs on."""
    LANES = 7
    WEBHOOKS = 8
    STORES = 9
    FAILURE = 10
    UPLOADS = 11

    def at(self, server_url: str) -> str:
        """The URL of this database on a server whose URL names another one."""
        return f"{server_url.rpartition('/')[0]}/{self.value}"
