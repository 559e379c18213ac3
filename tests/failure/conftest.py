"""One database for all tests of this folder, emptied for each; a test that stops its Valkey starts one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.failure.site import Site, site
from tests.support.databases import Database

OpenSite = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture
async def redis_url(valkey_url: str) -> str:
    """An empty database of the session's Valkey."""
    url = Database.FAILURE.at(valkey_url)
    redis = Redis.from_url(url)
    await redis.flushdb()
    await redis.aclose()
    return url


@pytest.fixture
def open_site(redis_url: str, tmp_path: Path) -> OpenSite:
    """`open_site([models], **settings)` on the shared Valkey."""
    return partial(site, redis_url, tmp_path)


@pytest.fixture
async def here(open_site: OpenSite) -> AsyncIterator[Site]:
    """A site with one api and one worker, ready."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_site())
        worker = opened.worker()
        await opened.api()
        await opened.until_served(worker)
        yield opened
