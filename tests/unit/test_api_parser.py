"""The parser of requests: an offer to change to another protocol changes nothing of what is read."""

from __future__ import annotations

from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.parser import Parser

OFFERS = (b"", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARA\r\n")


class Recorder:
    """What a protocol is told, with bodies in one piece; an end that comes too early is left out."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.requests: list[tuple[bytes, list[bytes], bytes, bool]] = []
        self.parser = Parser(self)

    def on_message_begin(self) -> None:
        self.headers = []
        self.requests.append((b"", [], b"", False))

    def on_url(self, url: bytes) -> None:
        self._add(url=url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._add(headers=[name for name, _ in self.headers if name == b"x-number"])

    def on_body(self, body: bytes) -> None:
        self._add(body=body)

    def on_message_complete(self) -> None:
        if not self.parser.is_cut:
            assert not self.requests[-1][3], "it ends twice"
            self._add(is_done=True)

    def _add(
        self, url: bytes = b"", headers: list[bytes] | None = None, body: bytes = b"", *, is_done: bool = False
    ) -> None:
        before = self.requests[-1]
        self.requests[-1] = (before[0] + url, before[1] + (headers or []), before[2] + body, is_done)


def request(number: int, offer: bytes, body: bytes | None, *, is_chunked: bool) -> bytes:
    """A request with its number as path; a body of None is none at all."""
    head = b"%b /%d HTTP/1.1\r\nX-Number: 1\r\n%b" % (b"GET" if body is None else b"POST", number, offer)
    if body is None:
        return head + b"\r\n"
    if is_chunked:
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


bodies = st.none() | st.binary(max_size=20) | st.just(b"GET /9 HTTP/1.1\r\nUpgrade: h2c\r\n\r\n")


@given(
    st.lists(st.tuples(st.sampled_from(OFFERS), bodies, st.booleans()), min_size=1, max_size=4),
    st.lists(st.integers(0, 600), max_size=6),
)
def test_requests_with_offers_are_read_like_those_without(
    requests: list[tuple[bytes, bytes | None, bool]], cuts: list[int]
) -> None:
    data = b"".join(
        request(number, offer, body, is_chunked=is_chunked) for number, (offer, body, is_chunked) in enumerate(requests)
    )
    recorder = Recorder()
    for start, end in pairwise(sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})):
        recorder.parser.feed_data(data[start:end])
    assert recorder.requests == [
        (b"/%d" % number, [b"x-number"], body or b"", True) for number, (_, body, _) in enumerate(requests)
    ]


def test_what_is_no_request_after_an_offer_is_an_error() -> None:
    recorder = Recorder()
    with pytest.raises(httptools.HttpParserError):
        recorder.parser.feed_data(request(0, OFFERS[1], None, is_chunked=False) + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert recorder.requests[0][3]
