"""httptools' parser, gone on with where a request offers to change to another protocol.

We never change, so the offer is to be ignored (RFC 9110, 7.8); httptools stops reading at it. Java's client and
`curl --http2` make it (h2c) with every first request.
"""

from typing import Any

import httptools

_FRAMING = (b"content-length", b"transfer-encoding")


class Parser:
    """Reads one connection's requests and tells `protocol`, whose `headers` are those of the latest head.

    `protocol.on_message_complete` is called too early for a request with such an offer: `is_cut` is true then, and it
    is called again when the body is there.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._parser = httptools.HttpRequestParser(protocol)

    @property
    def is_cut(self) -> bool:
        """Whether the parser has stopped at an offer, behind the head that makes it."""
        return bool(self._parser.should_upgrade())

    def feed_data(self, data: bytes) -> None:
        """Parse; raises httptools.HttpParserError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._go_on()
            self.feed_data(data[exc.args[0] :])

    def _go_on(self) -> None:
        """Read what follows as the body of the request whose head has been told, and then as requests."""
        framing = b"".join(b"%b: %b\r\n" % header for header in self._protocol.headers if header[0] in _FRAMING)
        self._parser = httptools.HttpRequestParser(_Rest(self._protocol))
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


class _Rest:
    """Tells a protocol what it does not know yet: nothing of the first head, and all that follows."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_known = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._protocol.on_headers_complete()
        self._is_known = False
