"""A Redis at its memory limit still takes ends and messages, and what is delivered makes room (B022)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inferq.stack import StackEnvironment
from jobs import keys
from jobs.store import Settled, Succeed
from jobs.webhook import DeliveryStatus, Webhook, WebhookEvent
from tests.contract.valkeys import configured
from tests.support.receiver import receiving
from tests.support.stores import a_result
from tests.support.webhooks import message
from tests.webhooks.rig import running_worker

pytestmark = [pytest.mark.anyio, pytest.mark.server]

BIG = b"o" * 100_000


@pytest.fixture(scope="module")
def small_url(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey of this module's own, whose limit a test may set."""
    with configured(stack_environment, tmp_path_factory.mktemp("small"), "appendonly no") as server:
        yield server.url


async def test_jobs_end_and_their_messages_arrive_while_redis_is_full(small_url: str) -> None:
    async with receiving("500") as receiver, running_worker(small_url) as worker:
        rig = worker.rig
        try:
            held = await worker.outbox.succeed(BIG, url=receiver.url, result_ttl_ms=1000)
            await worker.tried(held, 1)
            ids = [await rig.submit(webhook=Webhook(receiver.url)) for _ in range(20)]
            leases = [claimed.lease for claimed in await rig.claim(20)]
            receiver.always = "204"
            await rig.redis.config_set("maxmemory", 1)
            settled = await rig.store.settle([Succeed(lease, a_result()) for lease in leases])
            assert set(settled.values()) == {Settled.OK}
            for job_id in ids:
                assert (await worker.ended(job_id)).status is DeliveryStatus.DELIVERED
            worker.clock.now_ms = (await worker.queued())[message(held, WebhookEvent.SUCCEEDED)]
            await worker.look()
            assert (await worker.ended(held)).status is DeliveryStatus.DELIVERED
            assert await rig.redis.exists(keys.output_key(held, 1)) == 0, "what was held has made room"
            assert len(set(receiver.ids)) == 21
        finally:
            await rig.redis.config_set("maxmemory", 0)
