"""Query parameters of GET and DELETE, checked one by one: absent, valid, or a 422 that says what it takes.

It must not know what they are for.
"""

import re
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from starlette.requests import Request

from api.problems import Problem, ProblemCode

_NUMBER: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,9}", re.ASCII)
_SECONDS: Final = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_RFC3339: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_TRUTHS: Final = {"true": True, "1": True, "": True, "false": False, "0": False}

Choice = TypeVar("Choice", bound=StrEnum)


def check_names(request: Request, known: Collection[str]) -> None:
    """Raise Problem for a parameter that the path does not take: a misspelled one must not go without effect."""
    if not request.scope["query_string"]:
        return
    strangers = [name for name in request.query_params if name not in known]
    if strangers:
        takes = f"takes {', '.join(known)}" if known else "takes none"
        raise Problem(
            ProblemCode.INVALID_PARAMETER,
            f"There is no query parameter {strangers[0][:100]!r}; this path {takes}.",
            parameter=strangers[0][:100],
            known=list(known),
        )


def text(request: Request, name: str) -> str | None:
    """The parameter as it is, None where it is absent."""
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise invalid(name, "may be given only once")
    return values[0] if values else None


def seconds(request: Request, name: str, most: float) -> float | None:
    """A duration of up to `most` seconds; None where it is absent, or 0."""
    value = text(request, name)
    if value is None:
        return None
    if not _NUMBER.fullmatch(value) or not 0 <= float(value) <= most:
        raise invalid(name, f"must be a number of seconds from 0 to {most:g}")
    return float(value) or None


def whole(request: Request, name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`."""
    value = text(request, name)
    if value is None:
        return default
    if not _WHOLE.fullmatch(value) or not 1 <= int(value) <= most:
        raise invalid(name, f"must be a whole number from 1 to {most}")
    return int(value)


def truth(request: Request, name: str) -> bool:
    """true or false; absent is false, and the bare name is true."""
    value = text(request, name)
    if value is None:
        return False
    if value.lower() not in _TRUTHS:
        raise invalid(name, "must be true or false")
    return _TRUTHS[value.lower()]


def instant(request: Request, name: str) -> int | None:
    """An instant as in RFC 3339, or in Unix seconds; given in Unix milliseconds."""
    value = text(request, name)
    if value is None:
        return None
    try:
        if _SECONDS.fullmatch(value):
            return round(float(value) * 1000)
        moment = datetime.fromisoformat(value.upper()) if _RFC3339.fullmatch(value) else None
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise invalid(name, "must be an instant as in RFC 3339, with its time zone, or in Unix seconds")
    return max(0, round(moment.timestamp() * 1000))


def choice(request: Request, name: str, choices: type[Choice]) -> Choice | None:
    """One of an enumeration's values."""
    value = text(request, name)
    if value is None:
        return None
    try:
        return choices(value)
    except ValueError:
        raise invalid(name, f"must be one of {', '.join(choices)}") from None


def invalid(name: str, rule: str) -> Problem:
    """The problem of a parameter that breaks its rule."""
    return Problem(ProblemCode.INVALID_PARAMETER, f"The query parameter {name} {rule}.", parameter=name)
