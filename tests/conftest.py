"""What every test may ask for: real servers, and asyncio as the one backend of asynchronous tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.servers"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of `pytest.mark.anyio` tests."""
    return "asyncio"
