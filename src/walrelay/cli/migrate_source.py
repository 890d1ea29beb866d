"""`walrelay migrate-source`: put the DDL trigger on the source, or take it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walrelay.control.migrate_source import Migration

_SAID = {
    "installed": "the DDL trigger is installed, version {version}",
    "upgraded": "the DDL trigger is upgraded to version {version}",
    "repaired": "the DDL trigger was disabled or incomplete; it is installed anew, version {version}",
    "unchanged": "the DDL trigger is there already, version {version}",
    "uninstalled": "the DDL trigger is removed; pipelines go on without it, with more copies",
    "absent": "there is no DDL trigger to remove",
}


def migrate_source_command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The source: postgresql://superuser@host:5432/database.")],
    remove: Annotated[bool, typer.Option("--uninstall", help="Take away all that was installed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL and change nothing.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Install an event trigger on the source, by which a pipeline knows every change of a table's shape exactly."""
    from walrelay.control.migrate_source import migrate_source
    from walrelay.postgres.source import PostgresSource

    done = migrate_source(PostgresSource(url), remove=remove, dry_run=dry_run)
    typer.echo(done.to_json() if json_output else _text(done))


def _text(done: Migration) -> str:
    said = f"{done.source}: {_SAID[done.action].format(version=done.version)}"
    if done.sql is None:
        return said
    return f"-- {done.source}: would be {done.action}\n{done.sql}" if done.sql else f"-- {said}"
