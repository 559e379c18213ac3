"""Which media type a client gets, and which preferences it states: Accept (RFC 9110) and Prefer (RFC 7240).

Pure text in, choice out; what each type looks like is not its business.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

_WAIT: Final = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=$|[,;])', re.IGNORECASE)
_ASYNC: Final = re.compile(r"(?:^|[,;])\s*respond-async\s*(?=$|[,;])", re.IGNORECASE)
_MOST_RANGES: Final = 64


def choose(accept: str | None, offered: Sequence[str]) -> str | None:
    """The offered type that the client likes best, the earlier of equals; None where it accepts none of them."""
    if not accept or not accept.strip():
        return offered[0]
    ranges = [_media_range(part) for part in accept.split(",")[:_MOST_RANGES] if part.strip()]
    best = max(offered, key=lambda media_type: _quality(media_type, ranges))  # the first of equals
    return best if _quality(best, ranges) > 0 else None


def _media_range(text: str) -> tuple[str, float]:
    """A lower-case media range without its parameters, and its weight; a weight that is no number counts as 0."""
    media_range, *parameters = (part.strip() for part in text.split(";"))
    weight = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                weight = float(value)
            except ValueError:
                weight = 0.0
    return media_range.lower(), weight if math.isfinite(weight) else 0.0


def _quality(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    """What the most specific range that covers this type gives it."""
    for covering in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
        weights = [weight for media_range, weight in ranges if media_range == covering]
        if weights:
            return max(weights)
    return 0.0


def preferred_wait(prefer: Sequence[str], most_seconds: float) -> float | None:
    """The seconds of `Prefer: wait=N`, at most `most_seconds`; None where it is absent or makes no sense."""
    found = _WAIT.search(",".join(prefer))
    if found is None or int(found[1]) == 0:
        return None
    return min(float(found[1]), most_seconds)


def prefers_async(prefer: Sequence[str]) -> bool:
    """Whether the client states `Prefer: respond-async`."""
    return _ASYNC.search(",".join(prefer)) is not None
