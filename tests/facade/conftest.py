"""The product in front of an engine with every test model: one api and one worker as processes, for all façade tests.

Owns how it is put together. Must not know what is tested.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import httpx
import pytest

from inferq.stack import EmbeddedStack, StackOptions, TritonServer, ValkeyServer
from tests.support.databases import Database
from tests.support.eventually import eventually
from tests.support.models import CONFIG_TYPES


@pytest.fixture(scope="session")
async def product_url(
    valkey: ValkeyServer, engine: TritonServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """Where the product listens, once it knows every model of the engine and what the engine counted."""
    redis_url = Database.FACADE.at(valkey.url)
    options = StackOptions(
        port=0,
        data=tmp_path_factory.mktemp("facade"),
        redis_url=redis_url,
        engine=engine.grpc_address,
        environment=os.environ | {"INFERQ_REGISTRY_SECONDS": "1"},
    )
    async with (
        EmbeddedStack(options, report=lambda _: None) as stack,
        httpx.AsyncClient(base_url=stack.url, trust_env=False) as client,
    ):

        async def is_complete() -> bool:
            known = (await client.post("/v2/repository/index", json={"ready": True})).json()
            counted = (await client.get("/v2/models/stats")).json().get("model_stats", [])
            return len(known) > len(CONFIG_TYPES) * 2 and len(counted) >= len(known)

        await eventually(is_complete, 30)
        yield stack.url
