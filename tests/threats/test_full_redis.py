"""T: Redis, T: Quotas: Redis filled to its limit through a real api: refused in time, running jobs end, it heals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from inferq.stack import StackEnvironment
from tests.api.conftest import emptied
from tests.api.harness import MODEL, Backend, floats, open_hand
from tests.api.processes import api_process
from tests.contract.valkeys import configured
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server]

MEGABYTE = 1 << 20
LIMIT = 48 * MEGABYTE
BODY = b"\0" * MEGABYTE


@pytest.fixture
async def backend(stack_environment: StackEnvironment, tmp_path: Path) -> AsyncIterator[Backend]:
    """A Valkey that may use 48 MB."""
    with configured(stack_environment, tmp_path, "appendonly no", f"maxmemory {LIMIT}") as server:
        yield await emptied(server.url)


async def test_a_full_redis_refuses_in_time_and_heals_by_itself(backend: Backend, tmp_path: Path) -> None:
    async with open_hand(backend) as hand:
        redis = hand.store.connection.client
        with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
            async with httpx.AsyncClient(base_url=process.url, timeout=30) as client:
                taken = await _fill(client)
                assert 10 < taken < LIMIT // MEGABYTE
                used = int((await redis.info("memory"))["used_memory"])
                assert used < 0.85 * LIMIT
                claimed = await hand.claim(taken)
                assert len(claimed) == taken
                for job in claimed:
                    await hand.succeed(job, floats(1.0), is_inline=True)

                async def is_healed() -> bool:
                    return (await _post(client)).status_code == 202

                await eventually(is_healed, 20)


async def _fill(client: httpx.AsyncClient) -> int:
    """Post until it is refused; gives how many were taken."""
    for taken in range(200):
        answer = await _post(client)
        if answer.status_code != 202:
            assert (answer.status_code, answer.json()["code"]) == (503, "store_full")
            assert answer.json()["type"].endswith("#temporary-reduced-capacity")
            assert int(answer.headers["retry-after"]) >= 1
            return taken
    raise AssertionError("it is never full")


async def _post(client: httpx.AsyncClient) -> httpx.Response:
    headers = {"Content-Type": "application/x-npy"}
    shape = len(BODY) // 4
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape},), }}".encode().ljust(117) + b"\n"
    return await client.post(
        "/jobs", params={"model": MODEL}, content=b"\x93NUMPY\x01\x00\x76\x00" + head + BODY, headers=headers
    )
