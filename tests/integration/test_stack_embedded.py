"""The whole embedded stack with its real parts: what it promises while starting, running, failing and ending."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from inferq.stack import StackOptions, TritonServer
from inferq.stack.environment import PROJECT_ROOT
from inferq.stack.ports import free_port
from inferq.stack.triton import free_shared_memory
from tests.support.models import TEST_MODELS
from tests.support.processes import command_line, descendants, is_alive, wait_for
from tests.support.servers import StartEngine, StartValkey
from tools.render_docs import FAMILIES

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.server]

# What the command line does, without its options.
UP = """
import asyncio, json, sys
from pathlib import Path
from inferq.stack import EmbeddedStack, StackError, StackOptions

async def main():
    options = json.loads(sys.argv[1])
    options |= {key: Path(options[key]) for key in ("data", "models") if key in options}
    async with EmbeddedStack(StackOptions(port=0, **options), report=lambda line: print(line, flush=True)) as stack:
        await stack.wait()

try:
    asyncio.run(main())
except StackError as error:
    sys.exit(f"inferq: {error}")
"""


class Up:
    """A running `inferq up`, seen from outside."""

    def __init__(self, options: dict[str, Any], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", UP, json.dumps(options)],
            cwd=PROJECT_ROOT,
            env={**os.environ, "INFERQ_DRAIN_SECONDS": "5", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.port = 0

    def read_until(self, pattern: str) -> str:
        """Read its report up to a line that matches; returns that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if re.search(pattern, line):
                return self.lines[-1]
        pytest.fail(f"no line like {pattern!r} in {self.lines}: {self.errors()}")

    def wait_ready(self) -> None:
        """Return once it says so."""
        self.port = int(self.read_until("^ready: ").rpartition(":")[2])

    def errors(self) -> str:
        """What it wrote to stderr before it ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def health(self) -> dict[str, Any]:
        """The api's own view of the stack."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/health/ready", headers={"Connection": "close"})
        health: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return health

    def child(self, words: str) -> int:
        """One of its processes, by its command line."""
        return next(pid for pid in descendants(self.process.pid) if words in command_line(pid))

    def kill(self, words: str) -> None:
        """SIGKILL for one of its processes, once that is there."""
        wait_for(lambda: any(words in command_line(pid) for pid in descendants(self.process.pid)))
        os.kill(self.child(words), signal.SIGKILL)

    def end(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        self.process.kill()
        self.process.communicate()


StartUp = Callable[..., Up]


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[StartUp]:
    """Starts stacks with a data folder of the test's own; whatever is left of them at the end fails the test."""
    started: list[Up] = []

    def start(environment: dict[str, str] | None = None, **options: Any) -> Up:
        up = Up({"data": str(tmp_path / "data"), **options}, environment or {})
        started.append(up)
        return up

    yield start
    left = {pid for up in started for pid in descendants(up.process.pid)}
    for up in started:
        up.end()
    wait_for(lambda: not any(is_alive(pid) for pid in left))
    free_shared_memory(tmp_path / "data" / "triton")


def test_it_reports_each_part_and_stops_without_leaving_a_process(start_up: StartUp, tmp_path: Path) -> None:
    up = start_up(api=2, workers=2)
    up.wait_ready()
    parts = ["valkey", "triton", "api-1", "api-2", "worker-1", "worker-2", "webhook-worker-1"]
    assert [line.split()[0] for line in up.lines] == [*parts, "ready:"]
    wait_for(lambda: up.health()["workers"] == 2)  # the other api may have counted a second ago
    assert {path.stem for path in (tmp_path / "data" / "logs").iterdir()} == set(parts)

    processes = descendants(up.process.pid)
    assert len(processes) >= len(parts)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0
    assert not [pid for pid in processes if is_alive(pid)]


def test_what_dies_is_restarted_and_the_port_answers_throughout(start_up: StartUp) -> None:
    up = start_up(api=2, workers=1)
    up.wait_ready()
    for words, name in (("-m workers inference", "worker-1"), ("-m api", "api-"), ("valkey-server", "valkey")):
        os.kill(up.child(words), signal.SIGKILL)
        up.read_until(f"^{name}.* ended with signal 9 \\(SIGKILL\\), restarting in 0.5 s")
        assert "status" in up.health()
        up.read_until(f"^{name}.* restarted")
    wait_for(lambda: up.health()["status"] == "ready" and up.health()["workers"] >= 1)
    up.process.terminate()
    assert up.process.wait(60) == 0


def test_nothing_outlives_a_stack_that_was_killed(start_up: StartUp) -> None:
    up = start_up()
    up.wait_ready()
    processes = descendants(up.process.pid)
    assert any("triton_python_backend_stub" in command_line(pid) for pid in processes)
    up.process.kill()
    wait_for(lambda: not any(is_alive(pid) for pid in processes))


def test_a_part_that_cannot_start_ends_the_stack_with_its_last_words(start_up: StartUp, tmp_path: Path) -> None:
    (tmp_path / "models" / "broken" / "1").mkdir(parents=True)
    (tmp_path / "models" / "broken" / "config.pbtxt").write_text('backend: "no_such_backend"\n')
    up = start_up(models=str(tmp_path / "models"))
    _, errors = up.process.communicate(timeout=60)
    assert up.process.returncode == 1
    assert errors.startswith("inferq: triton ended with status 1 before it was ready")
    assert "unable to find backend library for backend 'no_such_backend'" in errors


def test_flags_reach_an_own_triton_which_then_serves_what_they_say(start_up: StartUp, tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name, source in (("wanted", ""), ("other", ""), ("broken", None)):
        model_of(models, name, source)
    up = start_up(models=str(models), engine_flags=["--model-control-mode=explicit", "--load-model=wanted"])
    up.wait_ready()
    wait_for(lambda: [name for name, is_ready in shown_models(up) if is_ready] == ["wanted"])


def test_an_own_triton_may_be_told_to_start_without_the_models_that_fail(start_up: StartUp, tmp_path: Path) -> None:
    models = tmp_path / "models"
    model_of(models, "fine", "")
    model_of(models, "broken", "raise RuntimeError('no weights')")
    up = start_up(models=str(models), engine_flags=["--exit-on-error=false"])
    up.wait_ready()
    assert ("fine", True) in shown_models(up)
    assert any(re.search("^model broken can't be served: .*no weights", line) for line in up.lines)


def shown_models(up: Up) -> list[tuple[str, bool]]:
    """The models that the api shows, and whether they are ready."""
    connection = HTTPConnection("127.0.0.1", up.port, timeout=10)
    connection.request("GET", "/models", headers={"Connection": "close"})
    models = json.loads(connection.getresponse().read())["models"]
    connection.close()
    return [(model["name"], model["ready"]) for model in models]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine_flags": ["--http-port=1"]}, "Triton's flag --http-port can't be given: inferq up sets it itself"),
        (
            {"engine": "127.0.0.1:1", "engine_flags": ["--id=a"]},
            "the engine at 127.0.0.1:1 was started by somebody else: give it its flags there",
        ),
    ],
)
def test_flags_that_can_not_be_given_are_refused_before_anything_starts(
    start_up: StartUp, options: dict[str, Any], said: str
) -> None:
    up = start_up(**options)
    assert up.process.communicate(timeout=60) == ("", f"inferq: {said}\n")


