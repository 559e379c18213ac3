"""The commands against a server that answers by script: what they print, and the exit status."""

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferq.cli import main
from inferq.client import Client, Job
from inferq.client.tensors import to_binary
from inferq.stack.triton import MODELS
from tests.support.scripted_http import Answer, ScriptedServer, scripted_server

ID = "0123456789abcdef" * 2
NO_MODELS = MODELS / "efficientnet_lite0" / "1"
ESPRESSO = [{"label": "espresso", "index": 967, "score": 0.95219}, {"label": None, "index": 3, "score": 0.01}]


def job(status: str = "queued", job_id: str = ID, **members: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "status": status,
        "done": status not in ("queued", "in_progress"),
        "model": "classifier",
        "model_version": "1",
        "created_at": "2030-01-02T03:04:05.678Z",
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "attempt": 0,
        "failures": 0,
        "queue": {"position": None, "depth": None, "waiting_for": None},
        "output": None,
        "output_omitted": False,
        "error": None,
        "timings": {"total_seconds": None},
        "batch": None,
        "metadata": {},
        **members,
    }


SUCCEEDED = job(
    "succeeded",
    output={"probabilities": ESPRESSO},
    attempt=2,
    failures=1,
    timings={"queue_seconds": 0.001, "total_seconds": 0.214},
    batch={"size": 4, "id": "b"},
    metadata={"from": "tests"},
)
FAILED = job("failed", error={"code": "model_rejected", "title": "t", "detail": "Negative.", "retryable": False})


