"""T: Config, T: Auth header: `inferq keys` on real processes, before there is an api and while there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from inferq.client import Client, RequestRefused
from tests.api.conftest import emptied
from tests.api.harness import Backend
from tests.api.processes import api_process, environment
from tests.support.processes import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server]


@pytest.fixture
async def backend(valkey_url: str) -> Backend:
    """An empty database."""
    return await emptied(valkey_url)


def keys(*arguments: str, url: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `inferq keys …` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "inferq.cli", "keys", *arguments],
        env=environment({"redis_url": url} if url else {}),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def status(url: str, token: str = "") -> int:
    """What a list of jobs is answered with."""
    return httpx.get(f"{url}/jobs", headers={"Authorization": f"Bearer {token}"} if token else {}).status_code


async def test_the_first_key_closes_a_running_api_and_a_revoked_one_is_refused(
    backend: Backend, tmp_path: Path
) -> None:
    with api_process(tmp_path / "api.log", redis_url=backend.url) as process:
        assert status(process.url) == 200
        made = keys("create", "ci", "--scope", "read,submit", "--weight", "3", url=backend.url)
        assert made.returncode == 0, made.stderr
        token = made.stdout.strip()
        wait_for(lambda: status(process.url) == 401)
        with Client(process.url, token) as client:
            assert list(client.list()) == []
            with pytest.raises(RequestRefused) as refused:
                client.cancel("0" * 32)
            assert refused.value.code == "forbidden"
        assert keys("revoke", "ci", url=backend.url).returncode == 0
        wait_for(lambda: status(process.url, token) == 401, timeout_seconds=10)
    assert token not in process.log_path.read_text()


async def test_keys_are_listed_without_what_they_are(backend: Backend) -> None:
    token = keys("create", "ci", "--models", "a,b", "--tenant", "team", url=backend.url).stdout.strip()
    shown = keys("list", "--json", url=backend.url)
    line = json.loads(shown.stdout)
    assert (line["name"], line["tenant"], line["models"], line["weight"]) == ("ci", "team", ["a", "b"], 1)
    assert line["revoked"] is None
    assert token[7:] not in shown.stdout
    assert "ci" in keys("list", url=backend.url).stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "a:b"), "'a:b'"),
        (("create", "a", "--scope", "fly"), "fly"),
        (("create", "a", "--weight", "0"), "weight"),
        (("revoke", "nobody"), "no key called 'nobody'"),
        (("check",), "no API key yet"),
        (("nonsense",), "nonsense"),
    ],
)
async def test_what_can_not_be_is_said(backend: Backend, arguments: tuple[str, ...], complaint: str) -> None:
    ended = keys(*arguments, url=backend.url)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr


async def test_a_redis_that_is_away_is_said_in_a_line() -> None:
    ended = keys("list", url="redis://127.0.0.1:1/0")
    assert ended.returncode == 1
    assert ended.stderr.startswith("inferq keys: Redis does not answer")


async def test_the_redis_of_inferq_up_is_found_in_its_folder(backend: Backend, tmp_path: Path) -> None:
    missing = keys("list", cwd=tmp_path)
    assert missing.returncode == 2
    assert "INFERQ_REDIS_URL" in missing.stderr
    folder = tmp_path / ".inferq" / "valkey"
    folder.mkdir(parents=True)
    (folder / "url").write_text(backend.url + os.linesep)
    assert keys("create", "found", cwd=tmp_path).returncode == 0
    assert '"found"' in keys("list", "--json", url=backend.url).stdout
