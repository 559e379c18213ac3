"""The command line as a process: it starts light, and its status is the shell's to read."""

import signal
import subprocess
import sys
import time
from importlib.metadata import version

from tests.support.scripted_http import Answer, scripted_server

HEAVY = ("httpx", "numpy", "asyncio", "rich", "pydantic", "inferq.stack", "inferq.client")


def python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_version_is_that_of_the_distribution() -> None:
    ran = python("-m", "inferq.cli", "--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"inferq {version('inferq')}\n", "")


def test_nothing_heavy_is_imported_before_a_command_needs_it() -> None:
    code = f"import sys, inferq.cli; print([name for name in {HEAVY} if name in sys.modules])"
    assert python("-c", code).stdout == "[]\n"


def test_the_client_needs_no_numpy_until_arrays_are_sent_or_fetched() -> None:
    code = "import sys, inferq.client; print('numpy' in sys.modules)"
    assert python("-c", code).stdout == "False\n"


def test_a_wrong_command_ends_with_2() -> None:
    ran = python("-m", "inferq.cli", "frobnicate")
    assert (ran.returncode, ran.stdout) == (2, "")


def test_ctrl_c_ends_a_command_with_130_and_without_a_traceback() -> None:
    queued = {"id": "0" * 32, "status": "queued", "done": False, "model": "m", "error": None}
    with scripted_server([Answer(200, queued)]) as server:
        command = subprocess.Popen(
            [sys.executable, "-m", "inferq.cli", "get", "0" * 32, "--wait", "--url", server.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        ends_at = time.monotonic() + 30
        while not server.seen and time.monotonic() < ends_at:
            time.sleep(0.01)
        command.send_signal(signal.SIGINT)
        output, _ = command.communicate(timeout=30)
    assert (command.returncode, output) == (130, b"")
