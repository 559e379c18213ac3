"""One deployment for all end-to-end tests: two api processes, two workers, a real Triton and a real Valkey.

Owns how it is put together: each api has its own port, so that a test can say which one it asks, and store and engine
are in the test's hand, so that it can stop them. Must not know what is tested.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from inferq.stack import EmbeddedStack, StackEnvironment, StackOptions, TritonServer, ValkeyServer
from inferq.stack.triton import MODELS
from tests.e2e.deployment import Deployment
from tests.support.models import TEST_MODELS
from tests.support.servers import QUICK_START

WORKER_COUNT = 2


@pytest.fixture(scope="session")
def store(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """The deployment's Valkey."""
    server = ValkeyServer(stack_environment, tmp_path_factory.mktemp("e2e-valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def triton(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """The deployment's engine, with the shipped models and the committed test models."""
    work_dir = tmp_path_factory.mktemp("e2e-triton")
    server = TritonServer(stack_environment, [MODELS, TEST_MODELS], work_dir, extra_flags=QUICK_START)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
async def deployment(
    store: ValkeyServer, triton: TritonServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """Everything running and ready; what its processes go through is written down in `events`."""
    folder: Path = tmp_path_factory.mktemp("e2e")
    events: list[str] = []
    async with AsyncExitStack() as running:
        urls = []
        for number in range(1, WORKER_COUNT + 1):
            options = StackOptions(port=0, data=folder / str(number), redis_url=store.url, engine=triton.grpc_address)
            stack = await running.enter_async_context(EmbeddedStack(options, report=events.append))
            urls.append(stack.url)
        yield await running.enter_async_context(Deployment(store, triton, urls, events))
