"""Takes a multipart/form-data body apart, without copying what the parts hold.

It owns the caps on parts and their headers, and which parts are files; filenames are never used for anything.
"""

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError, ParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.intake.limits import MAX_PARTS
from api.problems import Problem, ProblemCode

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MAX_BOUNDARY_LENGTH: Final = 200
_MAX_PREAMBLE_BYTES: Final = 64 * 1024
_LIKE_A_BOUNDARY: Final = re.compile(rb"--([!-~]{1,70})[ \t]*(?:\r?\n|--|$)")
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
    """The parts in order; raises Problem for a body that is cut short, ambiguous or over the caps.

    A preamble, which nobody is meant to read, is passed over.
    """
    if not boundary:
        raise _malformed("its Content-Type names no boundary; let the client's library write that header")
    if len(boundary) > _MAX_BOUNDARY_LENGTH:
        raise _malformed(f"its boundary is longer than {_MAX_BOUNDARY_LENGTH} characters")
    begun_at = _first_boundary(body, boundary.encode("latin-1"))
    body = body[begun_at:] if begun_at else body
    collector = _Collector(memoryview(body))
    try:
        parser = MultipartParser(boundary.encode("latin-1"), collector.callbacks())
        parser.write(body)
    except FormParserError as exc:
        raise _malformed(_in_plain_words(exc, begun_at)) from None
    if not collector.has_ended:
        raise _malformed("its closing boundary is missing")
    return collector.parts


def _first_boundary(body: bytes, boundary: bytes) -> int:
    """Where the first one begins; raises Problem where there is none near the body's begin."""
    line = b"--" + boundary
    if body.startswith(line) and body[len(line) : len(line) + 1] != b"\n":
        return 0
    found = body.find(b"\r\n" + line, 0, _MAX_PREAMBLE_BYTES)
    if found >= 0:
        return found + 2
    if not body:
        raise _malformed("it is empty")
    if body.find(line + b"\n", 0, _MAX_PREAMBLE_BYTES) >= 0:
        raise _malformed("its lines end in LF alone; between and in the heads of parts they must end in CR LF")
    said = boundary[:100].decode("latin-1")
    other = _LIKE_A_BOUNDARY.match(body[:200].lstrip())
    if other:
        raise _malformed(
            f"its Content-Type says the boundary {said!r}, but the body begins with {other[1].decode('ascii')!r}; let "
            "the client's library write that header"
        )
    raise _malformed(f"the boundary {said!r}, which its Content-Type says, is not in it")


def _in_plain_words(exc: FormParserError, begun_at: int) -> str:
    """What the parser met, by the byte of the body; its own words are about its states."""
    if "Maximum header" in str(exc):
        return "the head of a part has too many lines, or too long ones"
    place = f" near byte {begun_at + exc.offset}" if isinstance(exc, ParseError) and exc.offset >= 0 else ""
    rule = "a boundary ends in CR LF, the last one in two hyphens, and each line of a part's head is 'Name: value'"
    return f"it is damaged{place}: {rule}"


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