def test_a_folder_in_which_no_model_could_be_loaded_is_refused_before_anything_starts(
    start_up: StartUp, tmp_path: Path
) -> None:
    shutil.copytree(TEST_MODELS / "affine", tmp_path / "modèles" / "affine")
    up = start_up(models=str(tmp_path / "modèles"))
    output, errors = up.process.communicate(timeout=60)
    assert (up.process.returncode, output) == (1, "")
    assert "beyond ASCII" in errors
    assert not (tmp_path / "data").exists()


def model_of(repository: Path, name: str, source: str | None) -> Path:
    """Add a model with the tests' `affine`'s configuration and this code, none at all for None; returns its file."""
    shutil.copytree(TEST_MODELS / "affine", repository / name, ignore=shutil.ignore_patterns("__pycache__"))
    config, file = repository / name / "config.pbtxt", repository / name / "1" / "model.py"
    config.write_text(config.read_text().replace("affine", name))
    if source is None:
        file.unlink()
    else:
        file.write_text(f"{source}\n{file.read_text()}")
    return file


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "Python model file not found in '{file}'"),
        ("import os; os._exit(3)", "the process of a Python model has ended while loading model broken"),
    ],
    ids=["no file", "ended"],
)
def test_a_model_that_triton_would_wait_for_in_vain_ends_the_start_with_the_reason(
    start_up: StartUp, tmp_path: Path, source: str | None, reason: str
) -> None:
    model_of(tmp_path / "models", "fine", "")
    file = model_of(tmp_path / "models", "broken", source)
    up = start_up(models=str(tmp_path / "models"))
    _, errors = up.process.communicate(timeout=60)
    assert up.process.returncode == 1
    assert errors.startswith("inferq: triton will never be ready (log: ")
    assert reason.format(file=file) in errors


