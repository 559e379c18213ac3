"""Large inputs by memory that an engine on the same host shares with us, in place of copies through a socket.

It owns the memory and which addresses know of it. Whoever does not (another host, an engine that allows no such thing)
gets its inputs by gRPC as ever, so nothing here ever fails or delays a call. Outputs never come this way: a call that
nobody waits for any more could still write them, over those of another one.
"""

import asyncio
import contextlib
import fcntl
import logging
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from jobs.datatypes import Datatype
from jobs.errors import EngineTimeout, EngineUnavailable, JobFailure
from jobs.ids import random_id
from workers.triton.arena import Arena
from workers.triton.endpoint import Endpoint
from workers.triton.messages import InferCall, Placed, parts_of
from workers.triton.pb import inference_pb2 as pb

FOLDER: Final = Path("/dev/shm")  # noqa: S108 - where POSIX keeps shared memory on Linux
PREFIX: Final = "inferq-"
SMALLEST_BYTES: Final = 64 * 1024
"""What is smaller is sent as quickly."""
REST_SECONDS: Final = 60.0
"""For so long nobody writes where a call that was given up may still read."""
_SMALLEST_REGION_BYTES: Final = 8 << 20
_PATIENCE_SECONDS: Final = 2.0
_KNOWN: Final = "already in manager"
"""What Triton says of a name that it knows: the answer to an earlier attempt got lost."""
_IN_USE: Final = "in use"
"""What it says where a call still reads the memory, perhaps one that nobody waits for any more."""

log = logging.getLogger(__name__)


class _Region:
    """A named block of memory, locked for as long as this process lives: what nobody locks is a dead process's."""

    def __init__(self, folder: Path, prefix: str, nbytes: int) -> None:
        self.name = prefix + random_id()
        self.nbytes = nbytes
        self.arena = Arena(nbytes)
        self._path = folder / self.name
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before it has a size: see `_is_dead`
            os.posix_fallocate(self._file, 0, nbytes)  # or a full file system would kill us at the first write
            self.memory = mmap.mmap(self._file, nbytes)
        except BaseException:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            raise

    def take(self, sizes: Sequence[int], now: float) -> tuple[tuple[int, int], ...] | None:
        """Offset and size of a place for each, None where not all have one."""
        places: list[tuple[int, int]] = []
        for nbytes in sizes:
            offset = self.arena.take(nbytes, now)
            if offset is None:
                for taken in places:
                    self.arena.give_back(*taken, now)
                return None
            places.append((offset, nbytes))
        return tuple(places)

    def close(self, *, keep_name: bool = False) -> None:
        self.memory.close()
        if not keep_name:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


