"""`python -m bench`: measure the product beside its alternatives; `python -m bench growth`: how costs grow.

It owns arguments and where results go.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench import growth, plots, report, session
from bench.systems import SYSTEMS
from bench.workloads import chosen

RESULTS = Path(__file__).parent / "results"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("run", "smoke", "growth"), default="run")
    parser.add_argument("--rounds", type=int, default=3, help="how often every system has its turn (3)")
    parser.add_argument(
        "--only", default="", metavar="NAME,…", help="systems and workloads to measure, all others are left out"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies counts and times (1.0)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are written")
    return parser.parse_args(arguments)


def plan_of(options: argparse.Namespace) -> session.Plan:
    """What to measure; raises SystemExit for a name that nothing has."""
    names = [name for name in options.only.split(",") if name]
    systems = tuple(system for system in SYSTEMS if system.key in names)
    workloads = tuple(workload for workload in chosen(()) if workload.key in names)
    unknown = set(names) - {s.key for s in systems} - {w.key for w in workloads} - {"extras"}
    if unknown:
        known = ", ".join([*(s.key for s in SYSTEMS), *(w.key for w in chosen(()))])
        raise SystemExit(f"nothing is called {', '.join(sorted(unknown))}; there are {known} and extras")
    return session.Plan(
        rounds=options.rounds,
        scale=options.scale,
        systems=systems or SYSTEMS,
        workloads=workloads or chosen(()),
        has_extras=not names or "extras" in names,
    )


def measure(plan: session.Plan, results: Path) -> None:
    """A run with its page and its pictures."""
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="inferq-bench-") as folder:
        figures = uvloop.run(session.run(plan, Path(folder)))
    (results / "README.md").write_text(report.page(figures))
    plots.rates(figures, results / "rates.png")
    plots.sizer(results / "sizer.png")
    print(report.summary(figures))
    session.say(f"written to {results}")


def smoke() -> None:
    """Everything that a run does, with next to no jobs; the figures are worth nothing and are thrown away."""
    with tempfile.TemporaryDirectory(prefix="inferq-bench-") as folder:
        measure(session.Plan(rounds=1, scale=0.02), Path(folder))
        growth.measure(Path(folder), sizes=(500, 1000), processes=(1, 2), models=(1, 2), seconds=0.1)


def main(arguments: Sequence[str]) -> None:
    """Do what the arguments say."""
    options = parse(arguments)
    if options.command == "smoke":
        smoke()
    elif options.command == "growth":
        growth.measure(options.results)
    else:
        measure(plan_of(options), options.results)


if __name__ == "__main__":
    main(sys.argv[1:])
