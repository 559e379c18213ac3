"""Plain data to bytes and back: msgpack behind a version number, never pickle.

It owns the version of everything that is stored; it must not know what the data means.
"""

from typing import Any, Final

import msgpack

VERSION: Final = 1
"""Raised when an older reader would misunderstand what is written; such records are left for newer processes."""


class CodecError(ValueError):
    """The bytes are not what `encode` writes."""


class UnknownVersion(CodecError):
    """The bytes were written by a newer version of the product."""


def encode(plain: Any) -> bytes:
    """`plain` (dicts, lists, strings, bytes, numbers, None) as bytes."""
    packed: bytes = msgpack.packb([VERSION, plain])
    return packed


def decode(data: bytes) -> Any:
    """The inverse of `encode`; tuples come back as lists.

    Raises UnknownVersion for a newer version and CodecError for anything else.
    """
    try:
        version, plain = msgpack.unpackb(data)
    except Exception as exc:  # msgpack raises many unrelated types on hostile bytes
        raise CodecError(f"not a stored record: {exc}") from exc
    if version != VERSION:
        raise UnknownVersion(f"record version {version!r}, this process reads {VERSION}")
    return plain
