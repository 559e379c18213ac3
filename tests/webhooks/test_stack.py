"""From a submission over HTTP to a verified message, with everything real, as `inferq up` runs it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from inferq.client import AsyncClient, InvalidWebhook, verify_webhook
from inferq.stack import EmbeddedStack, StackOptions, TritonServer
from inferq.stack.asking import ask
from inferq.stack.webhooks import secret_of, secret_path
from tests.support.eventually import eventually
from tests.support.receiver import receiving
from tests.support.servers import StartValkey

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server]

OWN = "whsec_" + "b3duLW93bi1vd24tb3duLW93bi1vd24t"


@pytest.fixture
async def client(start_valkey: StartValkey, engine: TritonServer, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of a stack with one process of each kind."""
    options = StackOptions(
        port=0, data=tmp_path / "data", redis_url=start_valkey().url, engine=engine.grpc_address, webhook_workers=1
    )
    async with EmbeddedStack(options) as stack, AsyncClient(stack.url) as opened:
        yield opened


async def test_messages_of_every_end_arrive_signed(client: AsyncClient, tmp_path: Path) -> None:
    secret = secret_path(tmp_path / "data").read_text().strip()
    ones = np.ones(16, np.float32)
    async with receiving() as receiver:
        done = await client.submit(
            "add_sub",
            {"a": ones, "b": ones},
            webhook=receiver.url,
            webhook_events=["job.started", "job.succeeded"],
            webhook_include_output=True,
        )
        refused = await client.submit(
            "picky", {"input": -np.ones(4, np.float32)}, webhook=receiver.url, webhook_secret=OWN
        )
        in_a_minute = datetime.now(UTC) + timedelta(minutes=1)
        canceled = await client.submit("add_sub", {"a": ones, "b": ones}, webhook=receiver.url, run_at=in_a_minute)
        await client.cancel(canceled)
        await receiver.got(4, timeout_seconds=60)
        told = {}
        for seen in receiver.seen:
            known = OWN if refused.id in seen.id else secret
            message = verify_webhook(seen.body, seen.headers, known)
            told[message["data"]["id"], message["type"]] = message["data"]
    assert set(told) == {
        (done.id, "job.started"),
        (done.id, "job.succeeded"),
        (refused.id, "job.failed"),
        (canceled.id, "job.canceled"),
    }
    assert told[done.id, "job.succeeded"]["output"]["sum"]["data"] == [2.0] * 16
    assert told[refused.id, "job.failed"]["error"]["code"] == "model_rejected"
    assert (await shown_status(client, done.id)) == "delivered"


async def shown_status(client: AsyncClient, job_id: str) -> str:
    """The status of a job's latest message once it is noted."""

    async def is_noted() -> bool:
        return bool((await client.get(job_id)).raw["webhook"]["status"] == "delivered")

    await eventually(is_noted)
    status: str = (await client.get(job_id)).raw["webhook"]["status"]
    return status


async def test_a_tenant_with_a_key_needs_no_secret_and_gets_one_that_is_nobody_elses(
    start_valkey: StartValkey, engine: TritonServer, tmp_path: Path
) -> None:
    """T: Webhook secret: what a tenant knows signs for no other."""
    valkey, data = start_valkey(), tmp_path / "data"
    made = await ask({**os.environ, "INFERQ_REDIS_URL": valkey.url}, "api", "keys", "create", "ci")
    options = StackOptions(port=0, data=data, redis_url=valkey.url, engine=engine.grpc_address)
    ones = np.ones(16, np.float32)
    async with EmbeddedStack(options) as stack, AsyncClient(stack.url, made.output) as client, receiving() as receiver:
        await client.submit("add_sub", {"a": ones, "b": ones}, webhook=receiver.url)
        await receiver.got(1, timeout_seconds=60)
        (seen,) = receiver.seen
    verify_webhook(seen.body, seen.headers, secret_of(data, "ci"))
    for other in ("local", "cd"):
        with pytest.raises(InvalidWebhook):
            verify_webhook(seen.body, seen.headers, secret_of(data, other))


async def test_a_dead_receiver_never_slows_inference(client: AsyncClient) -> None:
    ones = np.ones(16, np.float32)
    async with receiving("hang") as dead, receiving() as alive:
        await asyncio.gather(*(client.submit("add_sub", {"a": ones, "b": ones}, webhook=dead.url) for _ in range(40)))
        job = await client.submit("add_sub", {"a": ones, "b": ones}, webhook=alive.url)
        assert (await client.wait(job, 30)).succeeded
        await alive.got(1, timeout_seconds=30)
        assert len(dead.seen) <= 8, "a host that nothing is known of gets a little at a time"
