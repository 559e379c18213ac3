"""What every test may ask for: real servers, and asyncio as the one backend of asynchronous tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest_plugins = ["tests.support.servers"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of `pytest.mark.anyio` tests."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """One event loop for the whole session: gRPC's threads may report to a test's loop after the test."""
    yield  # noqa: PT022 - the loop lasts as long as the fixture is open
