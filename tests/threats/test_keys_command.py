"""T: Config, T: Auth header: `inferq keys` on real processes, before there is an api and while there is one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from inferq.client import Client, RequestRefused
from inferq.stack.environment import PROJECT_ROOT
from inferq.stack.folder import lock
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
    return module("inferq.cli", "keys", *arguments, url=url, cwd=cwd)


def module(*arguments: str, url: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m …` to its end."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
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
        (("create", "a", "--scope", "read,fly"), "'fly' is no scope; there are submit, read, cancel, admin"),
        (("create", "a", "--weight", "0"), "weight"),
        (("create", "a", "--scope", ""), "where a name should stand"),
        (("create", "a", "--scope", "read,,submit"), "where a name should stand"),
        (("create", "a", "--models", ""), "it names no model"),
        (("create", "a", "--models", " "), "it names no model"),
        (("create", "a", "--models", "m,,n"), "where a name should stand"),
        (("create", "a", "--models", "m,"), "where a name should stand"),
        (("create", "a", "--models", "m n"), "'m n' is no model's name; commas stand between names"),
        (("create", "a", "--models", "m/n"), "'m/n' is no model's name"),
        (("revoke", "nobody"), "no key called 'nobody'"),
        (("check",), "no API key yet"),
        (("nonsense",), "nonsense"),
    ],
)
async def test_what_can_not_be_is_said(backend: Backend, arguments: tuple[str, ...], complaint: str) -> None:
    ended = keys(*arguments, url=backend.url)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr
    assert keys("list", "--json", url=backend.url).stdout == ""


def test_the_help_names_every_command_and_where_the_keys_are() -> None:
    shown = keys("--help")
    assert shown.returncode == 0
    for word in ("create", "list", "revoke", "check", "--data FOLDER", "INFERQ_REDIS_URL"):
        assert word in shown.stdout
    assert "check" in module("inferq.cli", "--help", url="").stdout


async def test_check_tells_no_key_from_none_that_is_left(backend: Backend) -> None:
    """After the last revocation the service is closed, not open."""
    assert keys("create", "a", url=backend.url).returncode == 0
    assert keys("check", url=backend.url).returncode == 0
    keys("revoke", "a", url=backend.url)
    ended = keys("check", url=backend.url)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "every API key is revoked" in ended.stderr
    assert "no API key yet" not in ended.stderr


async def test_a_redis_that_is_away_is_said_in_a_line() -> None:
    ended = keys("list", url="redis://127.0.0.1:1/0")
    assert ended.returncode == 1
    assert ended.stderr.startswith("inferq keys: Redis does not answer")


async def test_the_redis_of_inferq_up_is_found_in_its_folder(backend: Backend, tmp_path: Path) -> None:
    missing = keys("list", cwd=tmp_path)
    assert missing.returncode == 2
    assert "INFERQ_REDIS_URL" in missing.stderr
    assert not (tmp_path / ".inferq").exists()
    folder = tmp_path / ".inferq" / "valkey"
    folder.mkdir(parents=True)
    running = lock(tmp_path / ".inferq")
    try:
        assert "has no Valkey (yet)" in keys("list", cwd=tmp_path).stderr
        (folder / "url").write_text(backend.url + os.linesep)
        assert keys("create", "found", cwd=tmp_path).returncode == 0
    finally:
        os.close(running)
    assert '"found"' in keys("list", "--json", url=backend.url).stdout


async def test_a_key_can_be_made_before_inferq_up_ever_ran(tmp_path: Path) -> None:
    made = keys("create", "ci", cwd=tmp_path)
    assert (made.returncode, made.stdout[:7]) == (0, "inferq_")
    assert f"No `inferq up` ever ran on {tmp_path / '.inferq'}" in made.stderr
    assert '"ci"' in keys("list", "--json", cwd=tmp_path).stdout
    refused = keys("create", "ci", cwd=tmp_path)
    assert refused.returncode == 2
    assert "ever ran" not in refused.stderr
    assert not (tmp_path / ".inferq" / "valkey" / "url").exists()


async def test_only_the_first_key_says_whose_the_jobs_before_it_are(backend: Backend) -> None:
    first = keys("create", "ci", url=backend.url).stderr
    assert "from now on every call needs one" in first
    assert "--tenant local" in first
    assert "first" not in keys("create", "other", url=backend.url).stderr


async def test_a_first_key_of_the_tenant_of_those_jobs_needs_no_advice(backend: Backend) -> None:
    made = keys("create", "ci", "--tenant", "local", url=backend.url).stderr
    assert "from now on every call needs one" in made
    assert "--tenant" not in made


async def test_the_command_for_compose_makes_a_key_in_the_apis_image(backend: Backend) -> None:
    """What the page says, run as the image's entry point would, on this Redis."""
    page = (PROJECT_ROOT / "docs" / "security.md").read_text()
    said = re.findall(r"^\$ docker compose -f deploy/docker-compose\.yml run --rm (\S+) (.+)$", page, re.MULTILINE)
    ((service, command),) = said
    assert service in yaml.safe_load((PROJECT_ROOT / "deploy" / "docker-compose.yml").read_text())["services"]
    assert 'ENTRYPOINT ["python", "-m"]' in (PROJECT_ROOT / "deploy" / "Dockerfile").read_text()
    made = module(*command.split(), url=backend.url)
    assert (made.returncode, made.stdout[:7]) == (0, "inferq_")
