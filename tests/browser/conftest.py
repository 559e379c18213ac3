"""A real Chromium, a web server for its pages, and the product that the pages call.

Owns how they are started and found. Must not know what a page does.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

from inferq.stack import EmbeddedStack, StackOptions
from inferq.stack.process import Process, Program
from tests.support.photos import photo_bytes
from tests.support.processes import wait_for

PAGES = Path(__file__).with_name("pages")
PHOTO = "/coffee.jpg"
REPORT_SECONDS = 90
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server"),
    "--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Nothing but this machine can be reached; `rebound.example` is a name that a page's owner made lead here."""

Visit = Callable[..., AbstractContextManager[Process]]


class Site:
    """A web server with the pages of this folder; what a page says to `/report` can be read here."""

    def __init__(self) -> None:
        self._reports: Queue[Any] = Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self._reports))
        self._thread = Thread(target=self._server.serve_forever)

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def origin(self) -> str:
        """The origin of its pages."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def report(self) -> Any:
        """What a page says next; an error says that it said nothing."""
        try:
            return self._reports.get(timeout=REPORT_SECONDS)
        except Empty:
            raise AssertionError("the page did not report") from None


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, reports: Queue[Any], *args: Any) -> None:
        self._reports = reports
        super().__init__(*args, directory=str(PAGES))

    def do_GET(self) -> None:
        if self.path != PHOTO:
            super().do_GET()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(photo_bytes("coffee"))

    def do_POST(self) -> None:
        self._reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """The origin that may call the product."""
    with Site() as opened:
        yield opened


@pytest.fixture
def stranger() -> Iterator[Site]:
    """An origin that may not."""
    with Site() as opened:
        yield opened


@pytest.fixture(scope="session")
async def product_url(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Everything that `inferq up` starts, without keys."""
    options = StackOptions(
        port=0,
        data=tmp_path_factory.mktemp("browser"),
        environment=os.environ | {"INFERQ_ALLOW_ORIGINS": site.origin},
    )
    async with EmbeddedStack(options, report=lambda _: None) as stack:
        yield stack.url


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    """Opens an address in a Chromium with an empty profile, for as long as the context lasts."""
    return partial(_visiting, tmp_path)


@pytest.fixture
def rendered(tmp_path: Path) -> Callable[[str], str]:
    """What Chromium has made of a page when nothing more happens in it, as HTML."""

    def render(url: str) -> str:
        with _visiting(tmp_path, url, "--dump-dom", "--virtual-time-budget=30000") as chromium:
            wait_for(lambda: not chromium.is_running, REPORT_SECONDS)
            return chromium.program.log_path.read_text()

    return render


@contextmanager
def _visiting(folder: Path, url: str, *flags: str) -> Iterator[Process]:
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as profile:
        argv = (_chromium(), *FLAGS, f"--user-data-dir={profile}", *flags, url)
        program = Program("chromium", argv, dict(os.environ), folder / "chromium.log", has_children=True)
        process = Process(program)
        process.start()
        try:
            yield process
        finally:
            process.stop()


def _chromium() -> str:
    for name in CHROMIUMS:
        if path := shutil.which(name):
            return path
    raise AssertionError("no Chromium is installed; on Debian: apt-get install chromium")
