"""Plain data to bytes and back: msgpack behind a version number, never pickle.

It owns the version of everything that is stored; it must not know what the data means.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgpack

VERSION: Final = 1
"""Raised when an older reader would misunderstand what is written; such records are left for newer processes."""


class CodecError(ValueError):
    """The bytes are not what `encode` writes."""


class UnknownVersion(CodecError):
    """The bytes were written by a newer version of the product."""


def encode(plain: Any) -> bytes:
    """`plain` (dicts, lists, strings, bytes, numbers, None) as bytes.

    Raises CodecError for what has no stored form: integers beyond 64 bits, half a surrogate pair, foreign types.
    """
    try:
        packed: bytes = msgpack.packb([VERSION, plain])
    except (OverflowError, TypeError, ValueError) as exc:
        raise CodecError(f"can't be stored: {exc}") from exc
    return packed


def decode(data: bytes) -> Any:
    """The inverse of `encode`; tuples come back as lists.

    Raises UnknownVersion for a newer version and CodecError for anything else.
    """
    try:
        version, plain = msgpack.unpackb(data)
    except Exception as exc:  # msgpack raises many unrelated types on hostile bytes
        raise CodecError(f"not a stored record: {exc}") from exc
    if type(version) is not int:
        raise CodecError("not a stored record: it has no version")
    if version != VERSION:
        raise UnknownVersion(f"record version {version!r}, this process reads {VERSION}")
    return plain


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns what goes wrong while plain data is read as `what` into a CodecError: it is not what was written."""
    try:
        yield
    except CodecError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise CodecError(f"a damaged {what}: {exc!r}") from exc
