"""The fuzz report as JSON and back, and as a table for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from benchmarks.fuzz.cases import Failure, FuzzReport, Slowest

SHOWN_FAILURES = 10


def report_as_json(report: FuzzReport) -> dict[str, Any]:
    return {
        "seed": report.seed,
        "cases": report.cases,
        "ok": report.ok,
        "outcomes": {damage: dict(outcomes) for damage, outcomes in sorted(report.outcomes.items())},
        "failures": [asdict(failure) for failure in report.failures],
        "slowest": asdict(report.slowest),
    }


def report_from_json(said: dict[str, Any]) -> FuzzReport:
    return FuzzReport(
        said["seed"],
        said["cases"],
        {damage: Counter(outcomes) for damage, outcomes in said["outcomes"].items()},
        [Failure(**failure) for failure in said["failures"]],
        Slowest(**said["slowest"]),
    )


def show_report(report: FuzzReport, title: str, kind: str, console: Console) -> None:
    """Print what became of each kind of damage, the slowest case, and the failures."""
    table = RichTable(title=title)
    table.add_column("damage")
    for heading in ("cases", "gave rows", "refused", "special value", "failed"):
        table.add_column(heading, justify="right")
    for damage, outcomes in sorted(report.outcomes.items()):
        counts = (outcomes[outcome] for outcome in ("rows", "refused", "special", "failed"))
        table.add_row(
            damage.replace("_", " "), f"{outcomes.total():,}", *(f"{count:,}" if count else "" for count in counts)
        )
    console.print(table)
    slowest = report.slowest
    console.print(
        f"slowest case {slowest.seconds * 1000:.1f} ms (number {slowest.case}, {slowest.damage}); "
        f"its good stream {slowest.good_seconds * 1000:.1f} ms"
    )
    for failure in report.failures[:SHOWN_FAILURES]:
        console.print(f"[red]case {failure.case}[/] ({failure.damage}, {failure.road}): {escape(failure.reason)}")
    if report.ok:
        console.print(f"[green]{report.cases:,} cases, seed {report.seed}: all well[/]")
    else:
        console.print(
            f"[red]{len(report.failures)} of {report.cases:,} cases failed[/]; one again: "
            f"python -m benchmarks fuzz --kind {kind} --seed {report.seed} --first {report.failures[0].case} --cases 1"
        )
