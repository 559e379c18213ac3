"""What a body or a part says it is: its media type and the type's parameters.

It owns how that header is read; it must not look at the bytes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from python_multipart.multipart import parse_options_header

MULTIPART: Final = "multipart/form-data"
MULTIPART_FAMILY: Final = "multipart"
JSON: Final = "application/json"
MSGPACK: Final = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
NDJSON: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl")
OCTETS: Final = "application/octet-stream"
NPY: Final = "application/x-npy"
TEXT: Final = "text/plain"
FORM: Final = "application/x-www-form-urlencoded"
SAYS_JSON: Final = "`-H 'Content-Type: application/json'`"
"""What curl needs to be told."""


class MediaType(NamedTuple):
    """`type/subtype` in lower case, '' where none is given, and its parameters."""

    type: str
    parameters: Mapping[str, str]

    @property
    def family(self) -> str:
        """The part before the slash."""
        return self.type.partition("/")[0]


def media_type(header: str) -> MediaType:
    """The media type that a Content-Type header names; total, since nonsense is refused where types are compared."""
    if ";" not in header:
        return MediaType(header.strip().lower(), {})
    name, parameters = parse_options_header(header)
    return MediaType(
        name.decode("latin-1").strip().lower(),
        {key.decode("latin-1"): value.decode("latin-1") for key, value in parameters.items()},
    )
