"""Promise 8: Sentinel replaces the primary, and work goes on within 30 seconds with the same processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inferq.stack import StackEnvironment
from tests.failure.sentinels import Cluster, sentinels
from tests.failure.site import Site, assert_all_succeed, frozen, holds, load, site
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server, pytest.mark.slow]

FAILOVER_SECONDS = 30
BEFORE_SECONDS = 1.5


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_a_failover_by_three_sentinels_costs_no_job_that_was_replicated_and_no_process(
    stack_environment: StackEnvironment, tmp_path: Path, fault: str
) -> None:
    """B008, B026: the old primary dies, or hangs and comes back as one that believes to be the primary still."""
    async with (
        sentinels(stack_environment, tmp_path / "sentinel") as cluster,
        site(cluster.url, tmp_path, drain_seconds=5) as here,
    ):
        worker = here.worker()
        clients = [await here.api("api-1"), await here.api("api-2")]
        await here.until_served(worker)
        async with load(clients, per_second=20) as jobs:
            await asyncio.sleep(BEFORE_SECONDS)
            if fault == "killed":
                cluster.primary.process.kill()
                took = await _resumed(here, cluster)
            else:
                with frozen(cluster.primary.process.pid):
                    took = await _resumed(here, cluster)
            await asyncio.sleep(BEFORE_SECONDS)
        assert took < FAILOVER_SECONDS
        await assert_all_succeed(clients[0], jobs)
        assert all(process.is_running for process in here.processes.values())

        async def is_known() -> bool:  # its last beat may have gone to the old primary
            return len(await here.workers()) == 1

        await eventually(is_known)


async def _resumed(here: Site, cluster: Cluster) -> float:
    """Seconds until the replica is the primary and a new job comes to its end there."""

    async def is_replaced() -> bool:
        return await cluster.primary_port() == cluster.replica.port

    async def is_done() -> bool:
        async with here.raw() as raw:
            tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [7]}
            answer = await raw.post("/jobs", json={"model": "echo", "inputs": [tensor]}, headers={"Prefer": "wait=10"})
            return answer.status_code == 201

    return await holds(is_replaced, FAILOVER_SECONDS) + await holds(is_done, FAILOVER_SECONDS)
