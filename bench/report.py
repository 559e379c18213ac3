"""Figures as a Markdown page: the goals with what was measured beside them, then every system on every workload.

Pure text; it must not measure or draw.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.measure import Sustained, percentile
from bench.session import Figures

PACKAGES = (
    "inferq", "fastapi", "uvicorn", "uvloop", "httptools", "redis", "hiredis", "grpcio", "protobuf", "arq", "saq",
    "celery",
)  # fmt: skip
MOST_ROUND_TRIPS, MOST_COMMANDS = 3.0, 12.0


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its extremes."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle."""
        return median(self.values)

    def text(self, form: str = ".0f") -> str:
        """Median (min to max)."""
        if len(self.values) == 1:
            return f"{self.values[0]:{form}}"
        return f"{self.median:{form}} ({min(self.values):{form}}–{max(self.values):{form}})"


@dataclass(frozen=True, slots=True)
class Row:
    """One goal."""

    what: str
    goal: str
    figure: str
    is_met: bool


def page(figures: Figures) -> str:
    """The whole page."""
    rows = list(goals(figures))
    parts = [
        "# Measured",
        f"{datetime.now(UTC):%Y-%m-%d}, in {figures.took_seconds / 60:.1f} minutes by `make bench`: "
        f"{figures.plan.rounds} rounds, in which all systems take turns on the same machine, Redis and engine. "
        " Figures are medians, with minimum and maximum in brackets; ratios are taken within a round.",
        machine(),
        "## Goals",
        table(
            ("what", "goal", "measured", ""),
            [(row.what, row.goal, row.figure, "met" if row.is_met else "**missed**") for row in rows],
        ),
        "## Sustained rate, jobs/s: first submit to last end",
        _by_system(figures, lambda runs: Spread(tuple(run.rate for run in runs)).text()),
        "## CPU, µs for a job, by process (the load generator left out)",
        table(("system", "workload", "api", "worker", "Redis", "engine", "sum"), list(_cpu_rows(figures))),
        "## Redis, for a job",
        table(("system", "workload", "round trips", "commands", "the most frequent"), list(_redis_rows(figures))),
        "## One job alone, 64 bytes, ms from upload until its client knows that it ended",
        "inferq's client waits with `Prefer: wait`; those of the other queues ask every 2 ms.",
        table(("system", "p50", "p95", "p99", "jobs"), list(_alone_rows(figures))),
        *_bare_part(figures),
        *_sizer_part(figures),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """CPU, kernel and versions."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    cores = Path("/proc/cpuinfo").read_text().count("processor\t")
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{cpu}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}; Triton 2.51 "
        f"(nvidia-pytriton), Valkey 9 (append-only file, fsync every second); {versions}."
    )


def goals(figures: Figures) -> Iterable[Row]:
    """DESIGN's numbers to hold, as far as they were measured."""
    for key, title, least in (
        ("arq", "tuned arq", 5.0),
        ("saq", "SAQ", 3.0),
        ("plain", "FastAPI + grpc.aio, no queue", 1.0),
    ):
        if spread := _ratio(figures, key):
            yield Row(
                f"sustained jobs/s, 64-byte tensors, over {title}",
                f"≥ {least:g}×",
                _times(spread),
                spread.median >= least,
            )
    if ours := figures.sustained.get(("inferq", "tiny")):
        trips = Spread(tuple(run.round_trips for run in ours))
        commands = Spread(tuple(sum(run.commands.values()) for run in ours))
        figure = f"{trips.text('.2f')} round trips, {commands.text('.1f')} commands"
        is_met = trips.median <= MOST_ROUND_TRIPS and commands.median <= MOST_COMMANDS
        yield Row("Redis for a job, at saturation", "≤ 3 round trips, ≤ 12 commands", figure, is_met)
    if "inferq" in figures.alone and "bare" in figures.alone:
        over = {
            share: (percentile(figures.alone["inferq"], share) - percentile(figures.alone["bare"], 0.5)) * 1000
            for share in (0.5, 0.99)
        }
        figure = f"p50 {over[0.5]:.1f} ms, p99 {over[0.99]:.1f} ms"
        is_met = over[0.5] <= 4 and over[0.99] <= 15
        yield Row("one job alone, over a bare ModelInfer", "p50 ≤ 4 ms, p99 ≤ 15 ms", figure, is_met)
    for workload, title, key, least in (
        ("prepared", "EfficientNet-Lite0, prepared tensors, over the best bare rate", "photos", 0.88),
        ("photos", "EfficientNet-Lite0, JPEG uploads, over the best bare rate", "photos", 0.75),
        ("accelerator", "simulated accelerator, over the best bare rate", "accelerator", 0.95),
    ):
        if spread := _over_bare(figures, workload, key):
            yield Row(title, f"≥ {least:.2f}", spread.text(".2f"), spread.median >= least)
    for found in figures.sizer.values():
        shares = tuple(learned / fixed for learned, fixed in zip(found.learned, found.fixed, strict=True))
        spread = Spread(shares)
        title = f"batch sizer over the best fixed size, {found.engine.shape.name} (best: {found.best})"
        yield Row(title, "≥ 0.95", spread.text(".2f"), spread.median >= 0.95)
    if figures.redelivery_seconds is not None:
        yield Row(
            "redelivery after `kill -9` of a worker",
            "≤ 20 s",
            f"{figures.redelivery_seconds:.1f} s",
            figures.redelivery_seconds <= 20,
        )
    if figures.polls:
        small, large = figures.polls
        figure = (
            f"{small.answer_bytes} B, {small.cpu_us:.0f} µs; for 1 MB: {large.answer_bytes} B, {large.cpu_us:.0f} µs"
        )
        is_met = large.answer_bytes < 4 * small.answer_bytes and large.cpu_us < 1.5 * small.cpu_us
        yield Row("status poll: independent of the payload", "the same for 64 B and 1 MB", figure, is_met)


def _times(spread: Spread) -> str:
    return " ".join(f"{part}×" if part[-1].isdigit() else part for part in [spread.text(".2f")])


def _ratio(figures: Figures, other: str) -> Spread | None:
    ours, theirs = figures.sustained.get(("inferq", "tiny")), figures.sustained.get((other, "tiny"))
    if not ours or not theirs:
        return None
    return Spread(tuple(a.rate / b.rate for a, b in zip(ours, theirs, strict=True)))


def _over_bare(figures: Figures, workload: str, key: str) -> Spread | None:
    ours, sweeps = figures.sustained.get(("inferq", workload)), figures.bare.get(key)
    if not ours or not sweeps:
        return None
    return Spread(tuple(run.rate / max(b.rate for b in sweep) for run, sweep in zip(ours, sweeps, strict=True)))


def _by_system(figures: Figures, text: Callable[[list[Sustained]], str]) -> str:
    plan = figures.plan
    rows = [
        (
            system.title,
            *(text(runs) if (runs := figures.sustained.get((system.key, w.key))) else "–" for w in plan.workloads),
        )
        for system in plan.systems
    ]
    return table(("system", *(w.title for w in plan.workloads)), rows)


def _cpu_rows(figures: Figures) -> Iterable[Sequence[str]]:
    titles = {system.key: system.title for system in figures.plan.systems}
    for (system, workload), runs in figures.sustained.items():
        costs = [
            Spread(tuple(run.cpu_us.get(name, 0.0) for run in runs)).median
            for name in ("api", "worker", "valkey", "triton")
        ]
        yield (titles[system], workload, *(f"{cost:.0f}" for cost in costs), f"{sum(costs):.0f}")


def _redis_rows(figures: Figures) -> Iterable[Sequence[str]]:
    titles = {system.key: system.title for system in figures.plan.systems}
    for (system, workload), runs in figures.sustained.items():
        if workload != "tiny" or system == "plain":
            continue
        last = runs[-1].commands
        top = sorted(last.items(), key=lambda item: -item[1])[:8]
        yield (
            titles[system],
            workload,
            Spread(tuple(run.round_trips for run in runs)).text(".2f"),
            Spread(tuple(sum(run.commands.values()) for run in runs)).text(".1f"),
            ", ".join(f"{name} {calls:.2f}" for name, calls in top),
        )


def _alone_rows(figures: Figures) -> Iterable[Sequence[str]]:
    titles = {system.key: system.title for system in figures.plan.systems} | {"bare": "a bare ModelInfer"}
    for key, seconds in figures.alone.items():
        yield (
            titles[key],
            *(f"{percentile(seconds, share) * 1000:.2f}" for share in (0.5, 0.95, 0.99)),
            str(len(seconds)),
        )


def _bare_part(figures: Figures) -> list[str]:
    parts: list[str] = []
    for key, sweeps in figures.bare.items():
        points = [(bare.rows, bare.concurrency) for bare in sweeps[0]]
        rows = [
            (str(rows), str(concurrency), Spread(tuple(sweep[i].rate for sweep in sweeps)).text())
            for i, (rows, concurrency) in enumerate(points)
        ]
        parts += [f"## The bare engine, {key}", table(("batch", "at a time", "items/s"), rows)]
    return parts


def _sizer_part(figures: Figures) -> list[str]:
    if not figures.sizer:
        return []
    rows = [
        (
            found.engine.shape.name,
            ", ".join(f"{size}: {rate:.0f}" for size, rate in found.bare.items()),
            Spread(tuple(found.fixed)).text(),
            Spread(tuple(found.learned)).text(),
        )
        for found in figures.sizer.values()
    ]
    return [
        "## Batch sizer, items/s",
        table(("engine", "bare, by size", "inferq at the best size", "inferq, learning"), rows),
    ]


def summary(figures: Figures) -> str:
    """The goals, for a terminal."""
    lines = [
        f"{'met   ' if row.is_met else 'MISSED'}  {row.what}: {row.figure}  (goal: {row.goal})"
        for row in goals(figures)
    ]
    return "\n".join([f"Python {sys.version.split()[0]}", *lines])
