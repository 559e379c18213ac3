"""T: Errors/logs, T: Auth header, T: Webhook secret: what real processes write at DEBUG, and what problems say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from inferq.client import Client
from inferq.stack import TritonServer
from jobs.apikeys import new_token
from tests.api.processes import api_process, environment
from tests.support.processes import wait_for
from tests.support.servers import StartValkey
from tests.threats.test_keys_command import keys

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.engine]

SECRET = "whsec_" + "c2VjcmV0LXRoYXQtbXVzdC1uZXZlci1iZS1zZWVuISE="
CANARY = "canary-in-a-payload"
HEADER_CANARY = "canary-in-a-header"
PASSWORD = "canary-password"


@contextmanager
def worker(log_path: Path, *arguments: str, **settings: object) -> Iterator[None]:
    """A worker process, ended at the end."""
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers", *arguments], env=environment(settings), stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_logs_hold_no_keys_secrets_or_payloads(start_valkey: StartValkey, engine: TritonServer, tmp_path: Path) -> None:
    valkey = start_valkey(password=PASSWORD)
    token = keys("create", "ci", url=valkey.url).stdout.strip()
    shared: dict[str, Any] = {"redis_url": valkey.url, "log_level": "DEBUG", "webhook_secret": SECRET}
    logs = [tmp_path / name for name in ("api.log", "worker.log", "webhooks.log")]
    with (
        api_process(logs[0], **shared) as process,
        worker(logs[1], "inference", **shared, engine=engine.grpc_address, models="echo_text,picky"),
        worker(logs[2], "webhooks", **shared),
    ):
        wait_for(lambda: httpx.get(f"{process.url}/health/ready").status_code == 200, 60)
        with Client(process.url, token) as client:
            wait_for(lambda: len(client.models()) == 2)
            job = client.wait(client.submit("echo_text", CANARY, metadata={"note": CANARY}), timeout=30)
            assert job.status == "succeeded"
        _provoke(process.url, token)
    text = "".join(path.read_text() for path in logs)
    assert len(text.splitlines()) > 20
    for secret in (token, token[7:], SECRET, SECRET[6:], CANARY, HEADER_CANARY, PASSWORD):
        assert secret not in text
    assert "Traceback" not in text


def _provoke(url: str, token: str) -> None:
    """Requests that are refused in many ways, each with something that must not be written down."""
    headers = {"Authorization": f"Bearer {token}"}
    forged = new_token()
    text = {"Content-Type": "text/plain"}
    answers = [
        httpx.get(f"{url}/jobs", params={"api_key": token}),
        httpx.get(f"{url}/jobs", headers={"Authorization": f"Bearer {forged}"}),
        httpx.get(f"{url}/jobs/{'0' * 32}", headers={**headers, "X-Request-Id": f"a {HEADER_CANARY}"}),
        httpx.post(
            f"{url}/jobs", params={"model": "echo_text"}, content=b"\xff" + CANARY.encode(), headers=headers | text
        ),
        httpx.post(f"{url}/jobs", json={"model": "echo_text", "inputs": CANARY}, headers=headers),
        httpx.post(f"{url}/jobs", content=CANARY * 3, headers={**headers, "Content-Encoding": "gzip"}),
        httpx.post(
            f"{url}/jobs",
            files={"file": (CANARY, CANARY)},
            data={"model": "echo_text", "webhook": f"https://u:{CANARY}@127.0.0.1/"},
            headers={**headers, "Idempotency-Key": HEADER_CANARY},
        ),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500, answer.text
        _says_nothing_of_us(answer)


INTERNALS = re.compile(r"Traceback|File \"|/site-packages/|/work/|\.py\b|redis://|127\.0\.0\.1:|0x[0-9a-f]{6,}")


def _says_nothing_of_us(answer: httpx.Response) -> None:
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert INTERNALS.search(answer.text) is None, answer.text
    assert os.sep + "root" not in answer.text
