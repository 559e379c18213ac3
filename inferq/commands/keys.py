"""`inferq keys`: the api's own command, run where the queue is.

Owns how that Redis is found, or started for the moment where `inferq up` does not run. Must not import the api or speak
to Redis: it starts the one process that does.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from inferq.commands.exit import CommandFailed

REDIS_VARIABLE: Final = "INFERQ_REDIS_URL"
WRONG_USE: Final = 2
DATA_HELP: Final = f"""
where the keys are:
  --data FOLDER  data of an `inferq up`, which need not run; .inferq by default; if no {REDIS_VARIABLE}"""


def keys(arguments: Sequence[str], data: Path) -> None:
    """Run it with these arguments on the Redis that the environment names, else on the queue in the folder `data`."""
    environment = dict(os.environ)
    is_help = bool({"-h", "--help"} & set(arguments))
    if REDIS_VARIABLE in environment or is_help:
        _run(arguments, environment)
        if is_help:
            print(DATA_HELP)
        return
    from inferq.stack import StackError
    from inferq.stack.folder import has_queue, queue_of

    if not has_queue(data):
        if "create" not in arguments:
            raise CommandFailed(
                f"no `inferq up` ever ran on {data}, and {REDIS_VARIABLE} names no Redis",
                f"Name its folder with --data, or set {REDIS_VARIABLE}.",
                status=WRONG_USE,
            )
        print(f"No `inferq up` ever ran on {data.absolute()}: the key is for one that will.", file=sys.stderr)
    try:
        with queue_of(data, environment) as url:
            _run(arguments, {**environment, REDIS_VARIABLE: url})
    except StackError as exc:
        raise CommandFailed(str(exc)) from exc


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    # -P: a folder called `api` in the current directory is not the product's.
    ended = subprocess.run(  # noqa: S603 - our own program, and the arguments are its user's
        [sys.executable, "-P", "-m", "api", "keys", *arguments], env=environment, check=False
    )
    if ended.returncode:
        sys.exit(ended.returncode)
