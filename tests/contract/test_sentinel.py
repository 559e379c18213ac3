"""How Sentinels are named, and who is believed to be the primary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inferq.stack.ports import LOOPBACK
from jobs.connection import Call, Connection, StoreUnavailable
from jobs.sentinel import PrimaryPool, SentinelUrl
from jobs.settings import SettingsError, StoreSettings
from tests.contract.valkeys import store_at
from tests.support.servers import StartValkey
from tests.support.stores import a_submission

pytestmark = pytest.mark.anyio


def test_a_url_names_sentinels_service_and_database() -> None:
    url = SentinelUrl.parse(
        "redis+sentinel://u:p%40@a:1,b,[::1]:3/mymaster/2?sentinel_password=s&health_check_interval=5"
    )
    assert url.sentinels == (("a", 1), ("b", 26379), ("::1", 3))
    assert (url.service, url.is_encrypted, url.sentinel_options) == ("mymaster", False, {"password": "s"})
    assert url.options == {"username": "u", "password": "p@", "db": 2, "health_check_interval": 5}


def test_tls_and_the_first_database_are_told_apart() -> None:
    url = SentinelUrl.parse("rediss+sentinel://a/mymaster")
    assert (url.sentinels, url.is_encrypted, url.options["db"]) == ((("a", 26379),), True, 0)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:secret@a:1",
        "redis+sentinel://:secret@a:1/",
        "redis+sentinel:///mymaster",
        "redis+sentinel://:secret@a:x/mymaster",
        "redis+sentinel://a:1,/mymaster",
        "redis+sentinel://:secret@a:1/mymaster/first",
        "http://:secret@a/0",
    ],
)
async def test_a_url_that_can_not_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match="INFERQ_REDIS_URL") as caught:
        Connection.from_settings(StoreSettings(redis_url=url))
    assert "secret" not in str(caught.value)


@asynccontextmanager
async def sentinel_naming(port: int) -> AsyncIterator[str]:
    """The URL of a Sentinel that always names this port of loopback as the primary."""
    fields = ("name", "mymaster", "ip", LOOPBACK, "port", str(port), "flags", "master", "num-other-sentinels", "2")
    body = "".join(f"${len(field)}\r\n{field}\r\n" for field in fields)
    reply = f"*1\r\n*{len(fields)}\r\n{body}".encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while header := await reader.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                writer.write(reply if words[0].upper() == b"SENTINEL" else b"+OK\r\n")
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield f"redis+sentinel://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/mymaster/0"
    finally:
        server.close()


@pytest.mark.server
async def test_a_server_that_is_named_but_is_no_primary_is_not_used(start_valkey: StartValkey) -> None:
    """Right after a failover a Sentinel may lag behind; what a replica is given would be lost."""
    server = start_valkey()
    async with sentinel_naming(server.port) as url, store_at(url, redis_timeout_seconds=2) as store:
        await store.submit(a_submission())
        await store.connection.run(Call("REPLICAOF", LOOPBACK, "1"), Call("CLIENT", "KILL", "TYPE", "normal"))
        with pytest.raises(StoreUnavailable, match="not the primary"):
            await store.submit(a_submission())
        async with store_at(server.url) as direct:
            await direct.connection.run(Call("REPLICAOF", "NO", "ONE"))
        await store.submit(a_submission())


@pytest.mark.server
async def test_more_callers_than_connections_wait_their_turn(start_valkey: StartValkey) -> None:
    """B027: as with a plain pool."""
    server = start_valkey()
    async with sentinel_naming(server.port) as url, store_at(url, redis_pool_size=2) as store:
        assert isinstance(store.connection.client.connection_pool, PrimaryPool)
        await asyncio.gather(*(store.connection.run(Call("PING")) for _ in range(200)))
        (clients,) = await store.connection.run(Call("CLIENT", "LIST"))
        assert len(clients.splitlines()) <= 2


async def test_sentinels_that_do_not_answer_are_told_as_an_absence() -> None:
    async with store_at("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster", redis_timeout_seconds=1) as store:
        with pytest.raises(StoreUnavailable, match="mymaster"):
            await store.connection.run(Call("PING"))
