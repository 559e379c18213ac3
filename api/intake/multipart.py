"""Takes a multipart/form-data body apart, without copying what the parts hold.

It owns the caps on parts and their headers, and which parts are files; filenames are never used for anything.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.intake.limits import MAX_PARTS
from api.problems import Problem, ProblemCode

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MAX_BOUNDARY_LENGTH: Final = 200
_PLAIN_ENCODINGS: Final = ("", "7bit", "8bit", "binary")

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # what it would say is answered to the client instead


@dataclass(frozen=True, slots=True)
class Part:
    """One part; `content_type` is '' where the part says none."""

    name: str
    is_file: bool
    content_type: str
    data: memoryview


def parse_multipart(body: bytes, boundary: str) -> list[Part]:
    """The parts in order; raises Problem for a body that is cut short, ambiguous or over the caps."""
    if not 0 < len(boundary) <= _MAX_BOUNDARY_LENGTH:
        raise _malformed(f"its boundary is missing or longer than {_MAX_BOUNDARY_LENGTH} characters")
    collector = _Collector(memoryview(body))
    try:
        parser = MultipartParser(boundary.encode("latin-1"), collector.callbacks())
        parser.write(body)
    except FormParserError as exc:
        raise _malformed(str(exc).rstrip(".")) from None
    if not collector.has_ended:
        raise _malformed("its closing boundary is missing")
    return collector.parts


class _Collector:
    """Follows the parser through the body and keeps where each part's data lies."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._headers: dict[str, str] = {}
        self._field = b""
        self._value = b""
        self._start = self._end = 0
        self.parts: list[Part] = []
        self.has_ended = False

    def callbacks(self) -> "MultipartCallbacks":
        """What the parser is to call."""
        return {
            "on_part_begin": self._begin_part,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_header_field": self._add_field,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_end": self._finish,
        }

    def _begin_part(self) -> None:
        if len(self.parts) == MAX_PARTS:
            raise _malformed(f"it has more than {MAX_PARTS} parts")
        self._headers = {}
        self._start = self._end = 0

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        name = self._field.decode("latin-1").lower()
        if name in self._headers:
            raise _malformed(f"a part has the header {name} twice")
        self._headers[name] = self._value.decode("latin-1").strip()
        self._field = self._value = b""

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        """The whole body is given to the parser at once, so a part's data is one stretch of it."""
        if self._start == self._end:
            self._start = start
        self._end = end

    def _end_part(self) -> None:
        disposition, parameters = parse_options_header(self._headers.get("content-disposition"))
        if disposition.lower() != b"form-data" or not parameters.get(b"name"):
            raise _malformed("a part has no name")
        if self._headers.get("content-transfer-encoding", "").lower() not in _PLAIN_ENCODINGS:
            raise _malformed("a part has a Content-Transfer-Encoding; send its bytes as they are")
        try:
            name = parameters[b"name"].decode()
        except UnicodeDecodeError:
            raise _malformed("a part has a name that is not UTF-8") from None
        content_type = self._headers.get("content-type", "")
        self.parts.append(Part(name, b"filename" in parameters, content_type, self._body[self._start : self._end]))

    def _finish(self) -> None:
        self.has_ended = True


def _malformed(why: str) -> Problem:
    return Problem(ProblemCode.MALFORMED_BODY, f"The multipart body can't be used: {why}.")
