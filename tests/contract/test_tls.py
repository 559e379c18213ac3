"""T: Redis: TLS with the name checked, mutual TLS, and an ACL user of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from jobs.connection import Call, Connection, StoreMisconfigured, StoreUnavailable
from jobs.settings import SettingsError, StoreSettings, load
from jobs.store import JobStore, Submitted
from tests.support.servers import StartValkey
from tests.support.stores import a_submission

pytestmark = [pytest.mark.anyio, pytest.mark.server]

TLS = Path(__file__).parents[1] / "support" / "scripted_tls"
OURS = TLS / "store.pem"


@asynccontextmanager
async def encrypted(url: str, *, client_authority: Path | None = None) -> AsyncIterator[int]:
    """A port that speaks TLS in front of this server, as `localhost`; with an authority it asks for certificates."""
    upstream = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(OURS, TLS / "store.key")
    if client_authority:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    tasks: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(upstream.hostname, upstream.port)
        pair = (forward(reader, inner_writer), forward(inner_reader, writer))
        tasks.update(asyncio.create_task(each) for each in pair)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def opened(url: str, **files: Any) -> AsyncIterator[JobStore]:
    settings = StoreSettings(redis_url=url, redis_timeout_seconds=2, **files)
    store = JobStore(Connection.from_settings(settings), settings)
    try:
        yield store
    finally:
        await store.close()


async def test_jobs_are_stored_over_tls(valkey_url: str) -> None:
    async with encrypted(valkey_url) as port, opened(f"rediss://localhost:{port}/8", redis_ca_file=OURS) as store:
        assert (await store.submit(a_submission())).word is Submitted.OK


async def test_a_server_of_another_authority_is_not_spoken_to(valkey_url: str) -> None:
    async with encrypted(valkey_url) as port:
        for files in ({}, {"redis_ca_file": TLS / "authority.pem"}):
            async with opened(f"rediss://localhost:{port}/8", **files) as store:
                with pytest.raises(StoreUnavailable, match="certificate"):
                    await store.submit(a_submission())


async def test_a_server_of_another_name_is_not_spoken_to(valkey_url: str) -> None:
    """The client library checks the name only where it is told to."""
    async with encrypted(valkey_url) as port, opened(f"rediss://127.0.0.2:{port}/8", redis_ca_file=OURS) as store:
        with pytest.raises(StoreUnavailable):
            await store.submit(a_submission())
    async with encrypted(valkey_url) as port, opened(f"rediss://0177.1:{port}/8", redis_ca_file=OURS) as store:
        with pytest.raises(StoreUnavailable, match="certificate"):
            await store.submit(a_submission())


async def test_a_server_that_asks_for_our_certificate_gets_it(valkey_url: str) -> None:
    ours = {"redis_cert_file": TLS / "worker.pem", "redis_key_file": TLS / "worker.key"}
    async with encrypted(valkey_url, client_authority=TLS / "authority.pem") as port:
        url = f"rediss://localhost:{port}/8"
        async with opened(url, redis_ca_file=OURS, **ours) as store:
            assert (await store.submit(a_submission())).word is Submitted.OK
        async with opened(url, redis_ca_file=OURS) as store:
            with pytest.raises(StoreUnavailable):
                await store.submit(a_submission())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"REDIS_CA_FILE": str(OURS)}, "INFERQ_REDIS_CA_FILE"),
        ({"REDIS_URL": "rediss://h", "REDIS_CA_FILE": "/no/such/file"}, "INFERQ_REDIS_CA_FILE"),
        ({"REDIS_URL": "rediss://h", "REDIS_KEY_FILE": str(TLS / "worker.key")}, "INFERQ_REDIS_KEY_FILE"),
    ],
)
def test_files_that_make_no_sense_are_named(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"INFERQ_{name}", value)
    with pytest.raises(SettingsError, match=named):
        load(StoreSettings)


ACL = "~inferq:* ~arq:* &inferq:* +@all -@admin -@dangerous +info +scan"


async def test_a_user_with_no_more_than_our_keys_is_enough(start_valkey: StartValkey) -> None:
    """What docs/security.md recommends, and that a wrong password is told from a Redis that is away."""
    server = start_valkey()
    async with opened(server.url) as admin:
        await admin.connection.client.execute_command("ACL", "SETUSER", "inferq", "on", ">secret", *ACL.split())  # type: ignore[no-untyped-call]
    address = server.url.removeprefix("redis://")
    async with opened(f"redis://inferq:secret@{address}") as store:
        await store.connection.check()
        reply = await store.submit(a_submission())
        claim = await store.claim("resnet", 1, worker="w", lease_ms=1000)
        assert [claimed.lease.job_id for claimed in claim.jobs] == [reply.job_id]
        with pytest.raises(StoreMisconfigured):
            await store.connection.run(Call("GET", "somebody-elses"))
    async with opened(f"redis://inferq:wrong@{address}") as store:
        with pytest.raises(StoreMisconfigured, match="credentials"):
            await store.submit(a_submission())
