"""`python -m benchmarks` with the name of a benchmark, or `all`; `--help` lists them."""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RESULTS = Path(__file__).resolve().parent / "results"
Output = Annotated[Path, typer.Option(help="Where figures and plots go.")]


class FuzzKind(StrEnum):
    """What can be fuzzed alone."""

    copy = "copy"
    changes = "changes"


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
    duckdb_memory: Annotated[
        str, typer.Option(help="DuckDB's memory_limit; its own default is most of the RAM.")
    ] = "2GB",
    output: Output = RESULTS,
) -> None:
    """Watch the memory of copies of ever larger tables."""
    from benchmarks.copy_memory import show_weights, weigh_copies, weights_as_json
    from benchmarks.machine import write_result

    weights = weigh_copies(gigabytes, duckdb_memory, console)
    show_weights(weights, console)
    console.print(f"wrote {write_result(output, 'memory', weights_as_json(weights))}")


@app.command("changes")
def changes_command(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the backlog.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    rate: Annotated[int, typer.Option(min=4, help="Transactions a second, for the latency.")] = 500,
    seconds: Annotated[float, typer.Option(min=1, help="How long, for the latency.")] = 20,
    large: Annotated[int, typer.Option(min=1000, help="Rows of the huge transaction, for the memory.")] = 5_000_000,
    only: Annotated[str | None, typer.Option(help="drain, latency or memory.")] = None,
    output: Output = RESULTS,
) -> None:
    """Race capture against pg_recvlogical; measure latency and memory."""
    from benchmarks.change_latency import measure_latency, show_latency
    from benchmarks.change_memory import show_weights, weigh_capture
    from benchmarks.change_plot import plot_drains
    from benchmarks.change_speed import drains_as_json, race_drains, show_drains
    from benchmarks.machine import write_result

    if only in (None, "drain"):
        races = race_drains(rows, repeat, console)
        show_drains(races, console)
        console.print(f"wrote {write_result(output, 'changes', {'drains': drains_as_json(races)})}")
        plot_drains(races, output / "changes.png")
        console.print(f"wrote {output / 'changes.png'}")
    if only in (None, "latency"):
        show_latency(measure_latency(rate, seconds, console), console)
    if only in (None, "memory"):
        show_weights(weigh_capture(large, console), console)


@app.command("pipeline")
def pipeline_command(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of a backlog.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    rate: Annotated[int, typer.Option(min=1, help="Transactions a second, for the latency.")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="How long, for the latency.")] = 20,
    output: Output = RESULTS,
) -> None:
    """Drain backlogs from the slot into DuckDB; measure the latency from commit to visible."""
    from benchmarks.machine import write_result
    from benchmarks.pipeline_speed import measure_pipeline, pipeline_as_json, show_pipeline

    drains, latency = measure_pipeline(rows, repeat, rate, seconds, console)
    show_pipeline(drains, latency, console)
    console.print(f"wrote {write_result(output, 'pipeline', pipeline_as_json(drains, latency))}")


@app.command("into-clickhouse")
def into_clickhouse_command(
    rows: Annotated[int, typer.Option(min=1000, help="Of the table that is copied.")] = 2_000_000,
    changes: Annotated[int, typer.Option(min=1000, help="Of the backlog.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Timed rounds of the copy.")] = 5,
    output: Output = RESULTS,
) -> None:
    """Take landed files into ClickHouse, against its own `file()`; and drain changes."""
    from benchmarks.into_clickhouse import run
    from benchmarks.machine import write_result

    result = run(rows, changes, repeat, console)
    console.print(f"wrote {write_result(output, 'clickhouse', result)}")


