"""The receiver's side: verifying in Python, and `inferq listen`."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from inferq.client import InvalidWebhook, verify_webhook
from inferq.client.webhooks import WrongSignature
from inferq.commands.exit import CommandFailed
from inferq.commands.listen import own_secret, refusal_of
from inferq.stack.webhooks import secret_path, webhook_environment
from jobs.keys import is_name
from jobs.webhook import secret_key, tenant_secrets
from tests.support.webhooks import SECRET
from workers.webhooks.signing import signature, signed_headers

NOW = 1_700_000_000
BODY = json.dumps({"type": "job.succeeded", "timestamp": "2023-11-14T22:13:20.000Z", "data": {"id": "j", "model": "m"}})
OTHER = "whsec_" + "b3RoZXIt" * 6


def headers(*secrets: str, timestamp: int = NOW, body: str = BODY) -> dict[str, str]:
    return signed_headers(secrets or (SECRET,), "msg_1", timestamp, body.encode())


def test_a_signature_is_the_one_of_the_standard() -> None:
    """The vector of the specification's reference implementations."""
    secret, message_id, timestamp = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(secret, message_id, timestamp, b'{"test": 2432232314}') == expected
    with pytest.raises(ValueError, match="without a signature"):
        signed_headers((), message_id, timestamp, b"")


@pytest.mark.parametrize("length", [24, 32, 64])
def test_signatures_agree_with_the_standards_library(length: int) -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(length))).decode()
    theirs = Verifier(secret).sign("msg_", datetime.fromtimestamp(NOW, UTC), BODY)
    assert signature(secret, "msg_", NOW, BODY.encode()) == theirs
    assert secret_key(secret.rstrip("=")) == bytes(range(length)), "padding may be left out"


def test_what_is_signed_is_verified_with_either_live_secret() -> None:
    """Rotation: the sender signs with both, the receiver may know either or both."""
    both = headers(SECRET, OTHER)
    for known in (SECRET, OTHER, f"{OTHER},{SECRET}", f" {SECRET} , {OTHER} "):
        assert verify_webhook(BODY.encode(), both, known, now=NOW)["data"]["id"] == "j"
    assert verify_webhook(BODY.encode(), {name.title(): value for name, value in both.items()}, SECRET, now=NOW)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"webhook-id": "msg_2"}, "no signature"),
        ({"webhook-timestamp": str(NOW - 1)}, "no signature"),
        ({"webhook-timestamp": str(NOW - 301)}, "301 s ago"),
        ({"webhook-timestamp": str(NOW + 301)}, "from now"),
        ({"webhook-timestamp": "soon"}, "not a number"),
        ({"webhook-signature": "v1,AAAA"}, "no signature"),
        ({"webhook-signature": "v1,ä v1 v1a,x"}, "no signature"),
        ({"webhook-signature": ""}, "no signature"),
        ({"webhook-id": None}, "webhook-id is missing"),
    ],
)
def test_what_was_changed_on_its_way_is_refused(change: dict[str, str | None], why: str) -> None:
    """T: Webhook forging/replay."""
    changed = {name: value for name, value in {**headers(), **change}.items() if value is not None}
    with pytest.raises(InvalidWebhook, match=why):
        verify_webhook(BODY.encode(), changed, SECRET, now=NOW)


def test_a_changed_body_another_secret_or_another_version_is_refused() -> None:
    with pytest.raises(InvalidWebhook):
        verify_webhook(BODY.encode() + b" ", headers(), SECRET, now=NOW)
    with pytest.raises(InvalidWebhook):
        verify_webhook(BODY.encode(), headers(), OTHER, now=NOW)
    only_v2 = {**headers(), "webhook-signature": headers()["webhook-signature"].replace("v1,", "v2,")}
    with pytest.raises(InvalidWebhook):
        verify_webhook(BODY.encode(), only_v2, SECRET, now=NOW)
    for body in ("[1]", "x"):
        with pytest.raises(InvalidWebhook, match="the body"):
            verify_webhook(body.encode(), headers(body=body), SECRET, now=NOW)
    with pytest.raises(ValueError, match="base64"):
        verify_webhook(BODY.encode(), headers(), "whsec_!", now=NOW)


