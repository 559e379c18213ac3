"""A primary, its replica and three Sentinels, all real.

Owns their processes and ports. Must not know what is stored in them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError

from inferq.stack import StackEnvironment, ValkeyServer
from inferq.stack.ports import LOOPBACK, free_port
from inferq.stack.process import Process, Program
from tests.contract.valkeys import ConfiguredValkey
from tests.support.eventually import eventually

SERVICE = "mymaster"
SENTINELS = 3
DOWN_AFTER_MS = 3000
START_SECONDS = 30


class Cluster:
    """`url` names the Sentinels; `primary` is the one of the two servers that was it at the start."""

    def __init__(self, primary: ValkeyServer, replica: ValkeyServer, ports: list[int]) -> None:
        self.primary = primary
        self.replica = replica
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}/0"
        self.sentinels = [Redis(host=LOOPBACK, port=port) for port in ports]

    async def is_agreed(self) -> bool:
        """Whether every Sentinel knows the replica and the other Sentinels: only then can they fail over."""
        try:
            return all([await _is_ready(sentinel) for sentinel in self.sentinels])
        except ConnectionError:
            return False

    async def primary_port(self) -> int:
        """Who is the primary now, as the first Sentinel says."""
        masters = await self.sentinels[0].sentinel_masters()  # type: ignore[no-untyped-call]
        return int(masters[SERVICE]["port"])


async def _is_ready(sentinel: Redis) -> bool:
    state = (await sentinel.sentinel_masters())[SERVICE]  # type: ignore[no-untyped-call]
    if (state["num-slaves"], state["num-other-sentinels"]) != (1, SENTINELS - 1):
        return False
    (replica,) = await sentinel.sentinel_slaves(SERVICE)  # type: ignore[no-untyped-call]
    return bool(replica["master-link-status"] == "ok")


@asynccontextmanager
async def sentinels(environment: StackEnvironment, folder: Path) -> AsyncIterator[Cluster]:
    """A cluster that would survive the death of its primary."""
    async with AsyncExitStack() as stack:
        primary = ValkeyServer(environment, folder / "primary")
        replica = ConfiguredValkey(environment, folder / "replica", f"replicaof {LOOPBACK} {primary.port}")
        for server in (primary, replica):
            stack.callback(server.stop)
            server.start()
        ports = [free_port() for _ in range(SENTINELS)]
        for port in ports:
            stack.callback(start_sentinel(environment, folder / f"sentinel-{port}", port, primary.port).kill)
        cluster = Cluster(primary, replica, ports)
        for client in cluster.sentinels:
            stack.push_async_callback(client.aclose)
        await eventually(cluster.is_agreed, START_SECONDS)
        yield cluster


def start_sentinel(environment: StackEnvironment, folder: Path, port: int, primary_port: int) -> Process:
    """A Sentinel of the service, which the caller kills."""
    folder.mkdir(parents=True)
    lines = (
        f"bind {LOOPBACK}",
        f"port {port}",
        f'dir "{folder}"',
        f"sentinel monitor {SERVICE} {LOOPBACK} {primary_port} {SENTINELS // 2 + 1}",
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {SERVICE} 10000",
    )
    config = folder / "sentinel.conf"
    config.write_text("".join(f"{line}\n" for line in lines))
    command = (str(environment.valkey_server), str(config), "--sentinel")
    process = Process(Program("sentinel", command, {"LC_ALL": "C.UTF-8"}, folder / "sentinel.log"))
    process.start()
    return process
