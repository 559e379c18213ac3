"""How a message about a job enters the queue of deliveries: the form of arq's jobs, and what scripts need to write it.

It owns that form and the ids of deliveries, so that the step which ends a job also leaves its message, in one go. It
must not talk to Redis; a test holds it against arq itself.
"""

import re
from typing import Final

from jobs import codec, keys
from jobs.webhook import WebhookEvent

DELIVER: Final = "deliver"
"""The function that arq runs for each delivery; the id of arq's job is the delivery's, and there are no arguments."""

HELD_MS: Final = 7 * 86_400_000
"""How long a message waits for being delivered or given up, with everything that it tells about."""

LISTED_MS: Final = 60 * 86_400_000
"""How long a message that was not delivered stays in its tenant's list of those, which bounds that list."""

_ID: Final = re.compile(r"msg_([0-9a-f]{32})_([a-z]+)", re.ASCII)
_INSTANT_BYTES: Final = 8


def delivery_id(job_id: str, event: WebhookEvent) -> str:
    """The id of the one message about this event of this job; what receivers know as `webhook-id`."""
    return f"{keys.delivery_prefix(job_id)}{event.word}"


def job_of(text: str) -> str | None:
    """The job that a delivery id speaks of, None for what isn't one."""
    match = _ID.fullmatch(text)
    return match[1] if match and f"job.{match[2]}" in set(WebhookEvent) else None


def arq_job(enqueued_ms: int) -> bytes:
    """What arq stores of a job of ours: try, function, arguments and the instant, by our codec."""
    return codec.encode({"t": None, "f": DELIVER, "a": [], "k": {}, "et": enqueued_ms})


def lua_prelude() -> str:
    """The same for scripts: all of it but the instant, which they append as eight bytes, most significant first."""
    head = arq_job(1 << 63)[:-_INSTANT_BYTES]
    escaped = "".join(f"\\{byte:03d}" for byte in head)
    return f"local ARQ_JOB_HEAD = '{escaped}'\nlocal HELD_MS = {HELD_MS}\nlocal LISTED_MS = {LISTED_MS}\n"
