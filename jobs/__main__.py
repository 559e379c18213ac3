"""`python -m jobs redis` says whether Redis can be used, `python -m jobs variables` which variables nothing reads.

For whoever is about to start processes of the product: what they would say in their logs, said before. Changes nothing.
"""

import asyncio
import os
import sys
from collections.abc import Sequence

from jobs.connection import StoreError, StoreUnavailable
from jobs.settings import SettingsError, StoreSettings, load
from jobs.store import JobStore
from jobs.variables import unknown_variables

_USAGE = "usage: python -m jobs redis | variables"


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0, 1 where Redis does not answer now and may later, 2 where that needs a person."""
    match arguments:
        case ["redis"]:
            return asyncio.run(_redis())
        case ["variables"]:
            print("".join(f"{sentence}\n" for sentence in unknown_variables(os.environ)), end="")
            return 0
        case _:
            print(_USAGE, file=sys.stderr)
            return 2


async def _redis() -> int:
    try:
        store, _ = await JobStore.open(load(StoreSettings))
    except StoreUnavailable as exc:
        print(exc, file=sys.stderr)
        return 1
    except (SettingsError, StoreError) as exc:
        print(exc, file=sys.stderr)
        return 2
    await store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