def test_a_model_that_loads_for_long_is_told_and_waited_for(start_up: StartUp, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    wait = f"import os, time\nwhile not os.path.exists({str(weights)!r}):\n    time.sleep(0.05)\n"
    model_of(tmp_path / "models", "large", wait)
    up = start_up(models=str(tmp_path / "models"))
    assert up.read_until("^waiting for triton") == "waiting for triton: loading model large"
    weights.touch()
    up.wait_ready()
    assert "triton ready" in up.lines


CRASH = """
import os, signal
if os.path.exists({mark!r}):
    os.kill(os.getppid(), signal.SIGSEGV)
"""


def test_an_engine_that_dies_again_and_again_is_tried_ever_later_and_the_rest_stays(
    start_up: StartUp, tmp_path: Path
) -> None:
    mark = tmp_path / "crash"
    model_of(tmp_path / "models", "deadly", CRASH.format(mark=str(mark)))
    up = start_up(models=str(tmp_path / "models"))
    up.wait_ready()
    others = {words: up.child(words) for words in ("valkey-server", "-m api", "workers inference", "workers webhooks")}
    mark.touch()
    os.kill(up.child("bin/tritonserver"), signal.SIGKILL)
    for seconds in ("0.5", "1", "2", "4"):
        up.read_until(rf"^triton ended with signal \d+ \(SIG\w+\), restarting in {seconds} s")
    assert "triton ended with signal 11 (SIGSEGV), restarting in 4 s" in up.lines
    assert {words: up.child(words) for words in others} == others
    assert up.health()["workers"] == 1
    mark.unlink()
    up.read_until("^triton restarted")
    wait_for(lambda: up.health()["status"] == "ready")


def test_an_engine_that_hangs_in_its_restart_is_tried_again_and_the_rest_stays(
    start_up: StartUp, tmp_path: Path
) -> None:
    file = model_of(tmp_path / "models", "lost", "")
    up = start_up(models=str(tmp_path / "models"))
    up.wait_ready()
    api, worker = up.child("-m api"), up.child("workers inference")
    source = file.read_text()
    file.unlink()
    os.kill(up.child("bin/tritonserver"), signal.SIGKILL)
    for seconds in ("1", "2"):
        up.read_until(rf"^triton can't start, restarting in {seconds} s")
        assert up.read_until("") == f"  | Python model file not found in '{file}'"
    assert (up.child("-m api"), up.child("workers inference")) == (api, worker)
    file.write_text(source)
    up.read_until("^triton restarted")
    wait_for(lambda: up.health()["status"] == "ready")


def test_an_api_and_a_worker_that_die_again_and_again_come_back_ever_later_and_the_rest_stays(
    start_up: StartUp, start_valkey: StartValkey, engine: TritonServer
) -> None:
    up = start_up(redis_url=start_valkey().url, engine=engine.grpc_address)
    up.wait_ready()
    courier = up.child("workers webhooks")
    for words, name in (("workers inference", "worker-1"), ("-m api", "api-1")):
        for seconds in ("0.5", "1", "2"):
            up.kill(words)
            up.read_until(rf"^{name} ended with signal 9 \(SIGKILL\), restarting in {seconds} s")
            up.read_until(f"^{name} restarted")
    wait_for(lambda: up.health()["status"] == "ready" and up.health()["workers"] >= 1)
    assert up.child("workers webhooks") == courier


@pytest.mark.parametrize(
    ("name", "value"),
    [("INFERQ_LEASE_SECONDS", "never"), ("INFERQ_WEBHOOK_SCHEDULE", "soon"), ("INFERQ_MAX_WAIT_SECONDS", "-1")],
    ids=["worker", "webhook worker", "api"],
)
def test_a_setting_that_a_process_refuses_is_shown_in_its_words_before_anything_starts(
    start_up: StartUp, tmp_path: Path, name: str, value: str
) -> None:
    up = start_up({name: value})
    output, errors = up.process.communicate(timeout=60)
    assert (up.process.returncode, output) == (1, "")
    assert errors.startswith(f"inferq: {name}=")
    assert not (tmp_path / "data").exists()


def test_models_that_the_engine_does_not_have_end_the_start_with_those_that_it_has(
    start_up: StartUp, tmp_path: Path
) -> None:
    for name in ("fine", "other"):
        model_of(tmp_path / "models", name, "")
    up = start_up({"INFERQ_MODELS": "fien,othr"}, models=str(tmp_path / "models"))
    _, errors = up.process.communicate(timeout=40)
    assert errors.startswith("inferq: worker-1 will never be ready (log: ")
    assert errors.endswith("\n  | INFERQ_MODELS names fien, othr, which the engine does not have; it has fine, other\n")


def test_a_model_that_the_engine_does_not_have_is_told_beside_one_that_it_serves(
    start_up: StartUp, tmp_path: Path
) -> None:
    model_of(tmp_path / "models", "fine", "")
    up = start_up({"INFERQ_MODELS": "fine,othr"}, workers=2, models=str(tmp_path / "models"))
    up.wait_ready()
    told = [line for line in up.lines if "INFERQ_MODELS" in line]
    assert told == ["warning: INFERQ_MODELS names othr, which the engine does not have; it has fine"]


def test_a_variable_that_nothing_reads_is_told_once_at_the_start(start_up: StartUp) -> None:
    up = start_up({"INFERQ_MAX_QUEUE": "7"})
    up.wait_ready()
    told = [line for line in up.lines if "INFERQ_MAX_QUEUE" in line]
    assert told == up.lines[:1]
    assert told == ["warning: INFERQ_MAX_QUEUE is set, and nothing reads it; INFERQ_MAX_QUEUED may be meant."]


def test_a_signal_while_starting_ends_it_too(start_up: StartUp) -> None:
    up = start_up()
    up.read_until("^valkey ready")
    processes = descendants(up.process.pid)
    up.process.terminate()
    _, errors = up.process.communicate(timeout=60)
    assert up.process.returncode == 1
    assert "stopped before it was ready" in errors
    assert not [pid for pid in processes if is_alive(pid)]


def test_a_second_signal_does_not_wait_for_what_runs(start_up: StartUp) -> None:
    up = start_up({"INFERQ_DRAIN_SECONDS": "600"})
    up.wait_ready()
    processes, api = descendants(up.process.pid), up.child("-m api")
    os.kill(up.child("-m workers inference"), signal.SIGSTOP)
    up.process.send_signal(signal.SIGINT)
    wait_for(lambda: not is_alive(api))
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(30) == 0
    assert not [pid for pid in processes if is_alive(pid)]


def test_given_parts_are_used_and_not_started_or_stopped(
    start_up: StartUp, start_valkey: StartValkey, engine: TritonServer
) -> None:
    valkey = start_valkey()
    up = start_up(redis_url=valkey.url, engine=engine.grpc_address)
    up.wait_ready()
    *parts, refusal, ready = up.lines
    assert [line.split()[0] for line in parts] == ["api-1", "worker-1", "webhook-worker-1"]
    assert re.search(r"^model sequence can't be served: The model keeps state between", refusal)
    assert ready.startswith("ready: http://")
    up.process.terminate()
    assert up.process.wait(60) == 0
    assert valkey.is_ready()
    assert engine.is_ready()


def test_every_process_shows_the_metrics_that_its_page_lists(start_up: StartUp) -> None:
    first = free_ports(4)
    up = start_up({"INFERQ_METRICS_PORT": str(first)})
    up.wait_ready()
    told = re.findall(r"^metrics of (\S+)-1: (http://127\.0\.0\.1:\d+/metrics)$", "\n".join(up.lines), re.MULTILINE)
    assert [kind for kind, _ in told] == list(FAMILIES)
    for port, (kind, url) in enumerate(told, first):
        assert url == f"http://127.0.0.1:{port}/metrics"
        shown = re.findall(r"^# TYPE (\S+) (\S+)$", page(port), re.MULTILINE)
        assert shown == [(each.name, each.kind) for each in FAMILIES[kind]]
    assert up.lines[-2] == f"metrics of triton: http://127.0.0.1:{first + 3}/metrics"
    assert "nv_inference_request_success" in page(first + 3)


def free_ports(count: int) -> int:
    """The first of so many neighbours that nobody listens on."""
    while True:
        first = free_port()
        with ExitStack() as probes:
            try:
                for port in range(first + 1, first + count):
                    probes.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


def page(port: int) -> str:
    """What a process shows to Prometheus."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_a_model_that_a_given_engine_could_not_load_is_told_with_the_engines_reason(
    start_up: StartUp, start_engine: StartEngine, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    for name in ("affine", "broken"):
        shutil.copytree(TEST_MODELS / "affine", models / name)
    config = models / "broken" / "config.pbtxt"
    config.write_text(config.read_text().replace("affine", "broken"))
    (models / "broken" / "1" / "model.py").write_text("raise RuntimeError('no weights')\n")
    engine = start_engine([models], extra_flags=("--exit-on-error=false", "--strict-readiness=false"))
    up = start_up(engine=engine.grpc_address)
    up.wait_ready()
    said = "The engine could not load it: Internal: RuntimeError: no weights"
    assert up.lines[-2] == f"model broken can't be served: {said}"
    shown = subprocess.run(
        [sys.executable, "-m", "inferq.cli", "models", "--url", f"http://127.0.0.1:{up.port}"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert [line.split("\t")[:2] for line in shown.splitlines()] == [["affine", "yes"], ["broken", said]]


def test_a_configuration_that_cannot_be_read_is_told_with_the_place_in_it(start_up: StartUp, tmp_path: Path) -> None:
    (tmp_path / "models" / "broken" / "1").mkdir(parents=True)
    (tmp_path / "models" / "broken" / "config.pbtxt").write_text('backend: "python"\ninput [ { nme: "x" } ]\n')
    up = start_up(models=str(tmp_path / "models"))
    _, errors = up.process.communicate(timeout=60)
    assert '2:14: Message type "inference.ModelInput" has no field named "nme".' in errors
    assert "Poll failed for model directory 'broken'" in errors
    assert "Cuda" not in errors


def models_of_which_two_can_not_be_read(repository: Path) -> None:
    for name in ("fine", "broken", "renamed"):
        model_of(repository, name, "")
    (repository / "broken" / "config.pbtxt").write_text('backend: "python\n"\n')
    config = repository / "renamed" / "config.pbtxt"
    config.write_text(f'name: "other"\n{config.read_text()}')


def test_a_model_that_triton_forgets_since_it_can_not_be_read_is_told_at_the_start(
    start_up: StartUp, tmp_path: Path
) -> None:
    models_of_which_two_can_not_be_read(tmp_path / "models")
    up = start_up(models=str(tmp_path / "models"), engine_flags=["--exit-on-error=false"])
    up.wait_ready()
    told = "\n".join(line for line in up.lines if "can't be served" in line)
    assert re.search(
        r"^model broken can't be served: failed to read text proto .*: 1:17: String literals", told, re.MULTILINE
    )
    assert re.search(r"^model renamed can't be served: .*other", told, re.MULTILINE)
    assert shown_models(up) == [("fine", True)]


def test_beside_a_good_model_one_that_can_not_be_read_ends_the_start_with_the_place(
    start_up: StartUp, tmp_path: Path
) -> None:
    models_of_which_two_can_not_be_read(tmp_path / "models")
    model_of(tmp_path / "models", "slow", "import time; time.sleep(20)")
    _, errors = start_up(models=str(tmp_path / "models")).process.communicate(timeout=60)
    assert "1:17: String literals cannot cross line boundaries." in errors
    assert "Poll failed for model directory 'broken'" in errors


def test_two_stacks_never_share_a_data_folder(start_up: StartUp) -> None:
    first = start_up()
    first.read_until("^valkey ready")
    second = start_up()
    _, errors = second.process.communicate(timeout=60)
    assert second.process.returncode == 1
    assert "another stack runs on the data folder" in errors


def test_listening_beyond_loopback_is_refused_without_a_key(start_up: StartUp) -> None:
    """T: Config: a default must not be open to everybody."""
    up = start_up(host="0.0.0.0")
    output, errors = up.process.communicate(timeout=60)
    assert up.process.returncode == 1
    assert output.split() == ["valkey", "ready"]
    assert "INFERQ_ALLOW_UNAUTHENTICATED=1" in errors
    (command,) = re.findall(r"make one with `(.+?)`", errors)
    made = subprocess.run(
        [sys.executable, "-m", "inferq.cli", *shlex.split(command)[1:]],
        env={name: value for name, value in os.environ.items() if not name.startswith("INFERQ_REDIS")},
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (made.returncode, made.stdout[:7]) == (0, "inferq_"), made.stderr
    start_up(host="0.0.0.0").wait_ready()


def test_a_stack_that_must_keep_every_job_writes_each_to_disk_at_once(start_up: StartUp, tmp_path: Path) -> None:
    up = start_up({"INFERQ_DURABLE": "1"})
    up.read_until("^valkey ready")
    assert "appendfsync always" in (tmp_path / "data" / "valkey" / "valkey.conf").read_text().splitlines()
    up.process.terminate()
    assert up.process.wait(60) == 1


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({}, "inferq keys create NAME"),
        ({"data": Path("my data")}, "inferq keys create NAME --data 'my data'"),
        (
            {"redis_url": "redis://:pw@r:1/0", "environment": {"INFERQ_REDIS_URL": "redis://:pw@r:1/0"}},
            "inferq keys create NAME",
        ),
        (
            {"redis_url": "redis://:pw@r:1/0", "environment": {}},
            "INFERQ_REDIS_URL=redis://***@r:1/0 inferq keys create NAME",
        ),
    ],
)
def test_the_command_that_makes_a_key_leads_to_the_queue_of_the_stack(options: dict[str, Any], command: str) -> None:
    assert StackOptions(**options).key_command == command


def test_with_a_key_it_listens_everywhere_and_asks_for_it(
    start_up: StartUp, start_valkey: StartValkey, engine: TritonServer
) -> None:
    valkey = start_valkey()
    made = subprocess.run(
        [sys.executable, "-m", "inferq.cli", "keys", "create", "ci"],
        env={**os.environ, "INFERQ_REDIS_URL": valkey.url},
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    up = start_up(host="0.0.0.0", redis_url=valkey.url, engine=engine.grpc_address)
    up.wait_ready()
    for headers, expected in (({}, 401), ({"Authorization": f"Bearer {made.stdout.strip()}"}, 200)):
        connection = HTTPConnection("127.0.0.1", up.port, timeout=30)
        connection.request("GET", "/jobs", headers=headers)
        assert connection.getresponse().status == expected
        connection.close()
