"""Api processes as a supervisor starts them.

Owns their life: whoever starts one ends it. Must not know what a test asks of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 30.0


@dataclass
class ApiProcess:
    """A running `python -m api`, and its log."""

    popen: subprocess.Popen[bytes]
    log_path: Path
    url: str = ""

    def lines(self) -> list[dict[str, Any]]:
        """The log so far; every line of it is JSON."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def wait_until_listening(self) -> None:
        """Return once it accepts connections."""
        ends_at = time.monotonic() + START_SECONDS
        while time.monotonic() < ends_at and self.popen.poll() is None:
            for line in self.log_path.read_text().splitlines():
                if '"listening"' in line and line.endswith("}"):
                    self.url = json.loads(line)["url"]
                    return
            time.sleep(0.02)
        raise AssertionError(f"it does not listen: {self.log_path.read_text()}")

    def terminate(self) -> None:
        """Ask it to stop."""
        self.popen.send_signal(signal.SIGTERM)

    def ended(self, timeout_seconds: float) -> int:
        """Its exit status."""
        return self.popen.wait(timeout_seconds)


def environment(settings: Mapping[str, object]) -> dict[str, str]:
    """The environment of an api process: nothing of this one's settings, but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INFERQ_")}
    return kept | {f"INFERQ_{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def api_process(log_path: Path, *, pass_fds: tuple[int, ...] = (), **settings: object) -> Iterator[ApiProcess]:
    """An api process that listens; on a port of its own choice unless told otherwise."""
    with log_path.open("wb") as log:
        popen = subprocess.Popen(
            [sys.executable, "-m", "api"],
            env=environment({"port": 0, **settings}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=pass_fds,
        )
    process = ApiProcess(popen, log_path)
    try:
        process.wait_until_listening()
        yield process
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()


def run_api(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run `python -m api …` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "api", *arguments],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


def connect(url: str) -> socket.socket:
    """A bare connection to a server."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=START_SECONDS)
