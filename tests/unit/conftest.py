"""What the tests of the engine's client share: a scripted engine, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_triton import ScriptedTriton, scripted_model
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedTriton]:
    """An engine with the model `echo`, and the decoupled model `many`."""
    async with ScriptedTriton([scripted_model("echo"), scripted_model("many", decoupled=True)]) as engine:
        yield engine


@pytest.fixture
async def client(scripted: ScriptedTriton) -> AsyncIterator[TritonClient]:
    """A client of that engine."""
    async with TritonClient(EngineOptions(addresses=(scripted.address,))) as client:
        yield client
