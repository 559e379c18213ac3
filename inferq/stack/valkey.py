"""A Valkey server of our own: durable, loopback only, never evicting.

Owns its configuration file, port and data folder. Must not speak the protocol beyond one PING.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from inferq.stack.environment import StackEnvironment
from inferq.stack.loading import Progress
from inferq.stack.ports import LOOPBACK, free_port
from inferq.stack.process import Process, Program
from inferq.stack.readiness import wait_until_ready

PROBE_TIMEOUT_SECONDS = 1.0


class ValkeyServer:
    """Valkey with an append-only file in `data_dir`; what was acknowledged a second ago survives any crash, and with
    `is_durable` whatever was acknowledged.

    `port` 0 picks a free one, kept over restarts. With a `password` clients must present it; it is part of `url`,
    which stands in `url_path` while the server runs, for commands of the same user.
    """

    name = "valkey"

    def __init__(
        self,
        environment: StackEnvironment,
        data_dir: Path,
        *,
        port: int = 0,
        password: str | None = None,
        log_path: Path | None = None,
        is_durable: bool = False,
    ) -> None:
        self.is_durable = is_durable
        self.data_dir = data_dir
        self.port = port or free_port()
        self.password = password
        self.config_path = data_dir / "valkey.conf"
        self.url_path = data_dir / "url"
        self.process = Process(
            Program(
                name=self.name,
                argv=(str(environment.valkey_server), str(self.config_path)),
                environment={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                log_path=log_path or data_dir / "valkey.log",
                umask=0o077,  # what it stores is for its owner alone: jobs' payloads, and secrets that sign messages
            )
        )

    @property
    def url(self) -> str:
        """What INFERQ_REDIS_URL takes."""
        credentials = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{credentials}{LOOPBACK}:{self.port}/0"

    def launch(self) -> None:
        """Start without waiting. Only their owner can read the files, where the password stands too, never in `ps`."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.chmod(0o700)  # it may have been made before, with files that others could read
        _write_secret(self.config_path, self._config_lines())
        _write_secret(self.url_path, [self.url])
        self.process.start()

    def _config_lines(self) -> list[str]:
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f'dir "{self.data_dir.absolute()}"',
            "appendonly yes",
            f"appendfsync {'always' if self.is_durable else 'everysec'}",
            'save ""',
            "rdbcompression no",  # pictures are compressed, and tensors hardly can be
            "auto-aof-rewrite-min-size 512mb",  # jobs come and go: rewriting a small log again and again gains nothing
            "maxmemory-policy noeviction",
        ]
        return [*lines, f'requirepass "{self.password}"'] if self.password else lines

    def is_ready(self) -> bool:
        """Whether it answers PING now, so neither loading its file nor closing."""
        ping = b"PING\r\n" if not self.password else f"AUTH {self.password}\r\nPING\r\n".encode()
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), PROBE_TIMEOUT_SECONDS) as connection:
            connection.sendall(ping + b"QUIT\r\n")
            reply = b""
            while chunk := connection.recv(1024):
                reply += chunk
            return b"+PONG" in reply
        return False

    def progress(self) -> Progress:
        """Nothing: it answers while it reads its file, and not with PONG."""
        return Progress()

    def start(self, timeout_seconds: float = 30.0) -> None:
        """Start and wait until it is ready; StackError with the end of its log when it isn't in time."""
        self.launch()
        wait_until_ready(self, timeout_seconds)

    def stop(self) -> None:
        """Flush and end; legal before start and twice."""
        self.process.stop()
        self.url_path.unlink(missing_ok=True)


def _write_secret(path: Path, lines: list[str]) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
