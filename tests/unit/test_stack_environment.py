"""Finding the stack environment, and the sentence for each way in which it can be unusable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inferq.stack import StackEnvironment
from inferq.stack.errors import StackError
from inferq.stack.numpy2 import OFFSET_BYTES, adapted_to_numpy2
from inferq.stack.triton import TritonServer, check_paths


def test_a_missing_environment_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"stack environment .*/nowhere is missing: run `make setup`"):
        StackEnvironment.find({"INFERQ_STACK_VENV": str(tmp_path / "nowhere")})


def test_an_environment_without_the_servers_says_which_one(tmp_path: Path) -> None:
    interpreter = tmp_path / "bin" / "python3"
    interpreter.parent.mkdir()
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    with pytest.raises(StackError, match=r"has no|no stub for Python"):
        StackEnvironment.find({"INFERQ_STACK_VENV": str(tmp_path)})


def test_a_broken_interpreter_shows_its_own_words(tmp_path: Path) -> None:
    interpreter = tmp_path / "bin" / "python3"
    interpreter.parent.mkdir()
    interpreter.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 1\n")
    interpreter.chmod(0o755)
    with pytest.raises(StackError, match="no such luck"):
        StackEnvironment.find({"INFERQ_STACK_VENV": str(tmp_path)})


def test_triton_finds_its_libraries_and_this_environments_python(stack_environment: StackEnvironment) -> None:
    variables = stack_environment.process_environment({"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/opt/lib", "A": "b"})
    assert variables["PATH"] == f"{stack_environment.folder}/bin:/usr/bin"
    assert variables["LD_LIBRARY_PATH"].split(":")[0].endswith("nvidia_pytriton.libs")
    assert variables["LD_LIBRARY_PATH"].split(":")[-1] == "/opt/lib"
    assert variables["A"] == "b"


def test_the_engine_gets_no_setting_of_ours(stack_environment: StackEnvironment) -> None:
    """T: Config: a secret in the environment of `inferq up` is none of the models' business."""
    base = {"INFERQ_WEBHOOK_SECRET": "whsec_a", "INFERQ_REDIS_URL": "redis://:b@c", "PATH": "/usr/bin"}
    assert not [name for name in stack_environment.process_environment(base) if name.startswith("INFERQ_")]


def test_a_model_repository_that_is_no_folder_is_named(stack_environment: StackEnvironment, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"model repository .*/absent is not a folder"):
        TritonServer(stack_environment, [tmp_path / "absent"], tmp_path)


@pytest.mark.parametrize(
    ("repository", "model", "work", "named"),
    [
        ("r s", "m", "w", "r s; a symbolic link without them may lead there"),
        ("r", "m n", "w", "r/m n; rename the model"),
        ("r", "m", "w x", "w x; a symbolic link without them may lead there"),
        ("modèles", "m", "w", "modèles; a symbolic link without them may lead there"),
        ("r", "modèle", "w", "r/modèle; rename the model"),
        ("r", "m", "données", "données; a symbolic link without them may lead there"),
    ],
)
def test_a_path_with_spaces_or_beyond_ascii_is_refused_as_no_model_could_be_loaded(
    tmp_path: Path, repository: str, model: str, work: str, named: str
) -> None:
    (tmp_path / repository / model).mkdir(parents=True)
    with pytest.raises(StackError, match=rf"can't work in a path with spaces or beyond ASCII: {tmp_path}/{named}$"):
        check_paths([tmp_path / repository], tmp_path / work)


def test_the_known_stub_is_adapted_to_numpy_2_in_five_bytes(stack_environment: StackEnvironment) -> None:
    stub = stack_environment.triton_folder / "python_backend_stubs" / "3.13" / "triton_python_backend_stub"
    before = stub.read_bytes()
    after = adapted_to_numpy2(before)
    assert [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new] == list(OFFSET_BYTES)


def test_an_unknown_stub_is_never_used_under_numpy_2() -> None:
    with pytest.raises(StackError, match="numpy < 2"):
        adapted_to_numpy2(b"\x7fELF of another version")
