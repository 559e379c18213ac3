"""Messages arrive although processes are killed and Redis is restarted on their way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobs.connection import StoreError
from jobs.deliveries import Deliveries
from jobs.settings import StoreSettings
from jobs.store import JobStore, Succeed
from jobs.webhook import Webhook, WebhookEvent
from tests.support.eventually import eventually
from tests.support.receiver import Receiver, receiving
from tests.support.servers import StartValkey
from tests.support.stores import a_result, a_submission
from tests.support.webhooks import SECRET, message
from tests.webhooks.test_delivery import is_signed

pytestmark = [pytest.mark.anyio, pytest.mark.server, pytest.mark.process]

MODEL = "resnet"
TIMEOUT_SECONDS = 2.0
LEASE_SECONDS = TIMEOUT_SECONDS + 5

SETTLE_AND_DIE = """
import asyncio, os, signal, sys
from jobs.record import Outcome
from jobs.settings import StoreSettings
from jobs.store import JobStore, Succeed
async def main(url):
    store, _ = await JobStore.open(StoreSettings(redis_url=url))
    claim = await store.claim("resnet", 1000, worker="w", lease_ms=12_000)
    await store.settle([Succeed(job.lease, Outcome()) for job in claim.jobs])
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main(sys.argv[1]))
"""

StartWorker = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Starts webhook workers as a supervisor does."""
    with ExitStack() as stack:

        def start(redis_url: str) -> subprocess.Popen[bytes]:
            own = {name: value for name, value in os.environ.items() if not name.startswith("INFERQ_")}
            settings = {
                "INFERQ_REDIS_URL": redis_url,
                "INFERQ_WEBHOOK_SECRET": SECRET,
                "INFERQ_WEBHOOK_ALLOW": "127.0.0.0/8",
                "INFERQ_WEBHOOK_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
            }
            log = stack.enter_context((tmp_path / f"worker-{time.monotonic_ns()}.log").open("wb"))
            command = (sys.executable, "-m", "workers", "webhooks")
            process = subprocess.Popen(command, env=own | settings, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


async def submitted(store: JobStore, url: str, count: int) -> list[str]:
    """The ids of so many new jobs with a webhook."""
    replies = await store.submit_many([a_submission(webhook=Webhook(url)) for _ in range(count)])
    return [reply.job_id for reply in replies]


async def succeeded(store: JobStore, url: str, count: int) -> list[str]:
    """The ids of so many jobs that have succeeded."""
    ids = await submitted(store, url, count)
    claim = await store.claim(MODEL, count, worker="w", lease_ms=12_000)
    await store.settle([Succeed(job.lease, a_result()) for job in claim.jobs])
    return ids


def messages(ids: list[str]) -> set[str]:
    return {message(job_id, WebhookEvent.SUCCEEDED) for job_id in ids}


async def arrived(receiver: Receiver, expected: set[str], timeout_seconds: float = 60) -> None:
    """Return once all of these messages have come."""

    async def all_there() -> bool:
        return expected <= set(receiver.ids)

    await eventually(all_there, timeout_seconds)


async def test_an_inference_worker_that_dies_right_after_its_settle_leaves_its_messages(
    start_valkey: StartValkey, start_worker: StartWorker
) -> None:
    url = start_valkey().url
    store, _ = await JobStore.open(StoreSettings(redis_url=url))
    async with receiving() as receiver:
        expected = messages(await submitted(store, receiver.url, 50))
        dying = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", SETTLE_AND_DIE, url], timeout=60)
        assert dying.returncode == -signal.SIGKILL
        start_worker(url)
        await arrived(receiver, expected)
        assert len(receiver.seen) == 50
        assert all(map(is_signed, receiver.seen))
    await store.close()


async def test_a_webhook_worker_that_dies_in_mid_delivery_is_followed_by_another_within_20_seconds(
    start_valkey: StartValkey, start_worker: StartWorker
) -> None:
    url = start_valkey().url
    store, _ = await JobStore.open(StoreSettings(redis_url=url))
    async with receiving("hang") as receiver:
        first = start_worker(url)
        (expected,) = messages(await succeeded(store, receiver.url, 1))
        await receiver.got(1, timeout_seconds=60)
        first.kill()
        died_at = time.monotonic()
        receiver.always = "204"
        start_worker(url)
        await receiver.got(2, timeout_seconds=60)
        assert time.monotonic() - died_at < 20
        assert receiver.ids == [expected, expected]
        assert all(map(is_signed, receiver.seen))
    await store.close()


async def test_a_restart_of_redis_in_mid_delivery_loses_no_message_and_no_worker(
    start_valkey: StartValkey, start_worker: StartWorker
) -> None:
    """B008"""
    valkey = start_valkey()
    store, _ = await JobStore.open(StoreSettings(redis_url=valkey.url))
    async with receiving() as receiver:
        worker = start_worker(valkey.url)
        expected = messages(await succeeded(store, receiver.url, 400))
        await receiver.got(20, timeout_seconds=60)
        await asyncio.to_thread(valkey.stop)
        valkey.launch()
        await arrived(receiver, expected)
        again = messages(await _eventually_succeeded(store, receiver.url))
        await arrived(receiver, again)
        assert worker.poll() is None
    await store.close()


async def _eventually_succeeded(store: JobStore, url: str) -> list[str]:
    """One more job, as soon as Redis answers again."""
    ids: list[str] = []

    async def is_done() -> bool:
        try:
            ids[:] = await succeeded(store, url, 1)
        except StoreError:
            return False
        return True

    await eventually(is_done)
    return ids


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_every_terminal_jobs_message_arrives_whatever_falls_over(
    start_valkey: StartValkey, start_worker: StartWorker
) -> None:
    """Inference workers, webhook workers, Redis and the receiver fall over in turn; duplicates have the same id."""
    valkey = start_valkey()
    store, _ = await JobStore.open(StoreSettings(redis_url=valkey.url))
    async with receiving() as receiver:
        workers = [start_worker(valkey.url), start_worker(valkey.url)]
        expected = messages(await succeeded(store, receiver.url, 200))
        await receiver.got(5, timeout_seconds=60)
        workers[0].kill()
        more = await submitted(store, receiver.url, 100)
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", SETTLE_AND_DIE, valkey.url], timeout=60)
        expected |= messages(more)
        await asyncio.to_thread(valkey.stop)
        valkey.launch()
        await receiver.stop()
        workers[1].kill()
        start_worker(valkey.url)
        await receiver.start()
        expected |= messages(await _eventually_succeeded(store, receiver.url))
        await arrived(receiver, expected, 120)
        assert set(receiver.ids) == expected
        assert all(map(is_signed, receiver.seen))
    await store.close()


async def test_a_signal_lets_sends_end_and_takes_no_more(start_valkey: StartValkey, start_worker: StartWorker) -> None:
    url = start_valkey().url
    store, _ = await JobStore.open(StoreSettings(redis_url=url))
    async with receiving("hang") as receiver:
        worker = start_worker(url)
        await succeeded(store, receiver.url, 3)
        await receiver.got(3, timeout_seconds=60)
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, 30) == 0
        assert len(receiver.seen) == 3
        deliveries = Deliveries(store.connection)
        logs = [(await deliveries.of_job(job_id.split("_")[1]))[0].log for job_id in receiver.ids]
        assert [[attempt.fault for attempt in log] for log in logs] == [["timed_out"]] * 3
    await store.close()


def test_a_worker_with_a_wrong_setting_says_which(start_worker: StartWorker) -> None:
    command = (sys.executable, "-m", "workers", "webhooks")
    for name, value in (("SECRET", "hunter2"), ("ALLOW", "https://x"), ("SCHEDULE", "0,-1"), ("SCHEDULE", "0,999999")):
        environment = {**os.environ, f"INFERQ_WEBHOOK_{name}": value}
        refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2
        assert f"INFERQ_WEBHOOK_{name}" in refused.stderr
        assert "hunter2" not in refused.stderr
