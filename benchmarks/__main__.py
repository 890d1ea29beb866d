"""`python -m benchmarks copy | memory | fuzz | all`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RESULTS = Path(__file__).resolve().parent / "results"
Output = Annotated[Path, typer.Option(help="Where figures and plots go.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_show_locals=False)
# A table that is written to a file or a pipe has no edge to keep to.
console = Console(width=None if sys.stdout.isatty() else 140)


@app.command("copy")
def copy_command(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 2_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    skip: Annotated[list[str] | None, typer.Option(help="A contender to leave out; may be repeated.")] = None,
    output: Output = RESULTS,
) -> None:
    """Race walrelay against psql, Spark's JDBC reader and DuckDB's Postgres extension."""
    from benchmarks.contenders import CONTENDERS
    from benchmarks.copy_plot import plot_race
    from benchmarks.copy_report import race_as_json, show_race
    from benchmarks.copy_speed import run_race
    from benchmarks.machine import write_result

    known = [kind.name for kind in CONTENDERS]
    if unknown := set(skip or ()) - set(known):
        raise typer.BadParameter(f"no such contender: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    race = run_race(rows=rows, repeat=repeat, skip=skip or (), console=console)
    show_race(race, console)
    console.print(f"wrote {write_result(output, 'copy', race_as_json(race))}")
    plot_race(race, output / "copy.png")
    console.print(f"wrote {output / 'copy.png'}")


@app.command("memory")
def memory_command(
    gigabytes: Annotated[float, typer.Option(min=0.01, help="Size of the largest table.")] = 5.0,
    output: Output = RESULTS,
) -> None:
    """Watch the memory of copies of ever larger tables."""
    from benchmarks.copy_memory import show_weights, weigh_copies, weights_as_json
    from benchmarks.machine import write_result

    weights = weigh_copies(gigabytes, console)
    show_weights(weights, console)
    console.print(f"wrote {write_result(output, 'memory', weights_as_json(weights))}")


if __name__ == "__main__":
    app()
