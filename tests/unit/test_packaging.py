"""What is installed is what the sources hold and what the locks say."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.verify_locks import differences, unmet

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "inferq", "jobs", "workers")
HASH = f"--hash=sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The product's wheel, built from a copy so that the checkout stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", "dist", "."], cwd=source, check=True, timeout=100)
    (built,) = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


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
