"""`walrelay replay`: print any range of a change log again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from walrelay.log.reader import LogReader
    from walrelay.model.lsn import Lsn


def replay_command(
    log: Annotated[str, typer.Argument(help="The change log: a directory or s3://…", show_default=False)],
    after: Annotated[
        str | None, typer.Option("--from", help="Changes of transactions that end after this LSN. [default: all]")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="… and up to this one. [default: all]")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only the table that has this name (schema.table) at the end of the range; may be repeated."),
    ] = None,
    messages: Annotated[
        bool, typer.Option("--messages", help="Print what pg_logical_emit_message wrote instead of changes.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print how much there is instead of the changes.")] = False,
) -> None:
    """Print the changes in a range of a change log as JSON lines, in commit order."""
    from walrelay.changes.batch import json_lines
    from walrelay.log.reader import LogReader
    from walrelay.log.table_names import table_named
    from walrelay.model.lsn import Lsn
    from walrelay.model.names import TableName

    reader = LogReader(log)
    reader.lineage()  # there is a log, or an error that says so
    low, high = _lsn("--from", after), _lsn("--to", to)
    try:
        names = [TableName.parse(name) for name in table or []]
    except ValueError as error:
        raise ConfigError(str(error), hint="--table schema.table") from error
    upto = reader.end() if high is None else high
    wanted = {table_named(reader, name, low or Lsn(0), upto).schema.id for name in names} or None
    if summary:
        _summarise(reader, low, high, wanted)
        return
    if messages:
        _print_messages(reader, low, high)
        return
    for line in json_lines(reader, low, high, wanted, special_values="null"):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _lsn(option: str, text: str | None) -> Lsn | None:
    from walrelay.model.lsn import Lsn

    try:
        return None if text is None else Lsn.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", hint="An LSN looks like 0/16B3748.") from error


def _print_messages(reader: LogReader, low: Lsn | None, high: Lsn | None) -> None:
    import json

    from walrelay.model.lsn import Lsn

    for message in reader.messages(low, high):
        line = {
            "commit_lsn": str(Lsn(message["commit_lsn"])),
            "ordinal": message["ordinal"],
            "transactional": message["transactional"],
            "prefix": message["prefix"],
            "content": "\\x" + message["content"].hex(),
        }
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


def _summarise(reader: LogReader, low: Lsn | None, high: Lsn | None, wanted: set[int] | None) -> None:
    from collections import Counter

    from rich.console import Console
    from rich.table import Table

    counts: Counter[tuple[str, str]] = Counter()
    for one in reader.batches(low, high, wanted):
        for item in one.batch.column("op").value_counts().to_pylist():
            counts[str(one.version.schema.name), item["values"]] += item["counts"]
    grid = Table(box=None, pad_edge=False)
    grid.add_column("table")
    for op in ("insert", "update", "delete", "truncate"):
        grid.add_column(op, justify="right")
    for name in sorted({name for name, _ in counts}):
        ops = (f"{counts[name, op]:,}" for op in ("insert", "update", "delete", "truncate"))
        grid.add_row(name, *ops)
    console = Console(highlight=False)
    console.print(f"{reader.storage.location('')}: {reader.lineage()}; from {reader.start()} to {reader.end()}")
    console.print(grid)
