"""The data folder of a stack: one stack at a time, and its queue, also while no stack runs there.

Owns the lock, and where what lies in the folder. Must not know what is in the queue.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from inferq.stack.environment import StackEnvironment
from inferq.stack.errors import StackError
from inferq.stack.valkey import ValkeyServer

STORE_TIMEOUT_SECONDS = 120.0
"""What reading a large queue back may take."""


class FolderInUse(StackError):
    """A stack runs on this data folder."""


def lock(data: Path) -> int:
    """A descriptor that holds the folder's lock; FolderInUse, or StackError when the folder can't be made."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StackError(f"the data folder {data} can't be written: {error.strerror}; use another --data") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise FolderInUse(f"another stack runs on the data folder {data}: stop it, or use another --data") from error
    return descriptor


def has_queue(data: Path) -> bool:
    """Whether a stack with a Valkey of its own ever ran there."""
    return (data / "valkey").is_dir()


def store_of(data: Path, found: StackEnvironment, *, is_durable: bool = False) -> ValkeyServer:
    """The folder's Valkey, which is not started yet, under a new password."""
    data = data.absolute()
    return ValkeyServer(
        found,
        data / "valkey",
        password=secrets.token_urlsafe(),
        log_path=data / "logs" / "valkey.log",
        is_durable=is_durable,
    )


@contextmanager
def queue_of(data: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL of the folder's queue: that of the stack which runs there, else of a Valkey that runs for the context.

    StackError where neither can be had.
    """
    try:
        descriptor = lock(data)
    except FolderInUse:
        yield _running_url(data)
        return
    try:
        store = store_of(data, StackEnvironment.find(environment))
        try:
            store.start(STORE_TIMEOUT_SECONDS)
            yield store.url
        finally:
            store.stop()
    finally:
        os.close(descriptor)


def _running_url(data: Path) -> str:
    try:
        return (data / "valkey" / "url").read_text().strip()
    except OSError:
        raise StackError(f"the stack on {data} has no Valkey (yet): name its Redis in INFERQ_REDIS_URL") from None
