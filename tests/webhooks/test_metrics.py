"""T: Metrics/docs/health: what a webhook worker tells Prometheus: results and counts, and no host, tenant or id."""

from __future__ import annotations

import httpx
import pytest

from inferq.stack.ports import free_port
from tests.support.receiver import receiving
from tests.webhooks.rig import running_worker
from workers.webhooks.measures import Measures

pytestmark = pytest.mark.anyio


@pytest.mark.server
async def test_messages_are_counted_by_what_came_of_them(valkey_url: str) -> None:
    port = free_port()
    async with (
        receiving() as good,
        receiving(always="500") as bad,
        receiving(always="410") as gone,
        running_worker(valkey_url, metrics_port=port) as worker,
        httpx.AsyncClient() as client,
    ):
        job_id = await worker.outbox.succeed(url=good.url)
        await worker.ended(job_id)
        await worker.ended(await worker.outbox.succeed(url=gone.url))
        await worker.tried(await worker.outbox.succeed(url=bad.url), 1)
        page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    for line in (
        'inferq_webhook_attempts_total{result="delivered"} 1',
        'inferq_webhook_attempts_total{result="status"} 2',
        'inferq_webhook_deliveries_total{result="delivered"} 1',
        'inferq_webhook_deliveries_total{result="failed"} 1',
        "inferq_webhook_attempt_seconds_count 3",
        "inferq_webhook_attempts_in_flight 0",
        'inferq_webhook_queued{where="queue"} 1',
        'inferq_webhook_queued{where="line"} 0',
    ):
        assert line in page.splitlines()
    for word in ("127.0.0.1", "local", job_id):
        assert word not in page


@pytest.mark.server
async def test_what_a_host_has_no_room_for_counts_as_in_line(valkey_url: str) -> None:
    async with (
        receiving(always="hang") as receiver,
        running_worker(valkey_url, webhook_concurrency_per_host=1, drain_seconds=0) as worker,
    ):
        for _ in range(3):
            await worker.outbox.succeed(url=receiver.url)
        await receiver.got(1)
        await worker.look()
        assert await worker.outbox.deliveries.depth() == (1, 2)


def test_while_redis_is_away_the_page_tells_the_rest() -> None:
    page = Measures().page(3, None)
    assert "inferq_webhook_attempts_in_flight 3" in page
    assert "inferq_webhook_queued{" not in page
