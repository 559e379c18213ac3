"""`python -m bench.fixed_worker`: the product's worker with fixed batch sizes, for the sizer to be compared with.

BENCH_FIXED_SIZES is a JSON object, model → size; other models keep the sizer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from jobs.spec import ModelSpec
from workers import __main__ as worker
from workers import lane
from workers.sizer import BatchSizer


class FixedSizer(BatchSizer):
    """One size, whatever is observed."""

    def __init__(self, size: int) -> None:
        super().__init__(1)
        self._size = size

    @property
    def settled(self) -> int:
        """The size."""
        return self._size

    def next_size(self) -> int:
        """The size."""
        return self._size

    def mean_call_seconds(self) -> float:
        """Unknown."""
        return 0.0

    def observe(self, rows: int, started: float, finished: float) -> None:
        """Learns nothing."""


class FixedLane(lane.Lane):
    """A lane whose sizer is fixed where a size is given."""

    def __init__(self, tools: Any, spec: ModelSpec) -> None:
        super().__init__(tools, spec)
        if spec.name in SIZES:
            self._sizer = self._watch.sizer = FixedSizer(SIZES[spec.name])


SIZES: Mapping[str, int] = json.loads(os.environ.get("BENCH_FIXED_SIZES", "{}"))


def main() -> int:
    """The worker's exit status."""
    from workers import serving

    vars(serving)["Lane"] = FixedLane
    return worker.main(["inference"])


if __name__ == "__main__":
    sys.exit(main())