@contextmanager
def listening(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`inferq listen` and its address."""
    command = [sys.executable, "-m", "inferq.cli", "listen", "--port", "0", *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("INFERQ_")}
    process = subprocess.Popen(
        command, env={**own, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        told = re.search(r"webhook=(http://\S+)", process.stderr.readline())
        assert told is not None
        yield process, told[1]
    finally:
        process.kill()
        process.communicate()


def post(url: str, *, secret: str = SECRET, body: str = BODY) -> int:
    """The status for a message that is signed just now."""
    signed = signed_headers((secret,), "msg_1", int(time.time()), body.encode())
    return httpx.post(url, content=body, headers=signed, timeout=20).status_code


@pytest.mark.process
def test_listen_prints_what_it_can_verify_and_refuses_the_rest() -> None:
    with listening("--secret", SECRET) as (process, url):
        assert [post(url), post(url, secret=OTHER), post(url)] == [204, 401, 204]
        assert httpx.post(url, content=b"{}").status_code == 401
        assert process.stdout is not None
        assert process.stderr is not None
        first, again = process.stdout.readline(), process.stdout.readline()
        assert first.split()[-4:] == ["job.succeeded", "j", "m", "msg_1"]
        assert again.endswith("msg_1 (again)\n")
        assert process.stderr.readline() == (
            "refused: no signature fits the secret; it claims to be msg_1 about job j. If it is yours, its secret is "
            "another: name its --tenant, or set INFERQ_WEBHOOK_SECRET.\n"
        )
        assert process.stderr.readline() == "refused: the header webhook-id is missing; it claims to be no message.\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff", b"5", b"[]", b'{"data":5}', b'{"data":{"id":"\\u001b[2J"}}'])
def test_whatever_a_refused_message_claims_is_one_line_of_text(body: bytes) -> None:
    line = refusal_of(WrongSignature("it does not fit"), "\x1bmsg" * 1000, body)
    assert line.isprintable()
    assert len(line) < 500


@pytest.mark.process
@pytest.mark.parametrize("secret", ["bad", "whsec_", ",", "team=whsec_" + "A" * 32, "whsec_" + "A" * 200])
def test_listen_refuses_a_secret_that_no_server_has(secret: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "inferq.cli", "listen", "--port", "0"],
        env={**os.environ, "INFERQ_WEBHOOK_SECRET": secret},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("inferq: a webhook secret is whsec_ and ")
    assert "INFERQ_WEBHOOK_SECRET" in ended.stderr


@pytest.mark.parametrize("name", ["bad name", "", "-a", "a:b", "a" * 64, "é", "a\n", "team", "a.b_c-d", "9" * 63])
def test_only_what_may_be_a_tenant_has_a_secret(tmp_path: Path, name: str) -> None:
    webhook_environment(tmp_path, {}, is_local=True)
    if is_name(name):
        assert own_secret(tmp_path, name).startswith("whsec_")
        return
    with pytest.raises(CommandFailed, match="no tenant's name"):
        own_secret(tmp_path, name)


ODD_BODIES = ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "9" * 100_000, "[]", "", "\ud800"]
SIGNED_AND_ODD = {
    '{"type":5,"timestamp":7,"data":[]}': "5 msg_1",
    '{"type":"t","timestamp":"soon","data":{}}': "soon t msg_1",
    '{"type":"t","timestamp":"9999-12-31T23:59:59-14:00"}': "9999-12-31T23:59:59-14:00 t msg_1",
    '{"type":{"a":1},"timestamp":{"b":2},"data":{"id":[],"model":9}}': "9 msg_1",
    '{"type":"\\ud800"}': "? msg_1",
}


@pytest.mark.parametrize("body", ODD_BODIES, ids=lambda body: body[:5])
def test_a_signed_body_that_is_no_message_is_refused_as_one(body: str) -> None:
    raw = body.encode("utf-8", "surrogatepass")
    with pytest.raises(InvalidWebhook, match=r"JSON|message"):
        verify_webhook(raw, signed_headers((SECRET,), "msg_1", NOW, raw), SECRET, now=NOW)


@pytest.mark.process
@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_listen_answers_and_prints_whatever_is_signed(arguments: tuple[str, ...]) -> None:
    with listening("--secret", SECRET, *arguments) as (process, url):
        assert process.stdout is not None
        assert process.stderr is not None
        for body in ODD_BODIES[:3]:
            assert post(url, body=body) == 401
            assert process.stderr.readline().startswith("refused: the body is ")
        for body, shown in SIGNED_AND_ODD.items():
            assert post(url, body=body) == 204
            line = process.stdout.readline().removesuffix("\n").removesuffix(" (again)")
            assert json.loads(line) == {"id": "msg_1", **json.loads(body)} if arguments else line == shown
        for depth in range(900, 1000, 4):
            status = post(url, body='{"a":' * depth + "0" + "}" * depth)
            told = process.stdout if status == 204 else process.stderr
            assert (status, told.readline().startswith("refused: ")) in {(204, False), (401, True)}


@pytest.mark.process
def test_listen_takes_the_secret_of_a_stack_on_this_machine(tmp_path: Path) -> None:
    made = webhook_environment(tmp_path, {}, is_local=True)
    assert stat.S_IMODE(secret_path(tmp_path).stat().st_mode) == 0o600
    with listening("--data", str(tmp_path), "--json") as (process, url):
        assert post(url, secret=made["INFERQ_WEBHOOK_SECRET"].partition(",")[0]) == 204
        assert process.stdout is not None
        shown = json.loads(process.stdout.readline())
        assert shown == {"id": "msg_1", **json.loads(BODY)}


@pytest.mark.process
def test_the_secret_of_a_tenant_is_printed_and_listened_with_as_it_is_signed_with(tmp_path: Path) -> None:
    made = tenant_secrets(webhook_environment(tmp_path, {}, is_local=True)["INFERQ_WEBHOOK_SECRET"])
    command = [sys.executable, "-m", "inferq.cli", "webhook-secret", "--data", str(tmp_path)]
    for tenant in ("local", "ci"):
        printed = subprocess.run([*command, tenant], capture_output=True, text=True, timeout=60, check=True)
        assert (printed.stdout.strip(),) == made[tenant]
    with listening("--data", str(tmp_path), "--tenant", "ci") as (_, url):
        assert [post(url, secret=made[tenant][0]) for tenant in ("ci", "local", "cd")] == [204, 401, 401]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [((), 1, "inferq up"), (("--tenant", "ci"), 1, "inferq up"), (("--secret", "whsec_!"), 2, "base64")],
)
def test_listen_without_a_usable_secret_says_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], status: int, why: str
) -> None:
    command = [sys.executable, "-m", "inferq.cli", "listen", "--data", str(tmp_path), *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("INFERQ_")}
    refused = subprocess.run(command, env=own, capture_output=True, text=True, timeout=60)
    assert refused.returncode == status
    assert why in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.process
def test_listen_outlives_requests_that_are_no_messages() -> None:
    with listening("--secret", SECRET) as (_, url):
        assert httpx.get(url, timeout=20).status_code == 501
        host, _, port = url.removeprefix("http://").rstrip("/").rpartition(":")
        for length, status in (("99999999999", b"413"), ("-1", b"411"), ("ten", b"411"), ("100", b"")):
            with socket.create_connection((host, int(port)), 10) as connection:
                connection.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{{".encode())
                if status:
                    assert connection.recv(1024).split()[1] == status
        assert post(url) == 204


def test_a_stack_keeps_its_secret_and_takes_a_given_one(tmp_path: Path) -> None:
    made = webhook_environment(tmp_path, {}, is_local=True)
    own, others = made["INFERQ_WEBHOOK_SECRET"].split(",*=")
    assert len(secret_key(own)) == len(secret_key(others)) == 32
    assert own != others
    assert made["INFERQ_WEBHOOK_ALLOW"] == "localhost,127.0.0.0/8,::1"
    assert webhook_environment(tmp_path, {}, is_local=True) == made
    assert "INFERQ_WEBHOOK_ALLOW" not in webhook_environment(tmp_path, {}, is_local=False)
    given = {"INFERQ_WEBHOOK_SECRET": SECRET, "INFERQ_WEBHOOK_ALLOW": ""}
    assert webhook_environment(tmp_path / "other", given, is_local=True) == {}
    assert not secret_path(tmp_path / "other").exists()
