"""`walrelay slots`: the replication slots of a source, each of which keeps WAL there."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.errors import ConfigError
from walrelay.model.sizes import size

if TYPE_CHECKING:
    from walrelay.control.slots import SlotLine

slots_app = typer.Typer(
    help="The replication slots of a source: which there are, how much WAL each keeps, and dropping one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Source = Annotated[
    str, typer.Argument(help="postgresql://user@host:5432/database", metavar="SOURCE", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]


@slots_app.command("list")
def list_command(source: Source, as_json: Json = False) -> None:
    """Show every slot of the server."""
    from walrelay.control.slots import list_slots
    from walrelay.postgres.source import PostgresSource

    lines = list_slots(PostgresSource(source))
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=2))
        return
    for line in lines:
        typer.echo(_sentence(line))
    if not lines:
        typer.echo("the server has no replication slot")


@slots_app.command("drop")
def drop_command(
    source: Source,
    names: Annotated[list[str] | None, typer.Argument(help="The slots.", metavar="NAME...", show_default=False)] = None,
    state: Annotated[
        list[Path] | None,
        typer.Option(help="A pipeline's state directory, in place of its slot's name; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also one that nothing shows to be walrelay's.")] = False,
    as_json: Json = False,
) -> None:
    """Drop slots that nobody reads. What a pipeline has not read from its slot is lost to it: it must copy again."""
    from walrelay.control.slots import drop_slots, slot_in
    from walrelay.postgres.source import PostgresSource

    wanted = [*(names or []), *map(slot_in, state or [])]
    if not wanted:
        raise ConfigError("no slot is named", hint="Give its name, or --state and the directory of its pipeline.")
    dropped = drop_slots(PostgresSource(source), wanted, force=force)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in dropped], indent=2))
        return
    for one in dropped:
        typer.echo(f"{one.name} is dropped; it kept {size(one.retained_bytes)} of WAL")


def _sentence(line: SlotLine) -> str:
    whose = "walrelay's" if line.ours else "not known to be walrelay's"
    what = " ".join(word for word in (line.kind, line.plugin) if word)
    known = ", ".join(word for word in (line.application, f"from {line.client}" if line.client else "") if word)
    reader = f"read by pid {line.active_pid}{f' ({known})' if known else ''}" if line.active_pid else "read by nobody"
    lost = f", lost: {line.invalidation or 'WAL removed'}" if line.wal_status == "lost" or line.invalidation else ""
    return (
        f"{line.name}  keeps {size(line.retained_bytes)} of WAL{lost}\n"
        f"    {whose}; {what}{f', database {line.database}' if line.database else ''}; {reader}"
    )
