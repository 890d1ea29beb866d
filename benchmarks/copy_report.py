"""The race's outcome as a table for people and as JSON for machines."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.copy_speed import Race, Standing
from benchmarks.sampling import Role


def show_race(race: Race, console: Console) -> None:
    """Print who was how fast, and whether the goals were met."""
    table = RichTable(
        title=f"Copy of {race.table.rows:,} rows, {race.copy_bytes / 1e6:,.0f} MB in COPY's binary format"
    )
    table.add_column("contender", min_width=24)
    for heading in ("seconds", "min–max", "rows/s", "MB/s", "× psql", "peak MB", "worker MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for standing in race.standings:
        relative = race.ratio(standing.name, "psql")
        table.add_row(
            standing.label,
            f"{standing.median:.2f}",
            f"{min(standing.seconds):.2f}–{max(standing.seconds):.2f}",
            f"{race.table.rows / standing.median:,.0f}",
            f"{race.copy_bytes / 1e6 / standing.median:,.0f}" if race.copy_bytes else "–",
            "–" if relative is None else f"{relative:.2f}",
            f"{standing.peak.total / 1e6:,.0f}",
            f"{standing.peak.largest_worker / 1e6:,.0f}" if standing.peak.largest_worker else "–",
        )
    console.print(table)
    for goal in goals(race):
        colour = "green" if goal["met"] else "red"
        console.print(
            f"[{colour}]{goal['ours']} / {goal['theirs']}: {goal['ratio']:.2f} (goal ≥ {goal['target']:.2f})[/]"
        )
    console.print(
        "[dim]Medians. Peak memory is that of all processes of the contender, Postgres left out, in a run of its own; "
        "for walrelay it holds the JVM, this process and the Python workers, for JDBC the JVM alone. "
        "Worker: the largest Python worker, which is one task.[/]"
    )


def goals(race: Race) -> list[dict[str, Any]]:
    """Each goal whose two contenders took part, with its ratio of rates."""
    found = []
    for goal in race.goals:
        ratio = race.ratio(goal.ours, goal.theirs)
        if ratio is not None:
            met = ratio >= goal.target
            found.append({"ours": goal.ours, "theirs": goal.theirs, "ratio": ratio, "target": goal.target, "met": met})
    return found


def race_as_json(race: Race) -> dict[str, Any]:
    return {
        "machine": race.machine,
        "table": {
            "rows": race.table.rows,
            "disk_bytes": race.table.disk_bytes,
            "copy_bytes": race.copy_bytes,
        },
        "contenders": {standing.name: _as_json(race, standing) for standing in race.standings},
        "absent": race.absent,
        "goals": goals(race),
    }


def _as_json(race: Race, standing: Standing) -> dict[str, Any]:
    return {
        "label": standing.label,
        "seconds": standing.seconds,
        "median_seconds": standing.median,
        "rows_per_second": race.table.rows / standing.median,
        "megabytes_per_second": race.copy_bytes / 1e6 / standing.median if race.copy_bytes else None,
        "rate_relative_to_psql": race.ratio(standing.name, "psql"),
        "peak_memory_bytes": {
            "total": standing.peak.total,
            **{role.value: standing.peak.by_role[role] for role in Role if role in standing.roles},
            "largest_worker": standing.peak.largest_worker or None,
        },
    }
