"""A Triton server of our own, from the binary in the stack environment.

Owns the backend folder it is given, its ports, flags and shared-memory names. Must not call a model.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from inferq.stack.environment import PROJECT_ROOT, StackEnvironment
from inferq.stack.errors import StackError
from inferq.stack.flags import completed, may_fail
from inferq.stack.loading import STARTING, Progress, progress_of, unread_models
from inferq.stack.numpy2 import adapted_to_numpy2
from inferq.stack.ports import LOOPBACK, free_port
from inferq.stack.process import Process, Program
from inferq.stack.readiness import http_get, wait_until_ready

MODELS = PROJECT_ROOT / "deploy" / "triton" / "models"
BACKENDS = PROJECT_ROOT / "deploy" / "triton" / "backends"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory appears on Linux; nothing is created here

EXIT_TIMEOUT_SECONDS = 5
"""How long Triton lets running calls finish when told to stop; whoever needs more drains its callers first."""

COMPLAINT = re.compile(
    r"(?:E\d{4} \S+ \d+ \S+\] (?!\"CudaDriverHelper)|\[libprotobuf ERROR [^\]]*\] |(?=error: )|\S*/(?=tritonserver: ))"
    r"(?P<said>.+)"
)
"""What its log says of models that it can't load, the place in a `config.pbtxt` included, without tables and source
files, or, at its very start, of a flag that it doesn't know; that it has no GPU is nothing wrong."""

CLIENT_PING_MS = 5000
"""Shortest interval between keepalive pings that a client may use: half of what our workers do."""


def shared_memory_prefix(work_dir: Path) -> str:
    """What the names of a server's shared memory begin with: by folder, so that its successor there frees leftovers."""
    return f"inferq_{hashlib.sha256(os.fsencode(work_dir.absolute())).hexdigest()[:12]}_"


def free_shared_memory(work_dir: Path) -> None:
    """Remove what a server that was killed, and doesn't run any more, left in shared memory."""
    for region in SHARED_MEMORY.glob(f"{shared_memory_prefix(work_dir)}*"):
        region.unlink(missing_ok=True)


def check_paths(repositories: Sequence[Path], work_dir: Path) -> None:
    """Raise StackError about a path in which Triton's Python backend can't work.

    It starts stubs by an unquoted command line, and waits for ever where that has spaces; and whatever the locale, its
    interpreter reads paths as ASCII.
    """
    folders = [work_dir.absolute(), *(repository.absolute() for repository in repositories)]
    models = [model for repository in folders[1:] for model in repository.iterdir() if model.is_dir()]
    for path in (*folders, *models):
        if re.search(r"[^!-~]", str(path)):
            cure = "rename the model" if path in models else "a symbolic link without them may lead there"
            raise StackError(
                f"Triton's Python backend can't work in a path with spaces or beyond ASCII: {path}; {cure}"
            )


