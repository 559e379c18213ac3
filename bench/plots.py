"""Figures as pictures (PNG).

It only draws; which figures there are is the session's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt

from bench.models import SIZER_ENGINES
from bench.session import Figures
from bench.sizer_study import simulate

OURS, OTHERS = "#0b6e4f", "#9aa5b1"
CALLS = 600


def rates(figures: Figures, path: Path) -> None:
    """Sustained rate of every system, a panel for each workload; whiskers from minimum to maximum."""
    plan = figures.plan
    drawing, panels = plt.subplots(1, len(plan.workloads), figsize=(3.6 * len(plan.workloads), 3.2), squeeze=False)
    for axes, workload in zip(panels[0], plan.workloads, strict=True):
        bars = [
            (system, [run.rate for run in runs])
            for system in reversed(plan.systems)
            if (runs := figures.sustained.get((system.key, workload.key)))
        ]
        middles = [median(values) for _, values in bars]
        errors = [
            [middle - min(values) for middle, (_, values) in zip(middles, bars, strict=True)],
            [max(values) - middle for middle, (_, values) in zip(middles, bars, strict=True)],
        ]
        colors = [OURS if system.is_product else OTHERS for system, _ in bars]
        axes.barh([system.key for system, _ in bars], middles, xerr=errors, color=colors, capsize=2)
        axes.set_title(workload.title, fontsize=9)
        axes.set_xlabel("jobs/s")
        _plain(axes)
    _save(drawing, path)


def sizer(path: Path) -> None:
    """The size that the sizer sends and the one that it has settled on, call by call, on three cost functions."""
    drawing, panels = plt.subplots(1, len(SIZER_ENGINES), figsize=(12, 3.2))
    for axes, engine in zip(panels, SIZER_ENGINES, strict=True):
        best = max(engine.sizes, key=lambda size: size / engine.cost.seconds(size))
        steps = simulate(engine, CALLS)
        axes.plot([sent for sent, _ in steps], ".", color=OTHERS, markersize=2, label="sent")
        axes.plot([settled for _, settled in steps], color=OURS, label="settled")
        axes.axhline(best, color="black", linewidth=0.7, linestyle=":", label=f"best: {best}")
        axes.set_yscale("log", base=2)
        axes.set_yticks(engine.sizes, [str(size) for size in engine.sizes], fontsize=7)
        axes.set_title(f"{engine.shape.name}, calls ± 10 %", fontsize=9)
        axes.set_xlabel("calls")
        axes.legend(fontsize=7)
        _plain(axes)
    _save(drawing, path)


def growth(
    costs: Mapping[str, Sequence[tuple[int, float]]], scaling: Mapping[str, Mapping[str, float]], path: Path
) -> None:
    """Cost of each operation by jobs queued, and rates by number of processes and models."""
    drawing, panels = plt.subplots(1, 1 + len(scaling), figsize=(4.2 * (1 + len(scaling)), 3.2), squeeze=False)
    axes = panels[0][0]
    for name, points in costs.items():
        axes.plot([queued for queued, _ in points], [cost for _, cost in points], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("jobs queued")
    axes.set_ylabel("µs of Redis' CPU")
    axes.legend(fontsize=7)
    _plain(axes)
    for axes, (title, rates_by_label) in zip(panels[0][1:], scaling.items(), strict=True):
        axes.bar(list(rates_by_label), list(rates_by_label.values()), color=OURS)
        axes.set_title(title, fontsize=9)
        axes.set_ylabel("jobs/s")
        _plain(axes)
    _save(drawing, path)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _save(drawing: Any, path: Path) -> None:
    drawing.tight_layout()
    drawing.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawing)
