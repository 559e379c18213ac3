"""Signatures of Standard Webhooks 1.0.

Pure: secrets, ids and instants are the caller's.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from jobs.webhook import secret_key

VERSION: Final = "v1"


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`; `timestamp` is Unix seconds."""
    signed = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp, body)
    digest = hmac.digest(secret_key(secret), signed, hashlib.sha256)
    return f"{VERSION},{base64.b64encode(digest).decode('ascii')}"


def signed_headers(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """What a receiver verifies a message by: one signature for each live secret, in their order."""
    if not secrets:
        raise ValueError("a message is never sent without a signature")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, message_id, timestamp, body) for secret in secrets),
    }
