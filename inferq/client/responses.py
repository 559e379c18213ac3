"""What the server's answers mean: values, or the exception that the caller should see.

Pure, like `inferq.client.requests`; it must not decide whether something is tried again, only whether it could be.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from inferq.client.errors import (
    NotFound,
    ProblemError,
    RequestRefused,
    ResultExpired,
    ServerFailed,
    ServerUnavailable,
)
from inferq.client.job import Job

TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that a later attempt may not meet."""

_CLASSES: Final[Mapping[int, type[ProblemError]]] = {404: NotFound, 410: ResultExpired}


def retry_after_seconds(response: httpx.Response, now: datetime | None = None) -> float | None:
    """The pause that the server asks for, in seconds or until a date; None where it says nothing usable."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())


def problem(response: httpx.Response, advice: str = "") -> ProblemError:
    """The exception for an answer that is not a success; one from a stranger (a proxy) is told by its status.

    `advice` is the client's own sentence after the server's.
    """
    return _problem(response.status_code, _object(response) or {}, response, advice)


def _problem(status: int, plain: Mapping[str, Any], response: httpx.Response, advice: str = "") -> ProblemError:
    members = {
        name: value for name, value in plain.items() if name not in ("type", "title", "status", "code", "detail")
    }
    if status in TRY_AGAIN:
        kind: type[ProblemError] = ServerUnavailable
    else:
        kind = _CLASSES.get(status, RequestRefused if 400 <= status < 500 else ServerFailed)
    detail = str(plain.get("detail") or f"{response.url.host} answered {status} {response.reason_phrase}".rstrip())
    return kind(
        status,
        str(plain.get("code") or f"http_{status}"),
        str(plain.get("title") or response.reason_phrase or "unknown answer"),
        f"{detail} {advice}".rstrip(),
        request_id=response.headers.get("X-Request-Id", ""),
        members=members,
    )


def job(response: httpx.Response) -> Job:
    """The job that an answer describes; ServerFailed where it describes none."""
    try:
        return Job.from_plain(document(response))
    except (KeyError, TypeError):
        raise not_inferq(response) from None


def entries(response: httpx.Response, count: int) -> list[Job | ProblemError]:
    """What became of each job of a batch, in order; ServerFailed where it is not about so many."""
    try:
        found = [_entry(entry, response) for entry in document(response)["jobs"]]
    except (AttributeError, KeyError, TypeError):
        raise not_inferq(response) from None
    if len(found) != count:
        raise not_inferq(response)
    return found


def _entry(entry: Mapping[str, Any], response: httpx.Response) -> Job | ProblemError:
    return _problem(entry["status"], entry["problem"], response) if "problem" in entry else Job.from_plain(entry["job"])


def document(response: httpx.Response) -> Mapping[str, Any]:
    """The JSON object of an answer; ServerFailed where it is none."""
    plain = _object(response)
    if plain is None:
        raise not_inferq(response)
    return plain


def not_inferq(response: httpx.Response) -> ServerFailed:
    """The exception for a success that no inferq would answer: something else listens there."""
    return ServerFailed(
        response.status_code,
        "not_inferq",
        "The answer makes no sense",
        f"What answers at {response.url} is not inferq.",
        request_id=response.headers.get("X-Request-Id", ""),
        members={},
    )


def _object(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        plain = json.loads(response.content)
    except ValueError:
        return None
    return plain if isinstance(plain, dict) else None
