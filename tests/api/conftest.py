"""The application on each kind of Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.harness import Api, Backend, identity_spec, running_api
from tests.support.databases import Database


@pytest.fixture(params=["fakeredis", pytest.param("valkey", marks=pytest.mark.server)])
async def backend(request: pytest.FixtureRequest) -> Backend:
    """An empty Redis of each kind."""
    if request.param == "fakeredis":
        return Backend()
    url: str = request.getfixturevalue("valkey_url")
    return await emptied(url)


@pytest.fixture
async def real_backend(valkey_url: str) -> Backend:
    """An empty database of a real server."""
    return await emptied(valkey_url)


@pytest.fixture
async def api(backend: Backend) -> AsyncIterator[Api]:
    """One application that knows the identity model; no worker is alive."""
    async with running_api(backend, models=[identity_spec()]) as opened:
        yield opened


async def emptied(server_url: str) -> Backend:
    """These tests' database of a server, with nothing in it."""
    backend = Backend(Database.API.at(server_url))
    async with running_api(backend) as opened:
        await opened.store.connection.client.flushdb()
    return backend