@app.command("lakes")
def lakes_command(
    rows: Annotated[int, typer.Option(min=1000, help="Of the table that is copied.")] = 2_000_000,
    large: Annotated[int, typer.Option(min=1000, help="Rows of the table that is changed.")] = 5_000_000,
    changes: Annotated[int, typer.Option(min=1000, help="In a round.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    only: Annotated[str | None, typer.Option(help="copy or merge.")] = None,
    formats: Annotated[list[str] | None, typer.Option("--format", help="delta or iceberg; else both.")] = None,
    output: Output = RESULTS,
) -> None:
    """Copy into lakes, against Spark's JDBC reader; and change them, against a MERGE by hand."""
    from benchmarks.copy_report import race_as_json, show_race
    from benchmarks.copy_speed import run_race
    from benchmarks.lake_copy import LAKE_CONTENDERS, LAKE_GOALS
    from benchmarks.lake_merge import measure_merges, merges_as_json, show_merges
    from benchmarks.lake_spark import lake_needs
    from benchmarks.machine import write_result

    if only in (None, "copy"):
        race = run_race(
            rows=rows, repeat=repeat, skip=(), console=console,
            contenders=LAKE_CONTENDERS, goals=LAKE_GOALS, needs=lake_needs(output),
        )  # fmt: skip
        show_race(race, console)
        console.print(f"wrote {write_result(output, 'lake_copy', race_as_json(race))}")
    if only in (None, "merge"):
        found = measure_merges(large, changes, repeat, formats or ["delta", "iceberg"], console)
        show_merges(found, console)
        console.print(f"wrote {write_result(output, 'lake_merge', merges_as_json(found))}")


@app.command("into-postgres")
def into_postgres_command(
    rows: Annotated[int, typer.Option(min=1000, help="Of the table that is copied.")] = 2_000_000,
    changes: Annotated[int, typer.Option(min=1000, help="Of a backlog.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    only: Annotated[str | None, typer.Option(help="copy or drain.")] = None,
    output: Output = RESULTS,
) -> None:
    """Copy into another Postgres, against psql; and drain backlogs, against native logical replication."""
    from benchmarks.into_postgres import measure_into_postgres, races_as_json, show_races
    from benchmarks.machine import write_result

    races = measure_into_postgres(rows, changes, repeat, only, console)
    show_races(races, console)
    console.print(f"wrote {write_result(output, 'into_postgres', races_as_json(races))}")


@app.command("into-warehouse")
def into_warehouse_command(
    rows: Annotated[int, typer.Option(min=1000, help="Of the table that is copied.")] = 2_000_000,
    changes: Annotated[int, typer.Option(min=1000, help="Of the backlog.")] = 1_000_000,
    only: Annotated[str | None, typer.Option(help="bigquery or snowflake; else both.")] = None,
    output: Output = RESULTS,
) -> None:
    """Copy and drain into emulators of BigQuery and Snowflake: CPU and memory of our side alone."""
    from benchmarks.into_warehouse import SERVICES, measure_shares, shares_as_json, show_shares
    from benchmarks.machine import write_result

    shares = measure_shares([only] if only else list(SERVICES), rows, changes, console)
    show_shares(shares, console)
    console.print(f"wrote {write_result(output, 'into_warehouse', shares_as_json(shares))}")


@app.command("tables")
def tables_command(
    counts: Annotated[list[int] | None, typer.Option("--tables", min=1, help="How many; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long the idle pipeline is watched.")] = 30,
) -> None:
    """Start pipelines with many small tables; then watch what they take when nothing happens."""
    from benchmarks.pipeline_tables import measure_crowds, show_crowds

    show_crowds(measure_crowds(counts or [1, 50, 500], seconds, console), console)


@app.command("steady")
def steady_command(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 15,
    into: Annotated[str, typer.Option(help="duckdb, delta or iceberg.")] = "duckdb",
    rate: Annotated[float, typer.Option(min=1, help="Changes a second into a lake.")] = 5_000,
    output: Output = RESULTS,
) -> None:
    """Let a pipeline run at half of its maximal rate, or into a lake at 5,000 changes a second: lag, memory and files
    must not grow."""
    from benchmarks.machine import write_result
    from benchmarks.pipeline_steady import DUCKDB, LAKES, measure_steady, plot_steady, show_steady, steady_as_json

    is_lake = into in LAKES
    steady = measure_steady(minutes, console, LAKES.get(into, DUCKDB), rate if is_lake else None)
    show_steady(steady, console)
    name = f"steady_{into}" if is_lake else "steady"
    console.print(f"wrote {write_result(output, name, steady_as_json(steady))}")
    plot_steady(steady, output / f"{name}.png")
    console.print(f"wrote {output / f'{name}.png'}")


@app.command("fuzz")
def fuzz_command(
    cases: Annotated[int, typer.Option(min=1, help="How many damaged streams, of all kinds together.")] = 100_000,
    kind: Annotated[FuzzKind | None, typer.Option(help="Streams of this kind alone; without it both.")] = None,
    seed: Annotated[int, typer.Option(help="Other seeds give other cases.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="Number of the first case, to do one again.")] = 0,
    bounds: Annotated[
        int | None, typer.Option(min=0, help="Cases to run again with bounds checks compiled in (a tenth).")
    ] = None,
    output: Output = RESULTS,
) -> None:
    """Feed damaged COPY and replication streams to the decoders: rows or one kind of error, and nothing else."""
    from benchmarks.fuzz.run import run_fuzz
    from benchmarks.fuzz.subjects import SUBJECTS

    kinds = [kind.value] if kind is not None else list(SUBJECTS)
    ok = run_fuzz(kinds=kinds, cases=cases, seed=seed, first=first, bounds=bounds, output=output, console=console)
    if not ok:
        raise typer.Exit(1)


@app.command("soak")
def soak_command(
    kills: Annotated[int, typer.Option(min=1, help="How many drivers are killed.")] = 30,
    seed: Annotated[int, typer.Option(help="Other seeds kill at other moments.")] = 1,
    check_every: Annotated[int, typer.Option(min=1, help="Compare both sides after so many kills.")] = 10,
) -> None:
    """Kill pipelines at random moments under a workload; source and destination must be equal afterwards."""
    from benchmarks.soak import soak

    soak(kills, seed, check_every, console)


@app.command("worlds")
def worlds_command(
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds.")] = 200,
    first: Annotated[int, typer.Option(help="The first seed, to do one again.")] = 1,
    kills: Annotated[int, typer.Option(min=1, help="How many drivers are killed in each.")] = 2,
    trigger: Annotated[
        bool | None, typer.Option(help="With the DDL trigger, or without; else every second world has it.")
    ] = None,
) -> None:
    """Change tables, partitions and publication at random while pipelines are killed; compare both sides."""
    from benchmarks.worlds import run_worlds

    if not run_worlds(range(first, first + seeds), kills, trigger, console):
        raise typer.Exit(1)


@app.command("mischief")
def mischief_command(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long somebody is bad.")] = 60,
    seed: Annotated[int, typer.Option(help="Other seeds do other things.")] = 1,
) -> None:
    """Kill, stop, cut, stall, revoke, drop, restart and fill at random; then the pipeline must be well by itself."""
    from benchmarks.mischief import run_mischief

    if not run_mischief(minutes, seed, console):
        raise typer.Exit(1)


@app.command("recopy")
def recopy_command(
    rows: Annotated[int, typer.Option(min=1, help="Of the table that is copied again.")] = 2_000_000,
) -> None:
    """How current another table is while a large one is copied again."""
    from benchmarks.recopy import measure_recopy

    measure_recopy(rows, console)


@app.command("verify")
def verify_command(
    rows: Annotated[int, typer.Option(min=1000, help="Of the table.")] = 1_000_000,
    runs: Annotated[int, typer.Option(min=1, help="How often, under load.")] = 50,
) -> None:
    """Compare a table under load again and again: nothing may be reported, and what it takes is measured."""
    from benchmarks.verify import measure_verify

    if not measure_verify(rows, runs, console):
        raise typer.Exit(1)


@app.command("all")
def all_command(output: Output = RESULTS) -> None:
    """Run everything with its defaults: the copy first, while nothing else has warmed the machine."""
    copy_command(output=output)
    memory_command(output=output)
    changes_command(output=output)
    pipeline_command(output=output)
    tables_command()
    steady_command(output=output)
    fuzz_command(output=output)


if __name__ == "__main__":
    # Asked to end, leave nothing behind: gigabytes lie in the temporary directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    app()