@dataclass
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `inferq …` in this process."""

    def run(*arguments: str | Path, server: ScriptedServer | None = None, terminal: bool = False) -> Ran:
        monkeypatch.setattr(sys, "argv", ["inferq", *map(str, arguments)])
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        if server is not None:
            monkeypatch.setenv("INFERQ_URL", server.url)
        status: Any = 0
        try:
            main()
        except SystemExit as exc:
            status = exc.code or 0
        return Ran(status, *capsys.readouterr())

    return run


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    for path in paths:
        path.write_bytes(b"pixels of " + path.name.encode())
    return paths


def problem(status: int, code: str, detail: str, **members: Any) -> Answer:
    return Answer(status, {"status": status, "code": code, "title": "No", "detail": detail, **members})


def test_submit_prints_an_id_a_line_for_the_next_command_to_read(run: Run, photos: list[Path]) -> None:
    with scripted_server([Answer(202, job(job_id="1" * 32)), Answer(202, job(job_id="2" * 32))]) as server:
        ran = run("submit", "classifier", *photos, "--option", "priority=high", server=server)
    assert (ran.status, ran.out, ran.err) == (0, f"{'1' * 32}\n{'2' * 32}\n", "")
    assert b"pixels of a.jpg" in server.seen[0].body
    assert b"pixels of b.jpg" in server.seen[1].body
    assert b"high" in server.seen[0].body


def test_submit_and_wait_prints_each_answer(run: Run, photos: list[Path]) -> None:
    answers = [Answer(202, job()), Answer(202, job()), Answer(200, SUCCEEDED)]
    with scripted_server(answers) as server:
        ran = run("submit", "classifier", *photos, "--wait", server=server)
    assert ran.status == 0
    assert ran.out.splitlines() == [
        f"{photo}\tsucceeded\tespresso 0.95, class 3 0.01\t0.21 s\t{ID}" for photo in photos
    ]


def test_submit_and_wait_ends_with_1_when_a_job_fails_and_says_why(run: Run, photos: list[Path]) -> None:
    with scripted_server([Answer(202, job()), Answer(200, FAILED)]) as server:
        ran = run("submit", "classifier", photos[0], "--wait", server=server)
    assert ran.status == 1
    assert "failed\tmodel_rejected: Negative." in ran.out


def test_a_refused_file_does_not_hold_up_the_others(run: Run, photos: list[Path]) -> None:
    refusal = problem(422, "invalid_image", "Not a picture.")
    with scripted_server([refusal, Answer(202, job())]) as server:
        ran = run("submit", "classifier", *photos, server=server)
    assert ran.status == 1
    assert ran.out == f"{ID}\n"
    assert ran.err == f"inferq: {photos[0]}: Not a picture.\ninferq: 1 of 2 accepted\n"


def test_ids_are_printed_before_the_next_file_is_sent_and_not_lost_when_it_fails(
    run: Run, photos: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    send = Client.submit

    def noted(client: Client, *arguments: Any, **options: Any) -> Job:
        printed.append(capsys.readouterr().out)
        return send(client, *arguments, **options)

    monkeypatch.setattr(Client, "submit", noted)
    gone = problem(404, "unknown_model", "There is no model 'm'.")
    with scripted_server([Answer(202, job(job_id="1" * 32)), gone]) as server:
        ran = run("submit", "m", *photos, server=server)
    assert (printed, ran.status) == (["", f"{'1' * 32}\n"], 1)
    assert ran.err.startswith("inferq: 1 of 2 accepted\n")


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--wait",), ("--wait", "--json")])
@pytest.mark.parametrize("terminal", [True, False])
def test_no_id_is_lost_when_a_later_file_fails(
    run: Run, photos: list[Path], arguments: tuple[str, ...], terminal: bool
) -> None:
    gone = problem(404, "unknown_model", "There is no model 'm'.")
    with scripted_server([Answer(202, job(job_id="1" * 32)), gone]) as server:
        ran = run("submit", "m", *photos, *arguments, server=server, terminal=terminal)
    assert ran.out.count("1" * 32) == 1


def test_a_priority_has_an_option_of_its_own(run: Run, photos: list[Path]) -> None:
    with scripted_server([Answer(202, job())]) as server:
        assert run("submit", "m", photos[0], "--priority", "high", server=server).status == 0
    assert b"high" in server.seen[0].body


def test_a_result_that_can_not_be_written_is_a_sentence(run: Run, tmp_path: Path) -> None:
    with scripted_server([array_result(x=np.arange(3))]) as server:
        for ending in ("npy", "npz"):
            ran = run("result", ID, "--to", tmp_path / "nope" / f"r.{ending}", server=server)
            assert (ran.status, ran.err.splitlines()[0].rpartition(" can't be ")[2]) == (
                1,
                "written: No such file or directory",
            )
    with scripted_server([Answer(200, {"best": ESPRESSO})]) as server:
        ran = run("result", ID, "--to", tmp_path / "nope" / "r.json", server=server)
    assert (ran.status, "can't be written" in ran.err) == (1, True)


def test_an_unknown_model_ends_the_command_and_lists_those_there_are(run: Run, photos: list[Path]) -> None:
    refusal = problem(404, "unknown_model", "There is no model 'x'.", models=["a", "b"])
    with scripted_server([refusal]) as server:
        ran = run("submit", "x", *photos, server=server)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "inferq: 0 of 2 accepted\ninferq: There is no model 'x'.\nThere are: a, b.\n"
    assert len(server.seen) == 1


def test_named_inputs_make_one_job(run: Run, photos: list[Path]) -> None:
    with scripted_server([Answer(202, job())]) as server:
        ran = run("submit", "m", "--input", f"left={photos[0]}", "--input", f"right={photos[1]}", server=server)
    assert (ran.status, ran.out) == (0, f"{ID}\n")
    (seen,) = server.seen
    assert b'name="left"' in seen.body
    assert b'name="right"' in seen.body


def test_a_dash_reads_the_input_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x93piped")))
    with scripted_server([Answer(202, job())]) as server:
        ran = run("submit", "m", "-", server=server)
    assert ran.status == 0
    assert b"\x93piped" in server.seen[0].body


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["submit", "m"], "either files or --input"),
        (["submit", "m", "missing.jpg"], "missing.jpg is not a file"),
        (["submit", "m", __file__, "--option", "priority"], "'priority' is not NAME=VALUE"),
        (["submit", "m", __file__, "--option", "colour=red"], "there is no option colour; there are model_version"),
        (["models", "--url", "localhost"], "'localhost' is not the address of a server"),
        (["result", ID, "--to", "x.jpg"], "names no format"),
        (["frobnicate"], "No such command"),
        (["get"], "Missing argument"),
        (["up", "--port", "99999"], "--port"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_is_wrong(run: Run, arguments: list[str], complaint: str) -> None:
    with scripted_server([Answer(202, job())]) as server:
        ran = run(*arguments, server=server)
    assert ran.status == 2
    assert complaint in ran.err
    assert ran.out == ""
    assert server.seen == []


def test_a_server_that_is_not_there_is_told_at_once_with_what_to_do(run: Run) -> None:
    with scripted_server([Answer()]) as server:
        pass
    ran = run("models", server=server)
    assert ran.status == 1
    assert ran.err.splitlines() == [
        f"inferq: nothing answers at {server.url}: Connection refused",
        "Start a server with `inferq up`, or name a running one with --url or INFERQ_URL.",
    ]


def test_get_shows_what_a_person_wants_to_know(run: Run) -> None:
    with scripted_server([Answer(200, SUCCEEDED)]) as server:
        lines = dict(line.split(maxsplit=1) for line in run("get", ID, server=server).out.splitlines())
    assert lines["status"] == "succeeded"
    assert lines["answer"] == "probabilities: espresso 0.95, class 3 0.01"
    assert lines["attempts"] == "2, 1 failed"
    assert lines["batch"] == "4 in one call"
    assert lines["seconds"] == "queue 0.001, total 0.214"
    assert lines["metadata"] == '{"from": "tests"}'
    assert "error" not in lines


@pytest.mark.parametrize(
    ("status", "attempts", "shown"),
    [
        (None, 0, "nothing to tell yet, to http://r/"),
        ("pending", 1, "pending, 1 attempt, to http://r/"),
        ("delivered", 2, "delivered, 2 attempts, to http://r/"),
    ],
)
def test_get_shows_how_far_the_webhook_is(run: Run, status: str | None, attempts: int, shown: str) -> None:
    told = {**SUCCEEDED, "webhook": {"url": "http://r/", "status": status, "attempts": attempts}}
    with scripted_server([Answer(200, told)]) as server:
        assert f"webhook   {shown}\n" in run("get", ID, server=server).out


def test_get_says_what_a_queued_job_waits_for(run: Run) -> None:
    queued = job(queue={"position": 3, "depth": 9, "waiting_for": "engine"})
    with scripted_server([Answer(200, queued)]) as server:
        assert "queue    3 of 9, waiting for the engine\n" in run("get", ID, server=server).out


def test_get_with_json_prints_the_job_object_as_it_came(run: Run) -> None:
    with scripted_server([Answer(200, SUCCEEDED)]) as server:
        assert run("get", ID, "--json", server=server).documents == [SUCCEEDED]


def test_get_and_wait_ends_with_1_for_a_job_that_failed_or_is_late(run: Run) -> None:
    with scripted_server([Answer(200, FAILED)]) as server:
        ran = run("get", ID, "--wait", server=server)
    assert (ran.status, "model_rejected: Negative." in ran.out) == (1, True)
    with scripted_server([Answer(200, job("in_progress"))]) as server:
        ran = run("get", ID, "--wait", "--timeout", "0", server=server)
    assert ran.status == 1
    assert "not done after 0 s; it is in_progress" in ran.err
    assert f"inferq get {ID} --wait" in ran.err


def test_an_unknown_job_is_a_sentence_and_a_next_step(run: Run) -> None:
    with scripted_server([problem(404, "unknown_job", "There is no job with this id.")]) as server:
        ran = run("get", ID, server=server)
    assert ran.status == 1
    assert ran.err == "inferq: There is no job with this id.\n`inferq list` shows the jobs that there are.\n"


def test_a_result_is_json_in_a_pipe_and_words_at_a_terminal(run: Run) -> None:
    output = {"best": ESPRESSO, "y": {"datatype": "FP32", "shape": [7], "data": [1.5, None, 0, 0, 0, 0, 0]}}
    with scripted_server([Answer(200, output)]) as server:
        assert run("result", ID, server=server).documents == [output]
        assert run("result", ID, "--output", "best", server=server).documents == [{"best": ESPRESSO}]
        shown = run("result", ID, server=server, terminal=True).out
    assert shown.splitlines() == ["espresso 0.95", "class 3 0.01", "y: FP32 [7]: 1.5 null 0 0 0 0 …"]


def array_result(**arrays: Any) -> Answer:
    length, body = to_binary(arrays, {})
    header = body[:length].replace(b'"inputs"', b'"outputs"')
    return Answer(200, header + body[length:], {"Inference-Header-Content-Length": str(len(header))})


def test_a_result_is_written_in_the_format_that_the_files_ending_names(run: Run, tmp_path: Path) -> None:
    x, y = np.array([1.5, np.nan], dtype=np.float32), np.arange(3)
    with scripted_server([array_result(x=x, y=y)]) as server:
        run("result", ID, "--output", "x", "--to", tmp_path / "x.npy", server=server)
        run("result", ID, "--to", tmp_path / "all.npz", server=server)
        ran = run("result", ID, "--to", tmp_path / "all.npy", server=server)
    assert np.load(tmp_path / "x.npy").tobytes() == x.tobytes()
    assert np.load(tmp_path / "all.npz")["y"].tolist() == y.tolist()
    assert ran.status == 1
    assert "Choose one of x, y with --output" in ran.err
    with scripted_server([Answer(200, {"best": ESPRESSO})]) as server:
        run("result", ID, "--to", tmp_path / "best.json", server=server)
    assert json.loads((tmp_path / "best.json").read_text()) == {"best": ESPRESSO}


def test_texts_are_written_to_npy_unless_it_would_change_them(run: Run, tmp_path: Path) -> None:
    """B036."""
    with scripted_server([array_result(t=np.array([b"ab", b"c"])), Answer(200, {})]) as server:
        run("result", ID, "--to", tmp_path / "t.npy", server=server)
    assert np.load(tmp_path / "t.npy").tolist() == [b"ab", b"c"]
    with scripted_server([array_result(t=np.array([b"ab\0"], dtype=object)), Answer(200, {})]) as server:
        ran = run("result", ID, "--to", tmp_path / "u.npy", server=server)
    assert (ran.status, (tmp_path / "u.npy").exists()) == (1, False)
    assert "loses the NULs" in ran.err


def test_a_result_that_is_not_there_says_why(run: Run) -> None:
    with scripted_server([Answer(202, job("in_progress"))]) as server:
        ran = run("result", ID, server=server)
    assert (ran.status, ran.out) == (1, "")
    assert f"Wait for it with `inferq get {ID} --wait`" in ran.err
    with scripted_server([problem(409, "no_result", "Ended.", error=FAILED["error"])]) as server:
        ran = run("result", ID, server=server)
    assert "inferq: Negative." in ran.err


def test_cancel_prints_how_each_job_stands_and_delete_is_silent(run: Run) -> None:
    with scripted_server([Answer(200, job("canceled"))]) as server:
        assert run("cancel", ID, ID, server=server).out == f"{ID} canceled\n" * 2
        assert run("delete", ID, "--force", server=server).out == ""
    assert server.seen[-1].path == f"/jobs/{ID}?force=true"


def test_list_shows_no_more_than_the_limit(run: Run) -> None:
    page = Answer(200, {"jobs": [SUCCEEDED, job()], "next_cursor": "more"})
    with scripted_server([page]) as server:
        rows = run("list", "--limit", "3", "--status", "queued", server=server).out.splitlines()
    assert [row.split("\t")[:3] for row in rows] == [
        [ID, "classifier", "succeeded"],
        [ID, "classifier", "queued"],
        [ID, "classifier", "succeeded"],
    ]
    assert server.seen[0].path == "/jobs?status=queued&limit=3"


def test_models_shows_what_each_takes_and_whether_it_is_ready(run: Run) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1], "kind": "tensor"}
    image = {"name": "photo", "datatype": "UINT8", "shape": [224, 224, 3], "kind": "image"}
    mask = {"name": "mask", "datatype": "BOOL", "shape": [1], "optional": True, "kind": "tensor"}
    common = {"outputs": [tensor], "queued": 2, "workers": 1}
    models = [
        {"name": "a", "ready": True, "refusal": None, "max_batch_size": 8, "inputs": [image, mask], **common},
        {"name": "b", "ready": False, "refusal": "It is stateful.", "max_batch_size": 0, "inputs": [tensor], **common},
    ]
    older = {"versions": ["1", "2"], "ready": True, "refusal": None, "max_batch_size": 4, "inputs": [mask]}
    models[1]["variants"] = [{**older, "outputs": [tensor]}]
    with scripted_server([Answer(200, {"models": models})]) as server:
        plain = run("models", server=server).out
        assert run("models", "--json", server=server).documents == models
    assert [row.split("\t") for row in plain.splitlines()] == [
        ["a", "yes", "photo: image (UINT8 [224, 224, 3]), mask: BOOL [1] optional", "x: FP32 [-1]", "8", "2", "1"],
        ["b", "It is stateful.", "x: FP32 [-1]", "x: FP32 [-1]", "none", "2", "1"],
        ["b version 1, 2", "yes", "mask: BOOL [1] optional", "x: FP32 [-1]", "4", "", ""],
    ]


def test_a_table_at_a_terminal_has_headings_and_cuts_no_id(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with scripted_server([Answer(200, {"jobs": [SUCCEEDED], "next_cursor": None})]) as server:
        shown = run("list", server=server, terminal=True).out
    heading, row = re.sub(r"\x1b\[\d+m", "", shown).splitlines()
    assert heading.split() == ["ID", "MODEL", "STATUS", "CREATED", "SECONDS", "BATCH"]
    assert row.split()[0] == ID
    assert row.split()[-2:] == ["0.214", "4"]


def test_help_names_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.status == 0
    for command in ("up", "demo", "submit", "get", "result", "cancel", "delete", "list", "models", "keys"):
        assert command in ran.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--host", "no.such.host.invalid"], "can't be resolved"),
        (["--models", "no/such/folder"], "the model repository no/such/folder is not a folder"),
        (["--models", str(NO_MODELS)], f"the model repository {NO_MODELS} has no models"),
        (["--engine", "localhost"], "the engine's address 'localhost' is not HOST:PORT"),
        (["--models", str(MODELS / "identity")], "is a model, not a model repository"),
    ],
)
def test_a_stack_that_can_not_start_says_why(run: Run, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    ran = run("up", *arguments, "--port", "0", "--data", tmp_path / "data")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("inferq: ")
    assert complaint in ran.err
    assert not (tmp_path / "data").exists()


def test_a_data_folder_that_can_not_be_made_is_a_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run("up", "--port", "0", "--data", tmp_path / "file" / "data")
    assert (ran.status, len(ran.err.splitlines())) == (1, 1)
    assert "can't be written: Not a directory; use another --data" in ran.err
