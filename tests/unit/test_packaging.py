"""What is installed is what the sources hold and what the locks say."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import grimp
import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from inferq.client.tensors import to_binary
from tests.support.scripted_http import Answer, Seen, scripted_server
from tools.verify_locks import differences, unmet

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "inferq", "jobs", "workers")
HASH = f"--hash=sha256:{'0' * 64}"


def build(source: Path, project: str) -> zipfile.ZipFile:
    """The wheel of a folder, from a copy of the checkout so that this stays as it is."""
    for name in (*PACKAGES, "clients"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", "dist", project], cwd=source, check=True, timeout=100)
    (built,) = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The product's."""
    return build(tmp_path_factory.mktemp("source"), ".")


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The client's."""
    return build(tmp_path_factory.mktemp("source"), "./clients/python")


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts)
    }


def test_the_wheel_brings_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "inferq = inferq.cli:main" in wheel.read(entry_points).decode()
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_what_the_code_imports_is_declared() -> None:
    """An import that only works because somebody else depends on the package breaks when they stop to."""
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    imported = {name for name in graph.modules if graph.is_module_squashed(name)} - sys.stdlib_module_names
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = described["optional-dependencies"]["heif"]
    declared = {canonicalize_name(Requirement(line).name) for line in [*described["dependencies"], *optional]}
    owners = packages_distributions()
    undeclared = {name for name in imported if not declared & {canonicalize_name(owner) for owner in owners[name]}}
    assert undeclared == set()


def project_of(folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return described


def test_the_client_alone_is_of_the_products_version_and_asks_for_no_other_packages() -> None:
    product, client = project_of(ROOT), project_of(ROOT / "clients/python")
    assert {client[key] == product[key] for key in ("version", "requires-python", "license")} == {True}
    assert set(client["dependencies"]) < set(product["dependencies"])


def needed(wanted: Iterable[str]) -> set[str]:
    """The packages that these requirements bring with them, by what is installed here."""
    found: set[str] = set()
    names = [Requirement(line).name for line in wanted]
    while names:
        name = canonicalize_name(names.pop())
        if name not in found:
            found.add(name)
            asked = map(Requirement, distribution(name).requires or ())
            names += [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


USES_THE_CLIENT = """
import sys
sys.path[:] = [*sys.path, sys.argv[1]]
import numpy
from inferq import Client
from inferq.client import Job, verify_webhook
with Client(sys.argv[2]) as client:
    jobs = client.submit_many("m", [{"x": numpy.zeros(1)}])
    jobs += [client.submit("m", inputs) for inputs in (b"bytes", {"x": numpy.zeros(1)}, numpy.zeros(1))]
    assert all(isinstance(job, Job) for job in jobs)
    assert all(job.succeeded for job in client.wait_many(jobs))
    assert client.result(jobs[0])["y"].tolist() == [1.5]
"""


def test_the_client_works_where_nothing_but_its_own_dependencies_is_installed(
    client_wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    client_wheel.extractall(tmp_path)
    for name in needed(project_of(ROOT / "clients/python")["dependencies"]):
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            (tmp_path / top).symlink_to(str(installed.locate_file(top)))
    assert not {"fastapi", "redis", "typer", "pydantic"} & {path.name for path in tmp_path.iterdir()}

    job = {"id": "0" * 32, "status": "succeeded", "done": True, "model": "m", "error": None}
    length, body = to_binary({"y": np.array([1.5])}, {})
    result = Answer(200, body.replace(b'"inputs"', b'"outputs"'), {"Inference-Header-Content-Length": str(length + 1)})

    def answered(seen: Seen) -> Answer:
        if seen.path == "/jobs/batch":
            return Answer(202, {"jobs": [{"status": 202, "job": job}]})
        return result if seen.path.endswith("/result") else Answer(200, job)

    with scripted_server(answered) as server:
        python = [sys.executable, "-I", "-S", "-W", "error", "-c", USES_THE_CLIENT]
        subprocess.run([*python, str(tmp_path), server.url], check=True, timeout=60)


def test_the_client_alone_brings_neither_the_service_nor_its_command(client_wheel: zipfile.ZipFile) -> None:
    held = set(client_wheel.namelist())
    assert {"inferq/client/clients.py", "inferq/py.typed"} <= held
    assert not any(name.startswith(("api/", "jobs/", "workers/")) or "entry_points" in name for name in held)


def lock(folder: Path, lines: Iterable[str]) -> Path:
    path = folder / "some.lock"
    path.write_text("\n".join(lines) + "\n")
    return path


def faults(path: Path, *wanted: str) -> list[str]:
    """What `unmet` says of a lock, without its path."""
    return [fault.removeprefix(f"{path}: ") for fault in unmet([Requirement(line) for line in wanted], path)]


def test_a_lock_that_answers_every_range_has_no_fault(tmp_path: Path) -> None:
    path = lock(
        tmp_path,
        [
            "# This file was generated.",
            "numpy==1.26.4 ; python_full_version < '3.13' \\",
            f"    {HASH}",
            "    # via somebody",
            "numpy==2.5.5 ; python_full_version >= '3.13' \\",
            f"    {HASH}",
        ],
    )
    assert faults(path, "NumPy>=1.26") == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (f"redis==6.0.0 {HASH}", "redis<6 is asked for, 6.0.0 is locked (Python 3.11)"),
        (f"arq==0.28.0 {HASH}", "redis<6 is asked for, nothing is locked (Python 3.11)"),
        (f"redis==5.3.1 ; python_version < '3.13' {HASH}", "redis<6 is asked for, nothing is locked (Python 3.13)"),
        ("redis==5.3.1", "redis==5.3.1 has no hash"),
        ("--index-url x", "holds an option or an address; pins and hashes are all it may hold"),
        (f"redis @ http://x {HASH}", "holds an option or an address; pins and hashes are all it may hold"),
    ],
)
def test_a_lock_that_promises_something_else_is_found_out(tmp_path: Path, line: str, fault: str) -> None:
    """`T: Supply`"""
    assert fault in faults(lock(tmp_path, [line]), "redis<6")


def test_a_package_that_one_python_alone_needs_is_missed_only_there(tmp_path: Path) -> None:
    path = lock(tmp_path, [f"redis==5.3.1 {HASH}"])
    assert faults(path, "numpy ; python_version < '3.12'") == [
        'numpy; python_version < "3.12" is asked for, nothing is locked (Python 3.11)'
    ]


def test_tests_run_on_the_versions_that_production_runs_on(tmp_path: Path) -> None:
    production = lock(tmp_path, [f"redis==5.3.1 {HASH}"])
    (tmp_path / "tests").mkdir()
    tested = lock(tmp_path / "tests", [f"redis==5.3.0 {HASH}"])
    assert list(differences(production, production)) == []
    assert [fault.removeprefix(f"{tested}: has redis 5.3.0, ") for fault in differences(production, tested)] == [
        f"{production} has 5.3.1 (Python {python})" for python in ("3.11", "3.12", "3.13")
    ]
