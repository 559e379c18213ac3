"""Questions that only the product's own commands can answer, asked by running one to its end.

Owns that nothing is left running when nobody waits for the answer any more. Must not import them.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

# -P: a folder called `api` or `jobs` in the current directory is not the product's.
PYTHON = (sys.executable, "-P", "-m")


class Answer(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    output: str
    complaint: str


async def ask(environment: Mapping[str, str], *command: str) -> Answer:
    """Run `python -m COMMAND…` in this environment; it is killed where the caller is cancelled."""
    process = await asyncio.create_subprocess_exec(*PYTHON, *command, env=dict(environment), stdout=PIPE, stderr=PIPE)
    try:
        output, complaint = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return Answer(process.returncode or 0, *(text.decode(errors="replace").strip() for text in (output, complaint)))
