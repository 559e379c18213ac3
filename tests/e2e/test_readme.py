"""The README's Python examples, run as they stand, print what the README says."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from inferq.stack.environment import PROJECT_ROOT
from tests.e2e.deployment import Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.engine, pytest.mark.server]


EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", (PROJECT_ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=["few", "many"])
async def test_a_python_example_prints_what_the_readme_says(deployment: Deployment, code: str, printed: str) -> None:
    here = code.replace("http://127.0.0.1:8080", deployment.urls[0])
    assert here != code
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", here, cwd=PROJECT_ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert output.decode() == printed
