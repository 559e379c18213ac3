"""A scripted engine in a process of its own, of whose calls three in ten are never answered: `python engine.py CALLS`.

Owns the script; prints the port, and serves until it is killed. Its memory must not be counted with the client's.
"""

from __future__ import annotations

import asyncio
import sys

from tests.support.scripted_triton import ScriptedTriton

IN_TEN = (*["ok"] * 7, *["hang"] * 3)


async def main(calls: int) -> None:
    async with ScriptedTriton() as engine:
        for _ in range(calls // len(IN_TEN)):
            engine.say("echo", *IN_TEN)
        print(engine.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
