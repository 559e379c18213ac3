"""How much the service holds: the sums that scripts keep, the limits they are held against, and Redis' own memory.

It owns their names and reads them; what to refuse by them is decided in the scripts, and how to say so in the api.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs import keys
from jobs.connection import Call, Connection, StoreError, StoreUnavailable
from jobs.settings import StoreSettings

BURST_SECONDS: Final = 10
"""A tenant that was silent may submit so many seconds' worth of its rate at once."""
MEMORY_SHARE: Final = 0.8
"""Of Redis' memory limit: what is above is left to results, leases and messages of jobs that were accepted."""


def limits(settings: StoreSettings) -> tuple[float, ...]:
    """The nine limits of a submit, in the order of the script's arguments."""
    pause_ms = 1000 / settings.tenant_rate if settings.tenant_rate else 0
    return (
        settings.max_queued,
        settings.max_queued_bytes,
        settings.max_open,
        settings.max_open_bytes,
        settings.tenant_max_open,
        settings.tenant_max_open_bytes,
        pause_ms,
        max(1.0, settings.tenant_rate * BURST_SECONDS),
        MEMORY_SHARE,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs that have not ended and their requests' bytes, all and by tenant and model; and how many have ever ended.

    `max_memory_bytes` 0: Redis has no limit, or does not tell.
    """

    open_jobs: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)
    used_memory_bytes: int = 0
    max_memory_bytes: int = 0

    @property
    def open_bytes(self) -> int:
        """Of all requests."""
        return self.sums.get("bytes", 0)

    @property
    def ended(self) -> int:
        """Jobs that ever ended."""
        return self.sums.get("ended", 0)

    def model_bytes(self, model: str) -> int:
        """Of one model's requests."""
        return self.sums.get(f"bytes:model:{model}", 0)

    def model_ended(self, model: str) -> int:
        """Jobs of one model that ever ended."""
        return self.sums.get(f"ended:model:{model}", 0)

    def tenant_jobs(self, tenant: str) -> int:
        """Jobs of one tenant that have not ended."""
        return self.sums.get(f"jobs:tenant:{tenant}", 0)

    def tenant_bytes(self, tenant: str) -> int:
        """Of one tenant's requests."""
        return self.sums.get(f"bytes:tenant:{tenant}", 0)

    def tenant_ended(self, tenant: str) -> int:
        """Jobs of one tenant that ever ended."""
        return self.sums.get(f"ended:tenant:{tenant}", 0)


async def read_load(connection: Connection) -> Load:
    """The load now; raises StoreError. A Redis that may not be asked for its memory is taken to have no limit."""
    open_jobs, flat, info = await connection.replies(
        Call("ZCARD", keys.OPEN_KEY), Call("HGETALL", keys.LOAD_KEY), Call("INFO", "memory")
    )
    for reply in (open_jobs, flat):
        if isinstance(reply, StoreError):
            raise reply
    if isinstance(info, StoreUnavailable):
        raise info
    memory = info if isinstance(info, dict) else {}
    return Load(
        open_jobs,
        {name.decode("utf-8", "replace"): int(value) for name, value in flat.items()},
        int(memory.get("used_memory", 0)),
        int(memory.get("maxmemory", 0)),
    )