class TritonServer:
    """Triton on loopback, serving one or several model repositories from the CPU.

    `grpc_port` and `http_port` are free ones, kept over restarts, and so is a `metrics_port` 0; `metrics_host` is the
    address of that. `work_dir` takes the backend folder
    and the log; no two running servers may share one. `extra_flags` go to `tritonserver` too.
    """

    name = "triton"

    def __init__(
        self,
        environment: StackEnvironment,
        repositories: Sequence[Path],
        work_dir: Path,
        *,
        log_path: Path | None = None,
        metrics_host: str = LOOPBACK,
        metrics_port: int = 0,
        extra_flags: Sequence[str] = (),
    ) -> None:
        for repository in repositories:
            if not repository.is_dir():
                raise StackError(f"the model repository {repository} is not a folder")
        check_paths(repositories, work_dir)
        self.environment = environment
        self.work_dir = work_dir
        self.backend_folder = work_dir / "backends"
        self.grpc_port, self.http_port, self.metrics_port = free_port(), free_port(), metrics_port or free_port()
        self.metrics_host = metrics_host
        self.shared_memory_prefix = shared_memory_prefix(work_dir)
        self._may_fail = may_fail(extra_flags)
        flags = (*self._flags(repositories), *completed(extra_flags))
        self.process = Process(
            Program(
                name=self.name,
                argv=(str(environment.tritonserver), *flags),
                environment=environment.process_environment(),
                log_path=log_path or work_dir / "triton.log",
                stop_grace_seconds=EXIT_TIMEOUT_SECONDS + 5,
                has_children=True,  # its stubs; one that is still starting never notices that Triton died
                complaint=COMPLAINT,
            )
        )

    @property
    def grpc_address(self) -> str:
        """What INFERQ_ENGINE takes."""
        return f"{LOOPBACK}:{self.grpc_port}"

    @property
    def http_address(self) -> str:
        return f"{LOOPBACK}:{self.http_port}"

    def _flags(self, repositories: Sequence[Path]) -> list[str]:
        flags = {
            "backend-directory": self.backend_folder,
            "grpc-address": LOOPBACK,
            "grpc-port": self.grpc_port,
            "http-address": LOOPBACK,
            "http-port": self.http_port,
            "metrics-address": f"ipv6:{self.metrics_host}" if ":" in self.metrics_host else self.metrics_host,
            "metrics-port": self.metrics_port,
            "exit-timeout-secs": EXIT_TIMEOUT_SECONDS,
            "grpc-http2-min-recv-ping-interval-without-data": CLIENT_PING_MS,
            "grpc-keepalive-permit-without-calls": 1,
            "backend-config": f"python,shm-region-prefix-name={self.shared_memory_prefix}",
        }
        return [f"--model-repository={repository.absolute()}" for repository in repositories] + [
            f"--{flag}={value}" for flag, value in flags.items()
        ]

    def launch(self) -> None:
        """Start without waiting, with a fresh backend folder and without a crashed predecessor's shared memory."""
        self._assemble_backends()
        free_shared_memory(self.work_dir)
        self.process.start()

    def _assemble_backends(self) -> None:
        """The Python backend with this interpreter's stub, beside the project's Python-based backends.

        The Python backend is copied: Triton refuses a library that resolves to a place outside its backend's folder.
        """
        shutil.rmtree(self.backend_folder, ignore_errors=True)
        python_backend = self.backend_folder / "python"
        shutil.copytree(self.environment.python_backend, python_backend, ignore=shutil.ignore_patterns("__pycache__"))
        self._copy_stub(python_backend)
        for backend in sorted(BACKENDS.iterdir()):
            (self.backend_folder / backend.name).symlink_to(backend.absolute(), target_is_directory=True)

    def _copy_stub(self, folder: Path) -> None:
        stub = self.environment.python_stub.read_bytes()
        copy = folder / self.environment.python_stub.name
        copy.write_bytes(adapted_to_numpy2(stub) if self.environment.has_numpy2 else stub)
        copy.chmod(0o755)

    def is_ready(self) -> bool:
        """Whether every model is loaded and calls are accepted."""
        return http_get(LOOPBACK, self.http_port, "/v2/health/ready")[0] == 200

    def progress(self) -> Progress:
        """Which models it loads, and which of them never will be, so that it never is ready."""
        progress = progress_of(self.process.log_lines(), may_fail=self._may_fail)
        is_loading = progress.doing not in ("", STARTING) and not self._may_fail
        if is_loading and not progress.faults and self.process.has_dead_children():
            return progress._replace(faults=(f"the process of a Python model has ended while {progress.doing}",))
        return progress

    def unread_models(self) -> dict[str, str]:
        """The models that it started without and doesn't even list, and why it could not read them."""
        return unread_models(self.process.log_lines())

    def start(self, timeout_seconds: float = 120.0) -> None:
        """Start and wait until every model is ready; StackError with the end of its log when it isn't in time."""
        self.launch()
        wait_until_ready(self, timeout_seconds)

    def stop(self) -> None:
        """End it, its stubs and their shared memory; legal before start and twice."""
        self.process.stop()
        free_shared_memory(self.work_dir)
