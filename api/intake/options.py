"""The options of a submission: their names, which are the same in every form of request, their ranges and defaults.

It turns what a client wrote into fields of a JobRequest; it must not know inputs or outputs.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import orjson

from api.formats import FormatError, json
from api.intake.limits import (
    MAX_DURATION_SECONDS,
    MAX_FAILURES,
    MAX_METADATA_BYTES,
    MAX_METADATA_DEPTH,
    MAX_TIMEOUT_SECONDS,
)
from api.problems import Problem, ProblemCode
from jobs.record import Priority

_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)


def invalid(name: str, wanted: str) -> Problem:
    """The problem with an option that is not what it must be."""
    return Problem(ProblemCode.INVALID_OPTION, f"The option `{name[:100]}` must be {wanted}.", option=name[:100])


def request_fields(options: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """The options as fields of a JobRequest; those that are not given are left to its defaults.

    Values are typed or texts, as the form of the request has them. Raises Problem that names the first wrong option.
    """
    fields: dict[str, Any] = {}
    for name, value in options.items():
        option = _OPTIONS.get(name)
        if option is not None:
            fields[option.field] = option.parse(name, value, now_ms)
    return fields


def check_names(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise Problem for an option that does not exist, so that a typo is never silently without effect."""
    for name in options:
        if name not in known:
            raise _unknown(name, known)


def check_spelling(fields: Iterable[str]) -> None:
    """Raise Problem for a form's field that can only be an option written wrong, where the model is not known."""
    for name in fields:
        if name not in FIELD_NAMES and get_close_matches(name[:100], FIELD_NAMES, 1):
            raise _unknown(name, FIELD_NAMES)


def no_option(name: str, known: tuple[str, ...]) -> str:
    """A sentence: there is no such option, the one that was probably meant, and those that there are."""
    close = get_close_matches(name[:100], known, 1)
    guess = f" Did you mean `{close[0]}`?" if close else ""
    return f"There is no option `{name[:100]}`.{guess} There are {', '.join(known)}."


def _unknown(name: str, known: tuple[str, ...]) -> Problem:
    return Problem(ProblemCode.INVALID_OPTION, no_option(name, known), option=name[:100])


def model_name(options: Mapping[str, Any]) -> str:
    """The model that is asked for; raises Problem where none is."""
    name = options.get("model")
    if name is None or name == "":
        raise Problem(
            ProblemCode.INVALID_OPTION,
            "The request names no `model`: as a member of a document, a field of a form, or for any body in the query.",
            option="model",
        )
    if not isinstance(name, str):
        raise invalid("model", "the name of a model")
    return name


def _version(name: str, value: Any, now_ms: int) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise invalid(name, "a version of the model")
    return value


def _priority(name: str, value: Any, now_ms: int) -> Priority:
    try:
        return Priority(value)
    except ValueError:
        raise invalid(name, f"one of {', '.join(Priority)}") from None


def _metadata(name: str, value: Any, now_ms: int) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value.encode())
        except FormatError:
            raise invalid(name, "a JSON object") from None
    if not isinstance(value, dict) or not _is_json(value, MAX_METADATA_DEPTH):
        raise invalid(name, f"a JSON object, at most {MAX_METADATA_DEPTH} levels deep")
    if len(orjson.dumps(value)) > MAX_METADATA_BYTES:
        raise invalid(name, f"a JSON object of at most {MAX_METADATA_BYTES} bytes")
    return value


def _is_json(value: Any, depth: int) -> bool:
    """Whether JSON can say this, which not all of msgpack can, within so many levels."""
    if isinstance(value, dict):
        return depth > 0 and all(_is_json(member, depth - 1) for member in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_is_json(item, depth - 1) for item in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    return value if type(value) in (int, float) and math.isfinite(value) else None


def _duration(most_seconds: int) -> Callable[[str, Any, int], int]:
    def parse(name: str, value: Any, now_ms: int) -> int:
        seconds = _number(value)
        if seconds is None or not 0.001 <= seconds <= most_seconds:
            raise invalid(name, f"a number of seconds from 0.001 to {most_seconds}")
        return round(seconds * 1000)

    return parse


def _failures(name: str, value: Any, now_ms: int) -> int:
    count = _number(value)
    if count is None or count != int(count) or not 1 <= count <= MAX_FAILURES:
        raise invalid(name, f"an integer from 1 to {MAX_FAILURES}")
    return int(count)


def _run_at(name: str, value: Any, now_ms: int) -> int:
    """An instant in Unix milliseconds; one that has passed means at once, one too far ahead is refused."""
    instant_ms: float | None = None
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            instant_ms = datetime.fromisoformat(value.upper()).timestamp() * 1000
        except (ValueError, OverflowError):
            raise invalid(name, "an instant that exists") from None
    elif (seconds := _number(value)) is not None:
        instant_ms = seconds * 1000
    if instant_ms is None or instant_ms < 0:
        raise invalid(name, "an instant as in RFC 3339, with its time zone, or in Unix seconds")
    if instant_ms > now_ms + MAX_DURATION_SECONDS * 1000:
        raise invalid(name, f"at most {MAX_DURATION_SECONDS} seconds from now")
    return round(instant_ms)


class _Option(NamedTuple):
    """Which field of a JobRequest it sets, and how."""

    field: str
    parse: Callable[[str, Any, int], Any]


_OPTIONS: Final[Mapping[str, _Option]] = {
    "model_version": _Option("model_version", _version),
    "priority": _Option("priority", _priority),
    "queue_ttl_seconds": _Option("queue_ttl_ms", _duration(MAX_DURATION_SECONDS)),
    "timeout_seconds": _Option("timeout_ms", _duration(MAX_TIMEOUT_SECONDS)),
    "max_failures": _Option("max_failures", _failures),
    "run_at": _Option("run_at_ms", _run_at),
    "result_ttl_seconds": _Option("result_ttl_ms", _duration(MAX_DURATION_SECONDS)),
    "metadata": _Option("metadata", _metadata),
}

WEBHOOK_OPTIONS: Final = ("webhook", "webhook_events", "webhook_secret", "webhook_include_output")
"""Those that `api.intake.webhooks` reads, together."""

OPTION_NAMES: Final = ("model", *_OPTIONS, *WEBHOOK_OPTIONS)
"""What may stand as a member of a JSON or msgpack document, beside the protocol's own words."""

FIELD_NAMES: Final = (*OPTION_NAMES, "input", "outputs", "parameters")
"""What may stand in a query or as a form field: there the protocol's words are options too."""
