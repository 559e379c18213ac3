"""`inferq submit`, `get`, `result`, `cancel`, `delete` and `list`.

Owns what each asks the server and shows; spelling and defaults are `inferq.cli`'s.
"""

import itertools
import json
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from inferq.client import Client, Job, RequestRefused
from inferq.commands import screen
from inferq.commands.exit import CommandFailed
from inferq.commands.failure import WRONG_USE, connected, next_step

_FORMATS: Final = (".json", ".npy", ".npz")

Named = tuple[str, Any]
"""What a person calls a job's input, and the input."""


def submit(
    url: str,
    model: str,
    files: Sequence[Path],
    inputs: Sequence[str],
    options: Sequence[str],
    *,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """A job for each file, or one job from the named inputs."""
    said = dict(_pair("--option", option) for option in options)
    named = _named_inputs(files, inputs)
    with connected(url) as client:
        jobs = _accepted(client, model, named, said, wait=wait, as_json=as_json)
        if wait:
            jobs = _waited(client, jobs, timeout)
            _show_answers(jobs, as_json=as_json)
    if len(jobs) < len(named) or (wait and not all(job.succeeded for _, job in jobs)):
        raise SystemExit(1)


def get(url: str, job_id: str, *, wait: bool, timeout: float | None, as_json: bool) -> None:
    """One job; after a wait the status is 1 unless it succeeded."""
    with connected(url) as client:
        job = client.wait(job_id, timeout) if wait else client.get(job_id)
    if as_json:
        screen.json_line(job.raw)
    else:
        screen.facts(screen.job_facts(job))
    if wait and not job.succeeded:
        raise SystemExit(1)


def result(url: str, job_id: str, *, output: str | None, to: Path | None, as_json: bool) -> None:
    """A result on the screen, or in a file whose ending says the format."""
    if to is not None and to.suffix not in _FORMATS:
        raise CommandFailed(
            f"the ending of {to} names no format", "Use .json, .npy (one output) or .npz (all).", status=WRONG_USE
        )
    with connected(url) as client:
        if to is not None and to.suffix != ".json":
            with _writing(to):
                _write_arrays(to, _chosen(client.result(job_id), output))
            return
        values = _chosen(client.result_json(job_id), output)
    if to is not None:
        with _writing(to):
            to.write_text(json.dumps(values, ensure_ascii=False) + "\n")
    elif as_json or not screen.is_terminal():
        screen.json_line(values)
    else:
        for name, value in values.items():
            _show_value(name, value)


def cancel(url: str, job_ids: Sequence[str], *, as_json: bool) -> None:
    """Cancel jobs; those that were done already are left as they are."""
    with connected(url) as client:
        for job_id in job_ids:
            job = client.cancel(job_id)
            if as_json:
                screen.json_line(job.raw)
            else:
                print(f"{job.id} {job.status}")


def delete(url: str, job_ids: Sequence[str], *, force: bool) -> None:
    """Forget jobs with their input and output."""
    with connected(url) as client:
        for job_id in job_ids:
            client.delete(job_id, force=force)


def show_list(url: str, *, status: str | None, model: str | None, limit: int, as_json: bool) -> None:
    """The newest jobs."""
    with connected(url) as client:
        jobs = itertools.islice(client.list(status=status, model=model, page_size=min(limit, 200)), limit)
        if as_json:
            for job in jobs:
                screen.json_line(job.raw)
            return
        columns = ("ID", "MODEL", "STATUS", "CREATED", "SECONDS", "BATCH")
        screen.table(columns, [_list_row(job) for job in jobs])


def _list_row(job: Job) -> tuple[str, ...]:
    seconds = "" if job.total_seconds is None else f"{job.total_seconds:.3f}"
    return job.id, job.model, job.status, screen.when(job.raw.get("created_at")), seconds, str(job.batch_size or "")


def _named_inputs(files: Sequence[Path], inputs: Sequence[str]) -> list[Named]:
    if bool(files) == bool(inputs):
        raise CommandFailed("give either files or --input NAME=FILE", "See `inferq submit --help`.", status=WRONG_USE)
    if files:
        return [(str(path), _file(path)) for path in files]
    parts = dict(_pair("--input", item) for item in inputs)
    return [(", ".join(inputs), {name: _file(Path(path)) for name, path in parts.items()})]


def _file(path: Path) -> Path | bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    if not path.is_file():
        raise CommandFailed(f"{path} is not a file", "Correct its name.", status=WRONG_USE)
    return path


def _pair(option: str, text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise CommandFailed(f"{option} {text!r} is not NAME=VALUE", "See `inferq submit --help`.", status=WRONG_USE)
    return name, value


def _accepted(
    client: Client, model: str, named: Sequence[Named], options: Mapping[str, Any], *, wait: bool, as_json: bool
) -> list[tuple[str, Job]]:
    """The jobs, each shown as soon as it is accepted unless its answer or a table follows: ids must not get lost."""
    jobs: list[tuple[str, Job]] = []
    at_once = not wait and (as_json or len(named) == 1 or not screen.is_terminal())
    is_through = False
    try:
        for name, job in _submitted(client, model, named, options):
            jobs.append((name, job))
            if at_once:
                _show_accepted([(name, job)], as_json=as_json)
        is_through = True
    finally:
        if jobs and not at_once and not (wait and is_through):
            _show_accepted(jobs, as_json=as_json)
        if 1 < len(named) > len(jobs):
            print(f"inferq: {len(jobs)} of {len(named)} accepted", file=sys.stderr)
    return jobs


def _show_accepted(jobs: Sequence[tuple[str, Job]], *, as_json: bool) -> None:
    if screen.is_terminal() and len(jobs) > 1 and not as_json:
        screen.table(("FILE", "ID"), [(name, job.id) for name, job in jobs])
        return
    for _, job in jobs:
        if as_json:
            screen.json_line(job.raw)
        else:
            print(job.id, flush=True)


def _submitted(
    client: Client, model: str, named: Iterable[Named], options: Mapping[str, Any]
) -> Iterator[tuple[str, Job]]:
    """Each input's job. One that is refused is told on stderr, and the others go on: they are jobs of their own."""
    for name, value in named:
        try:
            yield name, client.submit(model, value, **options)
        except ValueError as exc:
            raise CommandFailed(str(exc), "See `inferq submit --help`.", status=WRONG_USE) from exc
        except OSError as exc:
            print(f"inferq: {name}: {exc.strerror}", file=sys.stderr)
        except RequestRefused as exc:
            if exc.status == 404:
                raise
            print(f"inferq: {name}: {exc} {next_step(exc)}".rstrip(), file=sys.stderr)


def _waited(client: Client, jobs: Sequence[tuple[str, Job]], timeout: float | None) -> list[tuple[str, Job]]:
    """The same jobs once they are done; `timeout` is for all of them together."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    return [
        (name, client.wait(job, None if ends_at is None else max(0.0, ends_at - time.monotonic())))
        for name, job in jobs
    ]


def _show_answers(jobs: Sequence[tuple[str, Job]], *, as_json: bool) -> None:
    if as_json:
        for _, job in jobs:
            screen.json_line(job.raw)
        return
    rows = [(name, job.status, screen.best(job), screen.seconds_words(job.total_seconds), job.id) for name, job in jobs]
    screen.table(("FILE", "STATUS", "ANSWER", "TIME", "ID"), rows)


def _show_value(name: str, value: Any) -> None:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            print(screen.class_words(item))
    else:
        print(f"{name}: {screen.value_words(value)}")


def _chosen(values: Mapping[str, Any], output: str | None) -> Mapping[str, Any]:
    if output is None:
        return values
    if output not in values:
        raise CommandFailed(f"the job has no output {output!r}", f"It has {', '.join(values)}.")
    return {output: values[output]}


@contextmanager
def _writing(to: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise CommandFailed(f"{to} can't be written: {exc.strerror}", "Name another file with --to.") from exc


def _write_arrays(to: Path, values: Mapping[str, Any]) -> None:
    from inferq.client.tensors import to_npy

    if any(isinstance(value, list) for value in values.values()):
        raise CommandFailed("classes are no array", f"Write them to {to.with_suffix('.json')}.", status=WRONG_USE)
    if to.suffix == ".npy" and len(values) != 1:
        names = ", ".join(values)
        raise CommandFailed(
            "an .npy file holds one array", f"Choose one of {names} with --output, or write to an .npz file."
        )
    try:
        files = {name: to_npy(array) for name, array in values.items()}
    except ValueError as exc:
        raise CommandFailed(str(exc), f"Write it to {to.with_suffix('.json')}.") from exc
    if to.suffix == ".npy":
        to.write_bytes(*files.values())
        return
    with zipfile.ZipFile(to, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"{name}.npy", data)
