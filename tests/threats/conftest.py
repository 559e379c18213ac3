"""Applications whose callers have keys, on each kind of Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.conftest import backend, real_backend
from tests.api.harness import Api, Backend, identity_spec, running_api
from tests.threats.tenants import Tenants, open_tenants

__all__ = ["backend", "real_backend"]


@pytest.fixture
async def api(backend: Backend) -> AsyncIterator[Api]:
    """One application that knows two models; there is no key yet."""
    async with running_api(backend, models=[identity_spec(), identity_spec("other")]) as opened:
        yield opened


@pytest.fixture
async def tenants(api: Api) -> AsyncIterator[Tenants]:
    """The same with two tenants, each with a key."""
    async with open_tenants(api) as opened:
        yield opened
