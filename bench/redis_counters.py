"""What a Redis has done so far, as it counts itself.

It must not change anything there but its own counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SNAPSHOT_COMMANDS: Final = 2
"""What one snapshot itself adds, each with a round trip of its own."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Round trips (reads from sockets) and commands by name, those that scripts run included."""

    reads: int
    commands: Mapping[str, int]

    def since(self, before: Counters, own: Mapping[str, int]) -> Counters:
        """The difference, less our own `own` commands, which took a round trip each."""
        ours = {**own, "info": own.get("info", 0) + SNAPSHOT_COMMANDS}
        commands = {
            name: count - before.commands.get(name, 0) - ours.get(name, 0) for name, count in self.commands.items()
        }
        return Counters(
            self.reads - before.reads - sum(ours.values()),
            {name: count for name, count in commands.items() if count > 0},
        )


def counters(redis: Any) -> Counters:
    """What was counted until now."""
    reads = int(redis.info("stats")["total_reads_processed"])
    commands = redis.info("commandstats")
    return Counters(reads, {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in commands.items()})
