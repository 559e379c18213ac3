"""What the embedded stack tells its processes about webhooks: secrets of its own, and that loopback may be reached.

Owns the files that keep the secrets over restarts: one for the tenant `local`, and one from which every other tenant's
is derived, so that no tenant can sign what looks like another's. Must not send or verify anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

SECRET_VARIABLE = "INFERQ_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
ALLOW_VARIABLE = "INFERQ_WEBHOOK_ALLOW"
PREFIX = "whsec_"
LOCAL = "local"
"""The tenant of all who come without a key."""
LOOPBACK = "localhost,127.0.0.0/8,::1"
SECRET_BYTES = 32


def secret_path(data: Path) -> Path:
    """Where the stack of this data folder keeps the secret of the tenant `local`."""
    return data / "webhook-secret"


def tenants_secret_path(data: Path) -> Path:
    """Where it keeps what the secrets of all other tenants are derived from."""
    return data / "webhook-secret-of-tenants"


def secret_of(data: Path, tenant: str) -> str:
    """What the messages of this tenant's jobs are signed with; FileNotFoundError where no stack ever ran."""
    if tenant == LOCAL:
        return secret_path(data).read_text().strip()
    master = base64.b64decode(tenants_secret_path(data).read_text().strip().removeprefix(PREFIX))
    return PREFIX + base64.b64encode(hmac.digest(master, tenant.encode(), hashlib.sha256)).decode("ascii")


def webhook_environment(data: Path, environment: Mapping[str, str], *, is_local: bool) -> dict[str, str]:
    """The variables that `environment` lacks; the secrets are made at the first start on a data folder.

    Loopback may be reached only where nobody else can ask for it (`is_local`).
    """
    lacking: dict[str, str] = {}
    if SECRET_VARIABLE not in environment:
        lacking[SECRET_VARIABLE] = f"{_secret(secret_path(data))},*={_secret(tenants_secret_path(data))}"
    if is_local and ALLOW_VARIABLE not in environment:
        lacking[ALLOW_VARIABLE] = LOOPBACK
    return lacking


def _secret(path: Path) -> str:
    """The secret in this file, for its owner's eyes only. Called while the folder is locked."""
    if not path.exists():
        secret = PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode("ascii")
        draft = path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    return path.read_text().strip()
