"""uvicorn's HTTP protocol with an end to patience: how long and how large a head may be, how slowly an answer may be
read, and how many may connect.

It owns those limits, which uvicorn lacks, the order of pipelined answers, and that who only stops sending is answered
still; bodies have their limits in `api.body`.
"""

import asyncio
import fcntl
import ipaddress
import re
import sys
import termios
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, cast
from uuid import uuid4

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api import problems
from api.body import WHOLE
from api.envelope import DEFAULT_HEADERS
from api.hangup import HALF_CLOSED
from api.parser import Parser
from api.problems import Problem, ProblemCode

MAX_HEAD_BYTES: Final = 2 * 1024 * 1024
_MAX_TARGET_BYTES: Final = 65_535
"""The URL parser takes no longer one."""
_HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*", re.ASCII)
_ONE_HOST: Final = "A request has one Host header, with a name or an address and perhaps a port."
_NOWHERE: Final = b"/request-target-too-long"
_MIN_READ_BYTES_PER_SECOND: Final = 1024

_NO_ROOM: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\nToo many connections."
)


class Doorman:
    """Counts the connections of a process, all and by address; those of trusted proxies only among all."""

    def __init__(self, most: int, most_per_address: int, trusted: Sequence[str] = ()) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._trusted = [ipaddress.ip_network(network) for network in trusted]
        self._by_address: Counter[str] = Counter()
        self.connections = 0

    def enter(self, address: str) -> bool:
        """Whether there is room for one more from there; it is counted then."""
        is_over = self._by_address[address] >= self._most_per_address and not self._is_trusted(address)
        if self.connections >= self._most or is_over:
            return False
        self.connections += 1
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """One that was let in is gone."""
        self.connections -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return True  # no network at all: a socket of this machine
        return any(found in network for network in self._trusted)


class _Writer:
    """Writes head and body of an answer together: what is written in one turn of the event loop goes out at its end.

    What is large goes out at once, so that whoever writes it hears in time that nobody reads it. In place of a
    connection's transport, as far as uvicorn uses it for answers.
    """

    __slots__ = ("_held", "_held_bytes", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> None:
        """Send soon, in order."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HIGH_WATER_LIMIT:
            self._flush()

    def close(self) -> None:
        """Send what is left, and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held and not self._transport.is_closing():
            self._transport.writelines(held)


class PatientProtocol(HttpToolsProtocol):
    """One connection, closed where a head is not there `head_seconds` after it, or the connection, began.

    It is cut off where what waits to be sent gets less by less than 1 KiB a second in `reader_seconds`.
    """

    head_seconds = 10.0
    reader_seconds = 20.0
    doorman = Doorman(10_000, 10_000)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser: Any = Parser(self)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._address: str | None = None
        self._running: RequestResponseCycle | None = None
        self._refusal: str | None = None
        self._complaint = ""
        self._half_closed = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head, where there is room for another connection."""
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _Writer(transport, self.loop))
        address = self.client[0] if self.client else ""
        if not self.doorman.enter(address):
            transport.write(_NO_ROOM)
            transport.close()
            return
        self._address = address
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more. uvicorn tells the latest request; the one that is being answered may be another."""
        self._stop_waiting()
        self._stop_watching()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        if self._address is not None:
            self.doorman.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; a head without end is refused."""
        if self._address is None or self._refusal is not None:  # it was not let in, or is answered for the last time
            return
        super().data_received(data)
        if self._head_timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Nothing more will come: answer whole requests, and close. Who waits for a job's end learns of it."""
        self._stop_waiting()
        if not self._owes_answers():
            self.transport.close()  # not before what was answered just now is written
            return False
        self._half_closed.set()
        assert self._running is not None
        if self._refusal is None:  # which closes by itself, once it is said
            last = self.pipeline[0][0] if self.pipeline else self._running
            last.keep_alive = False
        self._running.message_event.set()
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, as a problem like any other, once the requests before it have their answers."""
        msg = self._complaint or msg
        if self._owes_answers():
            self._refusal = msg
            return
        request_id = uuid4().hex
        answer = problems.response(Problem(ProblemCode.INVALID_REQUEST, msg), request_id)
        own = ((b"x-request-id", request_id.encode("ascii")), (b"connection", b"close"))
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *DEFAULT_HEADERS, *own)]
        self.transport.write(b"".join((b"HTTP/1.1 400 Bad Request\r\n", *lines, b"\r\n", bytes(answer.body))))
        self.transport.close()

    def _owes_answers(self) -> bool:
        """Whether a whole request is not answered yet; what came in part is what is refused, and leaves the line."""
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        running = self._running
        is_unanswered = running is not None and not running.response_complete
        return is_unanswered and (running is not self.cycle or not self.cycle.more_body)

    def on_response_complete(self) -> None:
        """An answer is written: the next one's turn, or that of a refusal."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._refusal is not None and not self.transport.is_closing():
            self.send_400_response(self._refusal)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """More waits to be sent than is good; whoever reads it should go on doing so."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """It was read."""
        self._stop_watching()
        super().resume_writing()

    def _watch_reader(self) -> None:
        self._stop_watching()
        self._reader_timer = self.loop.call_later(self.reader_seconds, self._look_at_reader, self._unread_bytes())

    def _look_at_reader(self, left_bytes: int) -> None:
        if left_bytes - self._unread_bytes() < self.reader_seconds * _MIN_READ_BYTES_PER_SECOND:
            self.transport.abort()
        else:
            self._watch_reader()

    def _unread_bytes(self) -> int:
        """What the other side has not confirmed: here, and in the kernel, which takes megabytes and asks again late."""
        socket = self.transport.get_extra_info("socket")
        in_kernel = int.from_bytes(fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return in_kernel + self.transport.get_write_buffer_size()

    def _stop_watching(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is there. A target that can't be parsed for its length leads to a path that does not exist."""
        self._stop_waiting()
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or not _HOST.fullmatch(hosts[0] if hosts else b"") or not (hosts or self._is_old()):
            self._complaint = _ONE_HOST
            raise ValueError(_ONE_HOST)  # the parser makes it an error of its own, and stops
        if len(self.url) > _MAX_TARGET_BYTES:
            self.url = _NOWHERE
        self.scope["state"][HALF_CLOSED] = self._half_closed
        super().on_headers_complete()

    def _is_old(self) -> bool:
        """Whether the request is of an HTTP that knew no Host."""
        return bool(self.parser.get_http_version() < "1.1")

    def on_message_complete(self) -> None:
        """The body is there too; a request that is looked at later need not wait for it."""
        if self.parser.is_cut:
            return
        self.scope["state"][WHOLE] = True
        super().on_message_complete()

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


def patient_protocol(head_seconds: float, doorman: Doorman, reader_seconds: float = 20.0) -> type[PatientProtocol]:
    """The protocol with these limits; uvicorn takes a class and no arguments for it."""
    limits = {"head_seconds": head_seconds, "reader_seconds": reader_seconds, "doorman": doorman}
    return type("PatientProtocol", (PatientProtocol,), limits)
