"""T: Triton link: a whole worker and its settings against an engine that encrypts, and one that asks who calls."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from jobs.registry import Registry
from jobs.state import State
from jobs.store import JobStore
from tests.support.databases import Database
from tests.support.eventually import eventually
from tests.support.lanes import MODEL
from tests.support.scripted_triton import ScriptedTriton, scripted_model
from tests.support.stores import a_submission
from workers.inference import InferenceWorker
from workers.settings import WorkerSettings

pytestmark = [pytest.mark.anyio, pytest.mark.server]

TLS = Path(__file__).parents[1] / "support" / "scripted_tls"
OURS = {"engine_cert_file": TLS / "worker.pem", "engine_key_file": TLS / "worker.key"}
TRUSTED = {"engine_ca_file": TLS / "authority.pem", "engine_server_name": "engine.test"}


def _credentials(*, is_mutual: bool) -> grpc.ServerCredentials:
    pair = ((TLS / "engine.key").read_bytes(), (TLS / "engine.pem").read_bytes())
    authority = (TLS / "authority.pem").read_bytes() if is_mutual else None
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=is_mutual)


async def _worker(valkey_url: str, engine: ScriptedTriton, **settings: Any) -> tuple[JobStore, asyncio.Task[None], Any]:
    url = Database.LANES.at(valkey_url)
    options = WorkerSettings(
        redis_url=url, engine=(engine.address,), engine_tls=True, registry_seconds=0.1, drain_seconds=0, **settings
    )
    store, _ = await JobStore.open(options)
    await store.connection.client.flushdb()
    worker = InferenceWorker(options, store, handle_signals=False)
    return store, asyncio.create_task(worker.main()), worker


@pytest.mark.parametrize("is_mutual", [False, True])
async def test_jobs_run_on_an_engine_that_is_reached_over_tls(valkey_url: str, is_mutual: bool) -> None:
    async with ScriptedTriton([scripted_model(MODEL)], credentials=_credentials(is_mutual=is_mutual)) as engine:
        store, running, worker = await _worker(valkey_url, engine, **TRUSTED, **(OURS if is_mutual else {}))
        submission = a_submission(MODEL)
        await store.submit(submission)

        async def has_succeeded() -> bool:
            found = await store.get(submission.id, submission.tenant)
            return found is not None and found.job.state is State.SUCCEEDED

        await eventually(has_succeeded)
        worker.stop_soon()
        await running
        await worker.close()


@pytest.mark.parametrize(
    ("settings", "is_mutual"),
    [
        ({"engine_server_name": "engine.test"}, False),
        ({"engine_ca_file": TLS / "authority.pem", "engine_server_name": "other.test"}, False),
        (TRUSTED, True),
    ],
    ids=["unknown authority", "wrong name", "no certificate of ours"],
)
async def test_an_engine_that_can_not_be_trusted_or_does_not_trust_us_is_away_and_the_log_says_so(
    valkey_url: str, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], is_mutual: bool
) -> None:
    """Nothing hangs, no request arrives, and the worker can be stopped."""
    caplog.set_level(logging.WARNING)
    async with ScriptedTriton([scripted_model(MODEL)], credentials=_credentials(is_mutual=is_mutual)) as engine:
        store, running, worker = await _worker(valkey_url, engine, **settings)

        async def is_said() -> bool:
            return "can't register models: The engine can't be reached. (INFERQ_ENGINE=" in caplog.text

        await eventually(is_said)
        assert await Registry(store.connection).models() == {}
        assert not engine.calls
        assert "INFERQ_ENGINE_CA_FILE" in caplog.text
        worker.stop_soon()
        async with asyncio.timeout(10):
            await running
        await worker.close()
