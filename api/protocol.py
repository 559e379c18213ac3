"""uvicorn's HTTP protocol with an end to patience: how long and how large the head of a request may be.

It owns those two limits, which uvicorn lacks; bodies have theirs in `api.body`.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 2 * 1024 * 1024
_MAX_TARGET_BYTES: Final = 65_535
"""The URL parser takes no longer one."""
_NOWHERE: Final = b"/request-target-too-long"


class PatientProtocol(HttpToolsProtocol):
    """One connection, closed where a head is not there `head_seconds` after it, or the connection, began."""

    head_seconds = 15.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; a head without end is refused."""
        super().data_received(data)
        if self._head_timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is there. A target that can't be parsed for its length leads to a path that does not exist."""
        self._stop_waiting()
        if len(self.url) > _MAX_TARGET_BYTES:
            self.url = _NOWHERE
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._stop_waiting()
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        """Close; but a pipelined head does not cost the requests before it their answers."""
        if getattr(self.cycle, "response_complete", True):  # there is no cycle before the first head
            self.transport.close()


def patient_protocol(head_seconds: float) -> type[PatientProtocol]:
    """The protocol with this limit; uvicorn takes a class and no arguments for it."""
    return type("PatientProtocol", (PatientProtocol,), {"head_seconds": head_seconds})