class SharedInputs:
    """The shared memory of one engine client; `most_bytes` 0 switches it off. It is made when it is first useful.

    Whoever has the same `prefix` takes away what dead ones left.
    """

    def __init__(
        self,
        most_bytes: int,
        *,
        folder: Path = FOLDER,
        prefix: str = PREFIX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_bytes = most_bytes
        self._folder = folder
        self._prefix = prefix
        self._clock = clock
        self._region: _Region | None = None
        self._known: dict[Endpoint, bool] = {}
        self._registering: asyncio.Task[None] | None = None
        self._is_closed = False

    def wants(self, call: InferCall) -> bool:
        """Whether these inputs are worth it. BYTES are not: what says where each begins is inside."""
        return (
            self._most_bytes > 0
            and all(tensor.datatype is not Datatype.BYTES and tensor.nbytes for tensor in call.inputs)
            and sum(tensor.nbytes for tensor in call.inputs) >= SMALLEST_BYTES
        )

    def is_known_to(self, endpoint: Endpoint, endpoints: Sequence[Endpoint]) -> bool:
        """Whether this address reads our memory by now; if nobody knows, it is asked meanwhile.

        `endpoints` are all that there are: each may still hold what a dead process left.
        """
        is_asked = self._registering is not None and not self._registering.done()
        if endpoint not in self._known and not is_asked and not self._is_closed:
            self._registering = asyncio.create_task(self._register(endpoint, endpoints))
        return self._known.get(endpoint, False)

    @contextlib.contextmanager
    def placed(self, call: InferCall) -> Iterator[Placed | None]:
        """The inputs written to the memory, None where it has no room. They stay while the context lasts.

        A context that ends by an exception was perhaps given up while the engine still reads.
        """
        region = self._region
        places = region.take([tensor.nbytes for tensor in call.inputs], self._clock()) if region else None
        if region is None or places is None:
            yield None
            return
        rest_seconds = REST_SECONDS
        try:
            for tensor, (offset, _) in zip(call.inputs, places, strict=True):
                for part in parts_of(tensor):
                    end = offset + memoryview(part).nbytes
                    region.memory[offset:end] = part
                    offset = end
            yield Placed(region.name, places)
            rest_seconds = 0.0
        finally:
            for offset, nbytes in places:
                region.arena.give_back(offset, nbytes, self._clock(), rest_seconds)

    def forget(self, endpoint: Endpoint) -> None:
        """The engine there does not know the memory any more: it was restarted."""
        self._known.pop(endpoint, None)

    async def close(self) -> None:
        """Take the memory back from the engines that know it, and share no more. Legal twice, and before any use.

        What an engine still reads keeps its name, so that a later process can take it back.
        """
        self._is_closed = True
        if self._registering is not None:
            await asyncio.wait({self._registering})
        region, self._region = self._region, None
        if region is not None:
            knowing = [endpoint for endpoint, is_known in self._known.items() if is_known]
            region.close(keep_name=not await _is_let_go(knowing, region.name))

    async def _register(self, endpoint: Endpoint, endpoints: Sequence[Endpoint]) -> None:
        """Note whether the address knows the memory; nothing where that can't be said now."""
        try:
            region = self._region or await self._open(endpoints)
            request = pb.SystemSharedMemoryRegisterRequest(
                name=region.name, key=f"/{region.name}", byte_size=region.nbytes
            )
            await endpoint.ask(endpoint.stub.SystemSharedMemoryRegister, request, _PATIENCE_SECONDS)
            self._known[endpoint] = True
        except (EngineUnavailable, EngineTimeout):
            pass
        except (JobFailure, OSError) as exc:
            self._known[endpoint] = isinstance(exc, JobFailure) and _KNOWN in str(exc)
            if not self._known[endpoint]:
                log.info("inputs go to %s by gRPC alone, not by shared memory: %s", endpoint.address, exc)
            if self._region is not None and not any(self._known.values()):
                self._region.close()
                self._region = None

    async def _open(self, endpoints: Sequence[Endpoint]) -> _Region:
        """Make the memory, once what dead processes left is gone; raises OSError where there can be none."""
        for left in self._folder.glob(f"{self._prefix}*"):
            if _is_dead(left) and await _is_let_go(endpoints, left.name):
                with contextlib.suppress(OSError):
                    left.unlink()
        room = os.statvfs(self._folder)
        nbytes = region_bytes(self._most_bytes, room.f_bavail * room.f_frsize)
        if not nbytes:
            raise OSError(f"{self._folder} has no room")
        self._region = _Region(self._folder, self._prefix, nbytes)
        return self._region


def region_bytes(most_bytes: int, free_bytes: int) -> int:
    """The size of a region: whole pages, at most half of what is free; 0 where that is too little to be of use."""
    nbytes = min(most_bytes, free_bytes // 2)
    return nbytes // mmap.PAGESIZE * mmap.PAGESIZE if nbytes >= min(_SMALLEST_REGION_BYTES, most_bytes) else 0


async def _is_let_go(endpoints: Sequence[Endpoint], name: str) -> bool:
    """Ask these addresses to forget a region; whether none of them still reads it."""

    async def ask(endpoint: Endpoint) -> bool:
        request = pb.SystemSharedMemoryUnregisterRequest(name=name)
        try:
            await endpoint.ask(endpoint.stub.SystemSharedMemoryUnregister, request, _PATIENCE_SECONDS)
        except JobFailure as failure:
            return _IN_USE not in str(failure)
        return True

    return all(await asyncio.gather(*(ask(endpoint) for endpoint in endpoints)))


def _is_dead(path: Path) -> bool:
    """Whether this is a region of this user that no process holds. One without a size is perhaps just being made."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or not about.st_size:
            return False
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(file)
