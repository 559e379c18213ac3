"""What a person hands to the stack: an engine, a Redis, models, variables; looked at before anything starts.

Owns the look and the sentence about what is missing. Must not judge more: api and workers say the rest themselves.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from inferq.stack.asking import ask
from inferq.stack.errors import StackError
from inferq.stack.readiness import Report

PATIENCE_SECONDS = 5.0
"""How long a given server may take to answer: it may be starting in this moment."""

POLL_SECONDS = 0.1
REDIS_VARIABLE = "INFERQ_REDIS_URL"
REDIS_PATIENCE_SECONDS = 20.0
"""It may be starting, or failing over."""
REDIS_POLL_SECONDS = 0.5
MAY_COME = 1
"""With this status `python -m jobs redis` says that Redis may answer later."""
PREFIX = "INFERQ_"

Address = tuple[str, int]


def check_models(repository: Path) -> None:
    """Raise StackError unless the folder holds what may be a model."""
    try:
        if not repository.is_dir():
            raise StackError(f"the model repository {repository} is not a folder")
        is_model = (repository / "config.pbtxt").is_file()
        has_models = any(path.is_dir() and not path.name.startswith(".") for path in repository.iterdir())
    except OSError as error:
        raise StackError(f"the model repository {repository} can't be read: {error.strerror}") from error
    if is_model:
        raise StackError(f"{repository} is a model, not a model repository: name the folder that holds it")
    if not has_models:
        raise StackError(f"the model repository {repository} has no models: each is a folder in it")


async def check_engine(addresses: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Raise StackError unless something accepts connections at one of `host:port[,host:port]`."""
    engines = [_split(part, 0) for part in addresses.split(",")]
    if any(port == 0 for _, port in engines):
        raise StackError(f"the engine's address {addresses!r} is not HOST:PORT (its gRPC port, as a rule 8001)")
    if not await _answers(engines, patience_seconds):
        raise StackError(f"no engine answers at {addresses}")


async def check_redis(
    url: str, environment: Mapping[str, str], report: Report, patience_seconds: float = REDIS_PATIENCE_SECONDS
) -> None:
    """Raise StackError unless the Redis of this URL can be used, which is waited for where that may help.

    `report` is told what is waited for and why, and again when that changes.
    """
    told, ends_at = "", time.monotonic() + patience_seconds
    while (asked := await ask({**environment, REDIS_VARIABLE: url}, "jobs", "redis")).status != 0:
        why = asked.complaint.rpartition("\n")[2]
        if asked.status != MAY_COME:
            raise StackError(f"Redis at {without_password(url)} can't be used: {why}")
        if time.monotonic() >= ends_at:
            raise StackError(f"no Redis at {without_password(url)} within {patience_seconds:g} s: {why}")
        if why != told:
            report(f"waiting for Redis at {without_password(url)}: {why}")
            told = why
        await asyncio.sleep(REDIS_POLL_SECONDS)


async def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A sentence about each variable that looks like a setting and that nothing reads."""
    if not any(name.upper().startswith(PREFIX) for name in environment):
        return []
    return (await ask(environment, "jobs", "variables")).output.splitlines()


async def check_settings(environment: Mapping[str, str], commands: Sequence[Sequence[str]]) -> None:
    """Raise StackError in the words of the first command (`workers settings inference`) that can't use a variable."""
    if not any(name.upper().startswith(PREFIX) for name in environment):
        return
    for asked in await asyncio.gather(*(ask(environment, *command) for command in commands)):
        if asked.status != 0:
            raise StackError(re.sub(r"^inferq \w+: ", "", asked.complaint))


def without_password(url: str) -> str:
    """The URL with `***` where its credentials stand, and without a query, which may hold some too."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that is none"
    hosts = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{'***@' if '@' in parts.netloc else ''}{hosts}{parts.path}"


def _split(address: str, default_port: int) -> Address:
    """Host and port of `host`, `host:port` or `[v6]:port`; port 0, where nobody listens, for one that is none."""
    host, _, port = address.strip().rpartition(":")
    if not host or port.endswith("]"):
        host, port = address.strip(), str(default_port)
    return host.strip("[]") or "localhost", int(port) if port.isascii() and port.isdigit() else 0


async def _answers(addresses: Sequence[Address], patience_seconds: float) -> bool:
    ends_at = time.monotonic() + patience_seconds
    while True:
        for address in addresses:
            if await _accepts(address, max(POLL_SECONDS, ends_at - time.monotonic())):
                return True
        if time.monotonic() >= ends_at:
            return False
        await asyncio.sleep(POLL_SECONDS)


async def _accepts(address: Address, timeout_seconds: float) -> bool:
    with suppress(OSError, OverflowError, UnicodeError):
        _, writer = await asyncio.wait_for(asyncio.open_connection(*address), timeout_seconds)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True
    return False
