"""Flags for the engine: the stack keeps those that it relies on to itself, and Triton judges the others."""

from __future__ import annotations

import subprocess

import pytest

from inferq.stack import StackEnvironment, StackError, TritonServer
from inferq.stack.flags import RELIED_ON, check_flags, completed, may_fail
from inferq.stack.triton import MODELS


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--model-control-mode=explicit", "--load-model=a", "--http-thread-count", "8"],
        ["--backend-config=python,shm-default-byte-size=10485760", "--exit-on-error=false", "--log-verbose=1"],
    ],
)
def test_flags_of_tritons_own_affairs_are_taken(flags: list[str]) -> None:
    check_flags(flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["resnet"], "'resnet' is no flag of Triton's: each begins with --"),
        (["--id=a", "--grpc-port", "1"], "--grpc-port can't be given"),
        (["--model-repo=/models"], "--model-repo can't be given"),
        (["--backend-config=python,shm-region-prefix-name=a"], "shm-region-prefix-name can't be given"),
    ],
)
def test_a_flag_on_which_the_stack_relies_is_refused_abbreviated_too(flags: list[str], said: str) -> None:
    with pytest.raises(StackError, match=said):
        check_flags(flags)


def test_whatever_the_stack_sets_is_refused_and_exists(stack_environment: StackEnvironment) -> None:
    server = TritonServer(stack_environment, [MODELS], MODELS.parent)
    for flag in server.process.program.argv[1:]:
        with pytest.raises(StackError, match="can't be given: inferq up sets it itself"):
            check_flags([flag])
    told = subprocess.run(
        [server.process.program.argv[0], "--help"],
        env=stack_environment.process_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [name for name in RELIED_ON if f"--{name}" not in (told.stdout + told.stderr).split()] == []


def test_a_triton_that_starts_without_some_models_also_calls_itself_ready() -> None:
    assert completed(["--exit-on-error", "false"]) == ("--exit-on-error", "false", "--strict-readiness=false")
    said = ("--exit-on-error=false", "--strict-readiness=true")
    assert completed(said) == said
    assert completed(["--id=a"]) == ("--id=a",)
    assert may_fail(said)
    assert not may_fail(["--exit-on-error=true"])
