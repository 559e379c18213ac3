"""How commands show things: tables for a person at a terminal, plain lines for pipes, JSON lines for machines.

Owns stdout's look and how values become words; must not ask the server for anything.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from inferq.client import Job

_SHOWN_CLASSES: Final = 3
_SHOWN_ELEMENTS: Final = 6
_WIDER_THAN_ANY: Final = 10_000
"""Columns. A terminal that is narrower wraps the line, and an id can still be copied in one piece."""
_WAITING: Final = {
    "backlog": "those before it",
    "schedule": "its run_at",
    "no_worker": "a worker",
    "engine": "the engine",
    "backoff": "its next attempt",
}


def is_terminal() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout.isatty()


def json_line(value: Any) -> None:
    """One JSON document on a line of its own."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under headings on a terminal; elsewhere tab-separated lines without headings. No cell is ever cut."""
    if not is_terminal():
        for row in rows:
            print("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*map(Text, row))
    Console(highlight=False, width=_WIDER_THAN_ANY).print(shown)


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, a line each; what has no value is left out."""
    given = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in given), default=0)
    for name, value in given:
        print(f"{name:<{width}}  {value}")


def job_facts(job: Job) -> Iterable[tuple[str, str]]:
    """What a person wants to know of a job, most important first."""
    raw = job.raw
    yield "id", job.id
    yield "status", job.status
    yield "queue", _queue(raw.get("queue") or {})
    if job.error is not None:
        yield "error", f"{job.error.code}: {job.error.detail}"
    yield "answer", answer(job)
    yield "model", " version ".join(filter(None, (job.model, raw.get("model_version"))))
    yield "created", when(raw.get("created_at"))
    yield "run at", when(raw.get("run_at"))
    yield "started", when(raw.get("started_at"))
    yield "finished", when(raw.get("finished_at"))
    yield "kept until", when(raw.get("expires_at"))
    yield "attempts", str(raw.get("attempt") or "") + (f", {raw['failures']} failed" if raw.get("failures") else "")
    yield "batch", f"{job.batch_size} in one call" if job.batch_size else ""
    yield "webhook", _webhook(raw.get("webhook") or {})
    yield "seconds", _timings(raw.get("timings") or {})
    yield "metadata", json.dumps(raw["metadata"], ensure_ascii=False) if raw.get("metadata") else ""


def answer(job: Job) -> str:
    """A job's output in a few words."""
    if job.output is not None:
        return "; ".join(f"{name}: {value_words(value)}" for name, value in job.output.items())
    return "too large to show here, `inferq result` has it" if job.raw.get("output_omitted") else ""


def best(job: Job) -> str:
    """The shortest useful answer: the best classes of a classifier, otherwise as `answer`; an error's code."""
    if job.error is not None:
        return f"{job.error.code}: {job.error.detail}"
    if job.output is not None and len(job.output) == 1:
        return value_words(next(iter(job.output.values())))
    return answer(job)


def value_words(value: Any) -> str:
    """One output's value: `espresso 0.95, cup 0.02`, or `FP32 [1, 4]: 0.5 1 …`."""
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            return " / ".join(value_words(row) for row in value)
        return ", ".join(class_words(item) for item in value[:_SHOWN_CLASSES])
    data: Sequence[Any] = value["data"]
    elements = " ".join("null" if item is None else f"{item}" for item in data[:_SHOWN_ELEMENTS])
    more = " …" if len(data) > _SHOWN_ELEMENTS else ""
    return f"{value['datatype']} {value['shape']}: {elements}{more}"


def class_words(item: Mapping[str, Any]) -> str:
    """A class as `label score`."""
    score = item["score"]
    name = item["label"] if item["label"] is not None else f"class {item['index']}"
    return f"{name} {score:.2f}" if score is not None else str(name)


def when(timestamp: str | None) -> str:
    """An instant of the contract in the person's own time zone, to the second; '' for none."""
    if not timestamp:
        return ""
    return datetime.fromisoformat(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def seconds_words(seconds: float | None) -> str:
    """A duration: `0.21 s`; '' for none."""
    return f"{seconds:.2f} s" if seconds is not None else ""


def _queue(queue: Mapping[str, Any]) -> str:
    place = f"{queue['position']} of {queue['depth']}" if queue.get("position") else ""
    reason = queue.get("waiting_for")
    return ", ".join(filter(None, (place, f"waiting for {_WAITING.get(reason, reason)}" if reason else "")))


def _webhook(webhook: Mapping[str, Any]) -> str:
    """`delivered, 2 attempts, to URL`; '' for none. A job that has told nothing yet has no status."""
    if not webhook:
        return ""
    attempts = webhook["attempts"]
    words = (webhook["status"] or "nothing to tell yet", attempts and f"{attempts} attempt{'s' * (attempts != 1)}")
    return f"{', '.join(filter(None, words))}, to {webhook['url']}"


def _timings(timings: Mapping[str, float | None]) -> str:
    shown = [(name.removesuffix("_seconds"), value) for name, value in timings.items() if value is not None]
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in shown)
