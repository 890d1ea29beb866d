"""`walrelay quarantine`: changes that could not be decoded."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.cli.places import STATE, Id, Json, Log, State, Store, place_of

if TYPE_CHECKING:
    from walrelay.control.quarantine import Outcome, QuarantineLine

quarantine_app = typer.Typer(
    help="Changes that could not be decoded: look at them, have their tables copied again, or go on without them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Tables = Annotated[list[str] | None, typer.Option("--table", help="Only this table (schema.table); may be repeated.")]


@quarantine_app.command("list")
def list_command(
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    log: Log = None,
    table: Tables = None,
    show_values: Annotated[bool, typer.Option("--show-values", help="Also show the keys of the rows.")] = False,
    as_json: Json = False,
) -> None:
    """Show what is in the quarantine, and whether it still holds a table."""
    from walrelay.control.quarantine import list_quarantine

    lines = list_quarantine(place_of(state, store, pipeline, log), table or [], show_values=show_values)
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=2))
        return
    for line in lines:
        typer.echo(_sentence(line))
    if not lines:
        typer.echo("the quarantine is empty")


@quarantine_app.command("retry")
def retry_command(
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    log: Log = None,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Have the tables copied again at the next start. Stop the pipeline first."""
    from walrelay.control.quarantine import retry_quarantine

    outcomes = retry_quarantine(place_of(state, store, pipeline, log), table or [])
    _tell(
        outcomes,
        as_json,
        done="{table}: {changes} undecoded changes; it is copied again at the next start",
        undone="{table}: mode changes copies nothing; `walrelay quarantine drop` goes on without {changes} changes",
    )


@quarantine_app.command("drop")
def drop_command(
    state: State = STATE,
    store: Store = None,
    pipeline: Id = None,
    log: Log = None,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Go on without these changes: what they did is missing at the destination. Stop the pipeline first."""
    from walrelay.control.quarantine import drop_quarantine

    outcomes = drop_quarantine(place_of(state, store, pipeline, log), table or [])
    _tell(
        outcomes,
        as_json,
        done="{table}: {changes} changes are given up; the rows that they changed stay as they were at the destination",
        undone="",
    )


def _sentence(line: QuarantineLine) -> str:
    key = ", ".join(line.key_columns) or "none"
    known = "" if not line.key_columns else " (known)" if line.key_known else " (not readable)"
    shown = f" {line.key}" if line.key is not None else ""
    return (
        f"{line.table}  {line.commit_lsn} #{line.ordinal}  {line.op}  {line.commit_time or ''}  {line.state}\n"
        f"    {line.reason} ({line.code}); key: {key}{known}{shown}"
    )


def _tell(outcomes: list[Outcome], as_json: bool, *, done: str, undone: str) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
        return
    for outcome in outcomes:
        typer.echo((done if outcome.done else undone).format(table=outcome.table, changes=f"{outcome.changes:,}"))
    if not outcomes:
        typer.echo("nothing in the quarantine is open")
