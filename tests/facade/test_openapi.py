"""The OpenAPI document against the running product: everything that it says, and much that it does not."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.server, pytest.mark.process, pytest.mark.slow]

HERE = Path(__file__).parent
EXAMPLES = 10


@pytest.mark.timeout(300)
async def test_no_answer_breaks_the_document_and_none_is_a_fault(product_url: str) -> None:
    """All of schemathesis' checks on every path: its examples, its edge cases, random bodies and chains of calls."""
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(HERE / "schemathesis.toml"), "run"),
        *(f"{product_url}/openapi.json", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"),
        *("--max-examples", str(EXAMPLES), "--generation-deterministic", "--request-timeout", "30", "--no-color"),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE), "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, printed.decode()[-8000:]
    selected = re.search(rb"Selected: (\d+)/(\d+)\s+Tested: (\d+)", printed)
    assert selected is not None
    assert len(set(selected.groups())) == 1, "a path was left out"


async def test_every_reference_in_the_document_leads_to_a_schema(product_url: str) -> None:
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        document = (await client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    used = set(references(document))
    assert used <= set(schemas)
    assert set(schemas) <= used | {"Output"}


def references(node: Any) -> list[str]:
    """The names of all schemas that a document refers to."""
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if isinstance(node.get("$ref"), str) else []
        return own + [name for value in node.values() for name in references(value)]
    return [name for item in node for name in references(item)] if isinstance(node, list) else []
