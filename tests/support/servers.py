"""Real servers as pytest fixtures: Valkey, and Triton with the project's and the tests' models.

Owns their lifetime: session servers start at first use, factory servers end with their test. Must never skip: a missing
part of the stack is an error that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from inferq.stack import StackEnvironment, TritonServer, ValkeyServer
from inferq.stack.triton import MODELS
from tests.support.models import TEST_MODELS, write_generated_models

QUICK_START = ("--disable-auto-complete-config",)
"""Every test model says all in its `config.pbtxt`; asking 40 Python models to complete it would take 15 s."""

StartValkey = Callable[..., ValkeyServer]
StartEngine = Callable[..., TritonServer]


@pytest.fixture(scope="session")
def stack_environment() -> StackEnvironment:
    """The virtual environment with the server binaries."""
    return StackEnvironment.find()


@pytest.fixture(scope="session")
def valkey(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A real Valkey that the whole session shares; a test that stops one takes `start_valkey`."""
    server = ValkeyServer(stack_environment, tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_url(valkey: ValkeyServer) -> str:
    """Where the session's Valkey listens. Tests share it: use keys or a database of your own, or flush."""
    return valkey.url


@pytest.fixture(scope="session")
def generated_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository that `tests/support/models.py` writes."""
    return write_generated_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def engine(
    stack_environment: StackEnvironment, generated_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """A real Triton with all models, shared by the session; a test that stops one takes `start_engine`."""
    server = TritonServer(
        stack_environment,
        [MODELS, TEST_MODELS, generated_models],
        tmp_path_factory.mktemp("engine"),
        extra_flags=QUICK_START,
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture
def start_valkey(stack_environment: StackEnvironment, tmp_path: Path) -> Iterator[StartValkey]:
    """Starts Valkeys of the test's own: `start_valkey(password=…)`; `stop()` and `start()` keep port and data."""
    with ExitStack() as servers:

        def start(*, password: str | None = None, data_dir: Path | None = None) -> ValkeyServer:
            number = len(list(tmp_path.glob("valkey-*")))
            server = ValkeyServer(stack_environment, data_dir or tmp_path / f"valkey-{number}", password=password)
            servers.callback(server.stop)
            server.start()
            return server

        yield start


@pytest.fixture
def start_engine(stack_environment: StackEnvironment, tmp_path: Path) -> Iterator[StartEngine]:
    """Starts Tritons of the test's own: `start_engine([repository])`; `stop()` and `start()` keep the ports."""
    with ExitStack() as servers:

        def start(
            repositories: Sequence[Path] = (MODELS,), *, extra_flags: Sequence[str] = QUICK_START
        ) -> TritonServer:
            work_dir = tmp_path / f"engine-{len(list(tmp_path.glob('engine-*')))}"
            work_dir.mkdir()
            server = TritonServer(stack_environment, repositories, work_dir, extra_flags=extra_flags)
            servers.callback(server.stop)
            server.start()
            return server

        yield start
