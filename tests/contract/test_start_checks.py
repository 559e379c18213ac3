"""A server that would lose jobs is refused at start in one line; what can't be found out is a warning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferq.stack import StackEnvironment, ValkeyServer
from jobs.connection import Call, StoreError, StoreMisconfigured, StoreUnavailable
from jobs.settings import StoreSettings
from jobs.store import JobStore
from tests.contract.valkeys import answering, configured, store_at
from tests.support.stores import MODEL, PAYLOAD, a_submission

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture(scope="module")
def server(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A Valkey as the product wants it; tests that change its settings change them back."""
    with configured(stack_environment, tmp_path_factory.mktemp("server"), "user limited on >pw ~* &* +@all") as server:
        yield server


async def _open(url: str, **settings: object) -> list[str]:
    """The warnings of a start."""
    store, warnings = await JobStore.open(StoreSettings(redis_url=url, **settings))  # type: ignore[arg-type]
    await store.close()
    return warnings


def _limited(*rules: str) -> Call:
    """Change what the user `limited` may do."""
    return Call("ACL", "SETUSER", "limited", *rules)


def _as(server: ValkeyServer, user: str) -> str:
    return server.url.replace("redis://", f"redis://{user}:pw@")


async def test_a_durable_primary_that_never_evicts_is_taken_without_a_word(server: ValkeyServer) -> None:
    assert await _open(server.url) == []


@pytest.fixture(scope="module")
def diskless(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A Valkey that keeps everything in memory."""
    with configured(stack_environment, tmp_path_factory.mktemp("diskless"), "appendonly no") as server:
        yield server


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
@pytest.mark.parametrize("may_configure", [True, False])
async def test_a_policy_that_evicts_is_refused(server: ValkeyServer, policy: str, may_configure: bool) -> None:
    """B023: also where CONFIG is not permitted."""
    async with store_at(server.url) as store:
        client = store.connection.client
        await store.connection.run(_limited("+@all" if may_configure else "-config"))
        await client.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(StoreMisconfigured, match=rf"{policy}.*noeviction") as caught:
                await _open(_as(server, "limited"))
        finally:
            await client.config_set("maxmemory-policy", "noeviction")
    assert "\n" not in str(caught.value)


async def test_what_we_may_not_ask_is_a_warning(server: ValkeyServer) -> None:
    """B023: managed servers forbid much; that alone is no reason not to start."""
    async with store_at(server.url) as store:
        await store.connection.run(_limited("+@all", "-info", "-config"))
        (warning,) = await _open(_as(server, "limited"))
        await store.connection.run(_limited("+@all"))
    assert "noeviction" in warning


async def test_a_server_without_a_log_is_a_warning_and_refused_where_jobs_must_be_on_disk(
    diskless: ValkeyServer,
) -> None:
    (warning,) = await _open(diskless.url)
    assert "appendonly" in warning
    with pytest.raises(StoreMisconfigured, match=r"INFERQ_DURABLE.*appendonly"):
        await _open(diskless.url, durable=True)


async def test_jobs_that_must_be_on_disk_want_a_server_that_waits_for_its_disk(server: ValkeyServer) -> None:
    async with store_at(server.url) as store:
        client = store.connection.client
        try:
            await client.config_set("appendfsync", "always")
            assert await _open(server.url, durable=True) == []
            await client.config_set("appendfsync", "no")
            with pytest.raises(StoreMisconfigured, match=r"INFERQ_DURABLE.*appendfsync"):
                await _open(server.url, durable=True)
            await store.connection.run(_limited("+@all", "-config"))
            assert await _open(_as(server, "limited"), durable=True) == []
        finally:
            await client.config_set("appendfsync", "everysec")
    (warning,) = await _open(server.url, durable=True)
    assert "everysec" in warning


async def test_a_cluster_is_refused_in_one_line(stack_environment: StackEnvironment, tmp_path: Path) -> None:
    """B009."""
    with (
        configured(stack_environment, tmp_path / "cluster", "cluster-enabled yes") as server,
        pytest.raises(StoreMisconfigured, match="Cluster") as caught,
    ):
        await _open(server.url)
    assert "\n" not in str(caught.value)


async def test_a_replica_is_refused(stack_environment: StackEnvironment, server: ValkeyServer, tmp_path: Path) -> None:
    replica_of = f"replicaof 127.0.0.1 {server.port}"
    with (
        configured(stack_environment, tmp_path / "replica", replica_of) as replica,
        pytest.raises(StoreMisconfigured, match="replica"),
    ):
        await _open(replica.url)


async def test_a_server_that_does_not_say_its_policy_is_a_warning() -> None:
    async with answering(b"$15\r\nredis_mode:fake\r\n") as url:
        warnings = await _open(url)
    assert any("noeviction" in warning for warning in warnings)


async def test_a_server_that_is_away_is_said_to_be_away() -> None:
    with pytest.raises(StoreUnavailable):
        await _open("redis://127.0.0.1:1/0", redis_timeout_seconds=1.0)


async def test_a_durable_submit_is_on_disk_when_it_returns(stack_environment: StackEnvironment, tmp_path: Path) -> None:
    """The process is killed at once: what was answered is in its log."""
    with configured(stack_environment, tmp_path / "durable", "appendfsync always") as server:
        async with store_at(server.url, durable=True) as store:
            jobs = [a_submission() for _ in range(3)]
            await store.submit_many(jobs)
            server.process.kill()
            server.start()
            claim = await store.claim(MODEL, 10, worker="w", lease_ms=1)
            assert {claimed.lease.job_id for claimed in claim.jobs} == {job.id for job in jobs}
            assert await store.load([job.id for job in jobs]) == [PAYLOAD] * 3


async def test_a_durable_submit_says_when_the_disk_does_not_follow_in_time(server: ValkeyServer) -> None:
    """It is the wait for the disk that ends, with a clear word, not the call by its deadline."""
    async with store_at(server.url, durable=True, redis_timeout_seconds=0.5) as store:
        await store.connection.client.config_set("appendfsync", "no")
        try:
            with pytest.raises(StoreUnavailable, match="disk"):
                await store.submit(a_submission())
        finally:
            await store.connection.client.config_set("appendfsync", "everysec")


async def test_a_server_that_can_not_wait_for_a_disk_refuses_a_durable_submit(diskless: ValkeyServer) -> None:
    async with store_at(diskless.url, durable=True) as store:
        with pytest.raises(StoreError, match="appendonly"):
            await store.submit(a_submission())
