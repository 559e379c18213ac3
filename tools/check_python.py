"""Tell whether this interpreter can carry inferq, and what to install when it can't.

Runs before anything is installed, under whatever `python3` is: standard library only, and no syntax newer than 3.6.
"""

import ctypes
import importlib.util
import os
import sys
import sysconfig

FOUND = f"{sys.version_info[0]}.{sys.version_info[1]}"
OLDEST, NEWEST = (3, 11), (3, 13)


def complaints() -> "list[str]":
    """One sentence per thing that is missing, each with its remedy; empty when all is well."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return [
            "inferq needs Python 3.11, 3.12 or 3.13; "
            f"{sys.executable} is {FOUND}. Name another one: make PYTHON=python3.11"
        ]
    missing = []
    if not has_venv():
        missing.append(f"Python's venv module is missing: apt-get install python{FOUND}-venv")
    if not has_shared_library():
        missing.append(f"libpython{FOUND}.so, which the engine needs, is missing: apt-get install libpython{FOUND}")
    return missing


def has_venv() -> bool:
    """True when environments can be made; Debian keeps that part in a package of its own."""
    return all(importlib.util.find_spec(name) for name in ("ensurepip", "venv"))


def has_shared_library() -> bool:
    """True when the engine's Python backend will find the library that it loads this Python from.

    It may lie where the dynamic linker looks or in the interpreter's own folder; 3.13's comes with the engine.
    """
    if sys.version_info[:2] == (3, 13) or not sys.platform.startswith("linux"):
        return True
    name = f"libpython{FOUND}.so.1.0"
    if os.path.exists(os.path.join(sysconfig.get_config_var("LIBDIR") or "", name)):
        return True
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    missing_parts = complaints()
    for sentence in missing_parts:
        print(sentence, file=sys.stderr)
    sys.exit(1 if missing_parts else 0)
