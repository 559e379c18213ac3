"""`inferq listen`: a receiver to try webhooks with, which prints the messages that it can verify.

Owns the little HTTP server and what it prints. Must not be used for more than trying: it keeps nothing.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from inferq.client import InvalidWebhook, verify_webhook
from inferq.client.webhooks import WrongSignature, secret_keys
from inferq.commands import screen
from inferq.commands.exit import CommandFailed
from inferq.commands.failure import WRONG_USE
from inferq.stack.webhooks import SECRET_VARIABLE, secret_of

_SHOWN = 100
MOST_BYTES = 16 * 1024 * 1024
READ_SECONDS = 10.0
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_OTHER_SECRET = f"If it is yours, its secret is another: name its --tenant, or set {SECRET_VARIABLE}."


def listen(host: str, port: int, *, secret: str | None, data: Path, tenant: str, as_json: bool) -> None:
    """Receive until Ctrl-C; CommandFailed without a secret, or where the port is taken."""
    known = secret or own_secret(data, tenant)
    try:
        secret_keys(known)
    except ValueError as exc:
        raise CommandFailed(str(exc), f"Correct --secret or {SECRET_VARIABLE}.", status=WRONG_USE) from exc
    try:
        receiver = Receiver((host, port), known, as_json=as_json)
    except OSError as exc:
        raise CommandFailed(f"can't listen on {host} port {port}: {exc.strerror}", "Choose another --port.") from exc
    with receiver:
        address = f"http://{f'[{host}]' if ':' in host else host}:{receiver.server_port}/"
        print(f"listening; submit with --option webhook={address}", file=sys.stderr, flush=True)
        receiver.serve_forever()


def own_secret(data: Path, tenant: str) -> str:
    """This tenant's secret of a stack that was started on this machine; CommandFailed where there can't be one."""
    if not _TENANT.fullmatch(tenant):
        raise CommandFailed(
            f"{tenant!r} is no tenant's name: 1 to 63 letters, digits, '.', '_' and '-'",
            "Tenants are called like their keys; `inferq keys list` shows them.",
            status=WRONG_USE,
        )
    try:
        return secret_of(data, tenant)
    except OSError as exc:
        raise CommandFailed(
            f"there is no secret in {exc.filename}: {exc.strerror}",
            f"Start `inferq up` first, or name its --data; `inferq listen` also takes {SECRET_VARIABLE}.",
        ) from exc


class Receiver(ThreadingHTTPServer):
    """Answers 204 to messages that the secret fits, and 401 to all others."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], secret: str, *, as_json: bool) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.secret = secret
        self.as_json = as_json
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def show(self, message_id: str, message: dict[str, Any]) -> None:
        """Print a message, and whether it came before."""
        with self._lock:
            is_again = message_id in self._seen
            self._seen.add(message_id)
            print(
                json_of(message_id, message) if self.as_json else line_of(message_id, message, is_again=is_again),
                flush=True,
            )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that hangs up is its own business."""


def json_of(message_id: str, message: dict[str, Any]) -> str:
    """A message as JSON on one line; half a character in it, which no terminal takes, as JSON spells it."""
    text = json.dumps({"id": message_id, **message}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode()


def line_of(message_id: str, message: dict[str, Any], *, is_again: bool) -> str:
    """A message on one line."""
    data = message.get("data")
    job = data if isinstance(data, dict) else {}
    words = [_when(message.get("timestamp")), message.get("type"), job.get("id"), job.get("model"), message_id]
    line = " ".join(str(word) for word in words if word and isinstance(word, str | int))
    return _printable(line) + (" (again)" if is_again else "")


def refusal_of(why: InvalidWebhook, message_id: str, body: bytes) -> str:
    """Why a message is refused, and what it claims to be: who sent it is unknown."""
    try:
        message = json.loads(body)
        job_id = str(message["data"]["id"])
    except (ValueError, RecursionError, LookupError, TypeError):
        job_id = ""
    claims = f"claims to be {message_id[:_SHOWN] or 'no message'}" + (f" about job {job_id[:_SHOWN]}" if job_id else "")
    hint = f" {_OTHER_SECRET}" if isinstance(why, WrongSignature) else ""
    return _printable(f"refused: {why}; it {claims}.{hint}")


def _printable(line: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in line)


def _when(timestamp: object) -> str:
    try:
        return screen.when(timestamp) if isinstance(timestamp, str) else ""
    except (ValueError, OverflowError):
        return str(timestamp)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Receiver
    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= MOST_BYTES):
            self.close_connection = True
            self._answer(413 if length.isdigit() else 411)
            return
        body = self.rfile.read(int(length))
        try:
            message = verify_webhook(body, dict(self.headers.items()), self.server.secret)
        except InvalidWebhook as exc:
            print(refusal_of(exc, self.headers.get("webhook-id", ""), body), file=sys.stderr, flush=True)
            self._answer(401)
            return
        try:
            self.server.show(self.headers["webhook-id"], message)
        except RecursionError:  # shallow enough to be read, too deep to be written
            print("refused: the body is too deep", file=sys.stderr, flush=True)
            self._answer(401)
            return
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """What is worth a line has been printed."""
