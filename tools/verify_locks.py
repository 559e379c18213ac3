"""Prove, without a network, that the lock files answer to what `pyproject.toml` and the engine's list ask for.

Reads the locks as text and compares them with the ranges; never resolves and never installs (`make lock` does).
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")

Pins = dict[str, Version]
"""Canonical name of a package → the version that is installed."""


def main() -> int:
    """0 when every lock holds; otherwise 1, with one line per fault on stderr."""
    faults = sorted(set(find_faults()))
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        print("run `make lock` and commit what it changes", file=sys.stderr)
    return 1 if faults else 0


def find_faults() -> Iterator[str]:
    """Every disagreement between what is asked for and what is locked, as a sentence."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = described["project"]
    build = requirements_of(described["build-system"]["requires"])
    runtime = requirements_of(project["dependencies"])
    extras = requirements_of(line for extra in ("dev", "heif") for line in project["optional-dependencies"][extra])
    engine = requirements_of((ROOT / "deploy/embedded/requirements.in").read_text().splitlines())

    yield from unmet(build, Path("requirements/build.lock"))
    yield from unmet(runtime, Path("requirements/runtime.lock"))
    yield from unmet([*runtime, *extras], Path("requirements/dev.lock"))
    yield from unmet(engine, Path("deploy/embedded/requirements.lock"))
    yield from differences(Path("requirements/runtime.lock"), Path("requirements/dev.lock"))
    yield from stub_floors(runtime)


def requirements_of(lines: Iterable[str]) -> list[Requirement]:
    """Parse requirement lines; comments and empty lines are nothing."""
    stripped = (line.split(" #")[0].strip() for line in lines)
    return [Requirement(line) for line in stripped if line and not line.startswith("#")]


def unmet(wanted: Sequence[Requirement], lock: Path) -> Iterator[str]:
    """What `lock` lacks, on each supported Python: a pin in range for every requirement, and a hash for every pin."""
    text = (ROOT / lock).read_text()
    if re.search(r"^\s*-(?!-hash)|://", text, re.MULTILINE):
        yield f"{lock}: holds an option or an address; pins and hashes are all it may hold"
        return
    for entry in entries(text):
        if "--hash=sha256:" not in entry:
            yield f"{lock}: {entry.split()[0]} has no hash"
    for python in PYTHONS:
        pins = pins_for(text, python)
        for requirement in wanted:
            if requirement.marker and not requirement.marker.evaluate(environment(python)):
                continue
            version = pins.get(canonicalize_name(requirement.name))
            if version is None or version not in requirement.specifier:
                yield f"{lock}: {requirement} is asked for, {version or 'nothing'} is locked (Python {python})"


def differences(part: Path, whole: Path) -> Iterator[str]:
    """Pins of `part` that `whole` doesn't repeat: tests must run on what production runs on."""
    for python in PYTHONS:
        more = pins_for((ROOT / whole).read_text(), python)
        for name, version in pins_for((ROOT / part).read_text(), python).items():
            if more.get(name) != version:
                yield f"{whole}: has {name} {more.get(name)}, {part} has {version} (Python {python})"


def stub_floors(runtime: Iterable[Requirement]) -> Iterator[str]:
    """Floors of grpcio and protobuf below what the committed stubs refuse to be imported with."""
    floors = {
        requirement.name: max(Version(spec.version) for spec in requirement.specifier if spec.operator == ">=")
        for requirement in runtime
        if requirement.name in ("grpcio", "protobuf")
    }
    stubs = ROOT / "workers/triton/pb"
    needed = {
        "grpcio": found(r"^GRPC_GENERATED_VERSION = '([^']+)'", stubs / "inference_pb2_grpc.py"),
        "protobuf": found(r"^# Protobuf Python Version: (\S+)", stubs / "inference_pb2.py"),
    }
    for name, version in needed.items():
        if floors[name] < version:
            yield f"pyproject.toml: allows {name} {floors[name]}, the stubs need {version}"


def found(pattern: str, path: Path) -> Version:
    """The version that `pattern` captures in a generated file; generators always write it."""
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{path} doesn't say {pattern}")
    return Version(match[1])


def entries(text: str) -> list[str]:
    """The lock's entries, continuation lines joined, comments gone."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    return [line for line in joined.splitlines() if line.strip()]


def pins_for(text: str, python: str) -> Pins:
    """What the lock installs on Linux under `python`, such as `"3.11"`."""
    pins: Pins = {}
    for entry in entries(text):
        requirement = Requirement(entry.split(" --hash")[0])
        if requirement.marker is None or requirement.marker.evaluate(environment(python)):
            (spec,) = requirement.specifier
            pins[canonicalize_name(requirement.name)] = Version(spec.version)
    return pins


def environment(python: str) -> dict[str, str]:
    """The marker environment of the newest patch of `python` on Linux x86-64."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.99",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }


if __name__ == "__main__":
    sys.exit(main())
