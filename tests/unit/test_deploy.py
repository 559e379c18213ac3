"""What `deploy/` promises, read from the files themselves: no container engine is needed to break these promises."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import redis
import yaml

from inferq.stack.environment import StackEnvironment

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SERVICES = ("redis", "triton", "api", "worker", "webhook-worker")
OURS = ("api", "worker", "webhook-worker")
GOES_OUT = ("api", "webhook-worker")

Compose = dict[str, Any]
"""The compose file as Compose reads it: variables replaced by their defaults, merge keys resolved."""


@pytest.fixture(scope="module")
def compose_text() -> str:
    return (DEPLOY / "docker-compose.yml").read_text()


@pytest.fixture(scope="module")
def compose(compose_text: str) -> Compose:
    loaded: Compose = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", compose_text))
    return loaded


@pytest.fixture(scope="module")
def documented() -> dict[str, str]:
    """Name → default of every setting in `.env.example`."""
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    return {match[1]: match[2] for line in lines if (match := re.fullmatch(r"#([A-Z][A-Z_]*)=(.*)", line))}


@pytest.fixture(scope="module")
def dockerfile() -> list[list[str]]:
    """The Dockerfile's instructions, each as its words; comments gone, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [line.split() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def version() -> str:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(described["project"]["version"])


def seconds(duration: str) -> float:
    """`45s`, `5m`: the two forms the file uses."""
    return float(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def test_the_compose_file_follows_the_compose_specification(compose: Compose) -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(compose)


def test_the_services_are_those_of_the_product(compose: Compose) -> None:
    assert tuple(compose["services"]) == SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_is_root_or_can_become_it(compose: Compose, name: str) -> None:
    """`T: Supply`, and the damage that a hostile image can do."""
    service = compose["services"][name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged", False)


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_can_write_to_its_image(compose: Compose, name: str) -> None:
    service = compose["services"][name]
    assert service["read_only"] is True
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_reports_its_health_and_comes_back(compose: Compose, name: str) -> None:
    service = compose["services"][name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_logs_cannot_fill_the_disk(compose: Compose, name: str) -> None:
    assert compose["services"][name]["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned(compose: Compose, name: str) -> None:
    """`T: Supply`: at least to a patch or a monthly release; our own to the version of the source."""
    image, _, tag = compose["services"][name]["image"].rpartition(":")
    assert image
    assert re.match(r"\d+\.\d+", tag)
    if name in OURS:
        assert tag == version()


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_scales(compose: Compose, name: str) -> None:
    service = compose["services"][name]
    assert "container_name" not in service
    assert "hostname" not in service


def test_only_the_api_is_published_and_only_on_loopback(compose: Compose) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8080:8080"]}
    assert compose["networks"]["inside"]["internal"] is True
    assert all(
        service["networks"] == (["inside", "outside"] if name in GOES_OUT else ["inside"])
        for name, service in compose["services"].items()
    )


def test_work_starts_only_when_what_it_needs_is_healthy(compose: Compose) -> None:
    needs = {name: service.get("depends_on", {}) for name, service in compose["services"].items()}
    healthy = {"condition": "service_healthy"}
    assert needs == {
        "redis": {},
        "triton": {},
        "api": {"redis": healthy},
        "worker": {"redis": healthy, "triton": healthy},
        "webhook-worker": {"redis": healthy},
    }


@pytest.mark.parametrize("name", OURS)
def test_a_stopping_container_has_time_to_drain(compose: Compose, documented: dict[str, str], name: str) -> None:
    """`B064`, `B003`"""
    assert seconds(compose["services"][name]["stop_grace_period"]) > float(documented["INFERQ_DRAIN_SECONDS"])


def test_every_variable_of_the_compose_file_is_documented(
    compose: Compose, compose_text: str, documented: dict[str, str]
) -> None:
    interpolated = set(re.findall(r"\$\{(\w+)", compose_text))
    given = {variable for name in OURS for variable in compose["services"][name]["environment"]}
    assert interpolated | given <= documented.keys()


def test_own_models_and_memory_need_no_edit(compose_text: str) -> None:
    for setting in ("source: ${MODELS_DIR:-", "- ${REDIS_MAXMEMORY:-", 'memory: "${REDIS_MEMORY_LIMIT:-'):
        assert setting in compose_text


def test_the_file_for_gpus_gives_them_to_the_engine_and_changes_nothing_else(compose: Compose) -> None:
    override = yaml.safe_load((DEPLOY / "docker-compose.gpu.yml").read_text())
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(override)
    (device,) = override["services"].pop("triton")["deploy"]["resources"]["reservations"].pop("devices")
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert override == {"services": {}}
    assert "triton" in compose["services"]


def test_the_model_repository_is_mounted_read_only_and_holds_models(compose: Compose) -> None:
    (mount,) = compose["services"]["triton"]["volumes"]
    assert mount["type"] == "bind"
    assert mount["read_only"] is True
    assert f"--model-repository={mount['target']}" in compose["services"]["triton"]["command"]
    assert list((DEPLOY / mount["source"]).glob("*/config.pbtxt"))


@pytest.mark.engine
def test_triton_knows_every_flag_it_is_given(compose: Compose) -> None:
    environment = StackEnvironment.find()
    helped = subprocess.run(
        [environment.tritonserver, "--help"],
        env=environment.process_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    known = set(re.findall(r"^\s*(--[a-z0-9-]+)", helped.stdout + helped.stderr, re.MULTILINE))
    program, *flags = compose["services"]["triton"]["command"]
    assert program == "tritonserver"
    assert {flag.split("=")[0] for flag in flags} <= known


def test_workers_ping_no_faster_than_the_engine_accepts(compose: Compose) -> None:
    flags = dict(flag.lstrip("-").split("=") for flag in compose["services"]["triton"]["command"][1:])
    every_ms = 1000 * float(compose["services"]["worker"]["environment"]["INFERQ_ENGINE_KEEPALIVE_SECONDS"])
    assert every_ms > float(flags["grpc-http2-min-recv-ping-interval-without-data"])
    assert flags["grpc-keepalive-permit-without-calls"] == "1"


@pytest.mark.server
def test_redis_keeps_what_it_accepted(compose: Compose, tmp_path: Path) -> None:
    """`B023`: the server under the compose file's own arguments logs every write and evicts nothing."""
    _, *arguments = compose["services"]["redis"]["command"]
    with valkey(arguments, tmp_path) as server:
        settings: Any = server.config_get()
        info: Any = server.info("server")
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["maxmemory"] == str(2 * 1024**3)
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["save"] == ""
    assert compose["services"]["redis"]["image"] == f"valkey/valkey:{info['valkey_version']}"


@contextmanager
def valkey(arguments: list[str], folder: Path) -> Iterator[redis.Redis]:
    """A server under `arguments`, reached through a socket in `folder` and gone at the end."""
    socket = folder / "socket"
    command = [str(StackEnvironment.find().valkey_server), *arguments]
    command += ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        redis.Redis(unix_socket_path=str(socket), decode_responses=True) as client,
    ):
        assert process.stdout
        try:
            assert any("Ready to accept connections" in line for line in process.stdout)
            yield client
        finally:
            process.kill()
            process.stdout.read()


def test_the_image_starts_from_a_pinned_and_supported_python(dockerfile: list[list[str]]) -> None:
    ((_, argument),) = (words for words in dockerfile if words[0] == "ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[1-3]\.\d+-slim-[a-z]+", argument)
    assert {words[1] for words in dockerfile if words[0] == "FROM"} == {"${PYTHON_IMAGE}"}


def test_the_image_runs_as_the_user_that_the_compose_file_names(compose: Compose, dockerfile: list[list[str]]) -> None:
    ((_, user),) = (words for words in dockerfile if words[0] == "USER")
    assert {compose["services"][name]["user"] for name in OURS} == {user}


def test_the_image_holds_locked_dependencies_and_no_caches(dockerfile: list[list[str]]) -> None:
    installs = [words for words in dockerfile if words[0] == "RUN" and "install" in words]
    assert installs
    for words in installs:
        assert words.count("install") == words.count("--no-deps") - words.count("wheel")
    assert any("--require-hashes -r requirements/runtime.lock" in " ".join(words) for words in installs)
    assert any("PIP_NO_CACHE_DIR=1" in words for words in dockerfile if words[0] == "ENV")


def test_the_build_context_holds_what_the_image_copies_and_nothing_else(dockerfile: list[list[str]]) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source
        for instruction, *words in dockerfile
        if instruction == "COPY" and not words[0].startswith("--from")
        for source in words[:-1]
    }
    assert "*" in ignored
    assert copied == allowed
