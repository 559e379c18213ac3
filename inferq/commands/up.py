"""`inferq up`: the whole product on this machine, until it is told to stop.

Owns how the stack's life looks from a terminal; everything else is the stack's.
"""

import asyncio

from inferq.commands.exit import CommandFailed
from inferq.stack import EmbeddedStack, StackError, StackOptions


def up(options: StackOptions) -> None:
    """Run the stack until SIGINT or SIGTERM; CommandFailed when it can't start."""
    try:
        asyncio.run(_run(options))
    except StackError as exc:
        raise CommandFailed(str(exc)) from exc


async def _run(options: StackOptions) -> None:
    async with EmbeddedStack(options, report=report) as stack:
        await stack.wait()
        report(f"stopping; running work may take up to {options.drain_seconds:g} s, Ctrl-C again stops at once")


def report(line: str) -> None:
    """An event of the stack, at once, even into a pipe."""
    print(line, flush=True)
