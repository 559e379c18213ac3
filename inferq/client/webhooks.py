"""Is this message from the server? The receiver's side of Standard Webhooks, for those who have no library for it.

Owns the check of signature and age. Must not receive anything.
"""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "whsec_"
TOLERANCE_SECONDS: Final = 300.0
_SECRET_BYTES: Final = range(24, 65)


class InvalidWebhook(Exception):
    """The message is not what the server sent, or was sent too long ago; one sentence says what is wrong."""


class WrongSignature(InvalidWebhook):
    """None of the signatures was made with the secret: it is another one's, or the message was changed."""


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secret: str,
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> dict[str, Any]:
    """The message `{type, timestamp, data}`, once it is certain that the owner of the secret has sent it just now.

    `body` is what arrived, byte for byte. `secret` is `whsec_…`, or several with commas between them. `now` is Unix
    seconds. Raises InvalidWebhook, and ValueError for a secret that is none. The same `webhook-id` may come more than
    once: do its work once.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp, signatures = (
            named[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
        )
    except KeyError as exc:
        raise InvalidWebhook(f"the header {exc.args[0]} is missing") from None
    _check_age(timestamp, time.time() if now is None else now, tolerance_seconds)
    signed = b".".join((message_id.encode("latin-1", "replace"), timestamp.encode("ascii"), body))
    expected = [hmac.digest(key, signed, hashlib.sha256) for key in secret_keys(secret)]
    given = [_signature(part) for part in signatures.split()]
    if not any(hmac.compare_digest(one, other) for one in expected for other in given):
        raise WrongSignature("no signature fits the secret")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidWebhook("the body is not JSON that can be read") from None
    if not isinstance(message, dict):
        raise InvalidWebhook("the body is not a message")
    return message


def secret_keys(secret: str) -> list[bytes]:
    """The bytes of one secret, or of several with commas between them; raises ValueError, which holds none of them."""
    encoded = [part.strip().removeprefix(PREFIX) for part in secret.split(",")]
    try:
        keys = [base64.b64decode(part + "=" * (-len(part) % 4), validate=True) for part in encoded if part]
    except (binascii.Error, ValueError):
        raise ValueError(f"a webhook secret is {PREFIX} and base64") from None
    if not keys or any(len(key) not in _SECRET_BYTES for key in keys):
        raise ValueError(
            f"a webhook secret is {PREFIX} and {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} bytes in base64; "
            + (f"this has {' and '.join(str(len(key)) for key in keys)}" if keys else "this is empty")
        )
    return keys


def _check_age(timestamp: str, now: float, tolerance_seconds: float) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        raise InvalidWebhook("webhook-timestamp is not a number of seconds")
    age = now - int(timestamp)
    if abs(age) > tolerance_seconds:
        raise InvalidWebhook(f"it was sent {abs(age):.0f} s {'ago' if age > 0 else 'from now'}; the clocks may differ")


def _signature(part: str) -> bytes:
    version, _, encoded = part.partition(",")
    if version != "v1":
        return b""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""
