"""`inferq keys`: the api's own command, run where the queue is.

Owns how that Redis is found. Must not import the api or speak to Redis: it starts the one process that does.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from inferq.commands.exit import CommandFailed

REDIS_VARIABLE: Final = "INFERQ_REDIS_URL"
WRONG_USE: Final = 2


def keys(arguments: Sequence[str], data: Path) -> None:
    """Run it with these arguments on the Redis that the environment names, else on that of `inferq up` in `data`."""
    environment = dict(os.environ)
    if REDIS_VARIABLE not in environment and not {"-h", "--help"} & set(arguments):
        try:
            environment[REDIS_VARIABLE] = (data / "valkey" / "url").read_text().strip()
        except OSError:
            raise CommandFailed(
                f"no `inferq up` runs on {data}, and {REDIS_VARIABLE} names no Redis",
                f"Start one, name its folder with --data, or set {REDIS_VARIABLE}.",
                status=WRONG_USE,
            ) from None
    # -P: a folder called `api` in the current directory is not the product's.
    ended = subprocess.run(  # noqa: S603 - our own program, and the arguments are its user's
        [sys.executable, "-P", "-m", "api", "keys", *arguments], env=environment, check=False
    )
    if ended.returncode:
        sys.exit(ended.returncode)
