"""An HTTP server that answers what a test tells it, request after request, and remembers what it was asked.

Owns sockets and threads; what an answer means is the test's business.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """An answer; status 0 reads the request and then hangs up without one."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


HANG_UP = Answer(0)


@dataclass
class ScriptedServer:
    """Where it listens and what it saw; `answers` are used up one by one, the last one stays, or made for each."""

    url: str
    answers: list[Answer] | Callable[[Seen], Answer]
    seen: list[Seen] = field(default_factory=list)

    def answer(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        if callable(self.answers):
            return self.answers(seen)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def scripted_server(answers: Sequence[Answer] | Callable[[Seen], Answer]) -> Iterator[ScriptedServer]:
    """A server on a free loopback port for as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = script.answer(Seen(self.command, self.path, dict(self.headers), body))
            if answer.status == 0:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the test knows what was asked."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        script = ScriptedServer(url, answers if callable(answers) else list(answers))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
