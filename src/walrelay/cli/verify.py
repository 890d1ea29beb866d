"""`walrelay verify`: whether the destination holds what the source holds, while both run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import STATE, Id, Json, Log, State, Store, place_of

if TYPE_CHECKING:
    from walrelay.verify.report import Difference, TableResult

SHOWN = 20
"""Rows of a table that are printed; --json has all of them."""
STYLES = {"equal": "green", "different": "bold red", "unknown": "yellow"}
WORDS = {"equal": "equal", "different": "different", "unknown": "could not compare"}
CANNOT_COMPARE = 2


def verify_command(
    source: Annotated[str, typer.Argument(help="postgresql://user@host:5432/database", show_default=False)],
    destination: Annotated[str, typer.Argument(help="duckdb:///out.duckdb", show_default=False)],
    publication: Annotated[str, typer.Option(help="The publication that names the tables.", show_default=False)],
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    log: Log = None,
    table: Annotated[list[str] | None, typer.Option(help="A table to compare; may be repeated. [default: all]")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Bring the rows that differ, and compare again.")] = False,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Print the values of rows that differ, not just their keys.")
    ] = False,
    special_values: Annotated[str | None, typer.Option(help="As given to `replicate`. [default: null]")] = None,
    unknown_types: Annotated[str | None, typer.Option(help="As given to `replicate`. [default: bytes]")] = None,
    as_json: Json = False,
) -> None:
    """Prove source and destination equal, while both run; exit code 0 equal, 1 different, 2 could not compare."""
    from rich.console import Console

    from walrelay.cli.app import show_error
    from walrelay.config.settings import copy_settings
    from walrelay.control.verify import verify_pipeline
    from walrelay.destinations.urls import destination_from_url
    from walrelay.errors import WalrelayError
    from walrelay.postgres.source import PostgresSource

    console = Console(highlight=False)

    def finished(one: TableResult) -> None:
        if not as_json:
            show_table(one, console, show_values)

    try:
        report = verify_pipeline(
            PostgresSource(source, publication=publication),
            destination_from_url(destination),
            copy_settings(special_values=special_values, unknown_types=unknown_types),
            place_of(state, store, pipeline, log),
            tables=table,
            repair=repair,
            finished=finished,
        )
    except WalrelayError as error:
        show_error(Console(stderr=True, highlight=False), error)
        raise typer.Exit(CANNOT_COMPARE) from error
    if as_json:
        typer.echo(report.to_json(show_values=show_values))
    raise typer.Exit(report.exit_code)


def show_table(one: TableResult, console: object, show_values: bool) -> None:
    """A line for the table, and one for each row that differs."""
    from rich.console import Console
    from rich.text import Text

    assert isinstance(console, Console)
    line = Text(f"{one.name}: ")
    line.append(WORDS[one.status], STYLES[one.status])
    console.print(line + Text(f" · {_compared(one)}"), soft_wrap=True)
    if one.differing_ranges:
        some = ", ".join(one.differing_ranges[:SHOWN])
        console.print(f"  ranges: {some}{' …' if len(one.differing_ranges) > SHOWN else ''}", soft_wrap=True)
    for difference in one.differences[:SHOWN]:
        console.print(f"  {difference}", soft_wrap=True, markup=False)
        if show_values:
            for name, words in _values(difference):
                console.print(f"    {name}: {words}", soft_wrap=True, markup=False)
    rest = len(one.differences) - SHOWN
    if rest > 0 or one.more:
        console.print(f"  and {max(rest, 0):,} more{' at least' if one.more else ''}; --json has them", soft_wrap=True)


def _compared(one: TableResult) -> str:
    """What was compared, what was not, and why."""
    parts = [] if one.status == "unknown" and not one.rows else [f"{one.rows:,} rows in {one.ranges:,} ranges"]
    if one.reason:
        parts.insert(0, one.reason)
    if one.repaired:
        parts.append(f"{one.repaired:,} rows repaired")
    if one.treated_rows:
        parts.append(f"{one.treated_rows:,} rows with values treated by policy")
    if one.not_compared:
        parts.append(f"not compared but for NULL: {', '.join(one.not_compared)}")
    return f"{' · '.join(parts)} · {one.seconds:.1f} s"


def _values(one: Difference) -> list[tuple[str, str]]:
    found = []
    for name, row in (("source", one.source), ("destination", one.destination)):
        if row is not None:
            chosen = {key: row[key] for key in (one.columns or row)}
            found.append((name, ", ".join(f"{key} = {'NULL' if v is None else repr(v)}" for key, v in chosen.items())))
    return found
