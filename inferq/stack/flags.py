"""Flags for an own Triton that a person gives, such as `--model-control-mode=explicit --load-model=resnet`.

Owns which of them are refused: those on which the stack itself relies. Triton judges the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from inferq.stack.errors import StackError

RELIED_ON = (
    "allow-grpc",
    "allow-http",
    "backend-directory",
    "exit-timeout-secs",
    "grpc-address",
    "grpc-http2-min-recv-ping-interval-without-data",
    "grpc-keepalive-permit-without-calls",
    "grpc-port",
    "grpc-use-ssl",
    "grpc-use-ssl-mutual",
    "http-address",
    "http-port",
    "log-file",
    "log-format",
    "log-info",
    "metrics-address",
    "metrics-port",
    "model-repository",
    "model-store",
    "reuse-grpc-port",
    "reuse-http-port",
)
SHARED_MEMORY_KEY = "shm-region-prefix-name"


def check_flags(flags: Sequence[str]) -> None:
    """Raise StackError unless these may be given to Triton, each as `--name=value` or `--name value`."""
    if flags and not flags[0].startswith("--"):
        raise StackError(f"{flags[0]!r} is no flag of Triton's: each begins with --")
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if flag.startswith("--") and any(owned.startswith(name) for owned in RELIED_ON):  # it takes abbreviations
            raise StackError(f"Triton's flag --{name} can't be given: inferq up sets it itself")
        if SHARED_MEMORY_KEY in flag:
            raise StackError(f"Triton's {SHARED_MEMORY_KEY} can't be given: inferq up sets it itself")


def completed(flags: Sequence[str]) -> tuple[str, ...]:
    """With what follows from them: a Triton that starts without some models must also say then that it is ready."""
    is_said = any(flag.startswith("--strict-readiness") for flag in flags)
    return (*flags, "--strict-readiness=false") if may_fail(flags) and not is_said else tuple(flags)


def may_fail(flags: Sequence[str]) -> bool:
    """Whether Triton is told to start without the models that it can't load."""
    return "--exit-on-error=false" in flags or ("--exit-on-error", "false") in pairwise(flags)
