"""The DDL trigger on the source: install it, remove it, say what is there.

It emits `walrelay.model.ddl` messages into the stream, in the transaction of the command that altered a table. A
pipeline works without it, and then copies a table again where the stream alone leaves doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, LiteralString

import psycopg
from psycopg import errors as pg

from walrelay.errors import (
    SourceMigrationNewerError,
    SourceMigrationRightsError,
    SourceMigrationSchemaError,
    UnsupportedSourceError,
    WalrelayError,
)
from walrelay.postgres.catalog import check_version
from walrelay.postgres.connection import Connection, talking, translate
from walrelay.postgres.migrations import script

VERSION = 1
"""What this walrelay installs; event_triggers.sql writes it to where `trigger_state` reads it."""

Action = Literal["installed", "upgraded", "repaired", "unchanged", "uninstalled", "absent"]

_INSTALL = ("schema", "reached_tables", "published_tables", "table_messages", "relay_ddl", "event_triggers")
# Two installations at once would meet half-made functions of each other. The number is "walrelay" in ASCII.
_LOCK: LiteralString = "SELECT pg_catalog.pg_advisory_xact_lock(8602276001838031225);"


@dataclass(frozen=True, slots=True)
class TriggerState:
    """What the source has: the version installed (None: nothing), and whether it fires in every session."""

    version: int | None
    enabled: bool
    is_standby: bool

    @property
    def is_current(self) -> bool:
        return self.version == VERSION and self.enabled


def trigger_state(connection: Connection) -> TriggerState:
    """Any role may ask."""
    check_version(connection)
    with talking("looking for the DDL trigger"):
        row = connection.execute(script("state")).fetchone()
    assert row is not None  # an aggregate gives one row
    # Version 0: something of that name is there that does not say what it is.
    version = (row.version or 0) if row.present else None
    return TriggerState(version, bool(row.present and row.enabled), row.is_standby)


def install_script() -> LiteralString:
    """What `install` runs, to be run by hand: replaces whatever version is there, in one transaction."""
    return _in_one_transaction("remove", *_INSTALL)


def uninstall_script() -> LiteralString:
    """What `uninstall` runs, to be run by hand."""
    return _in_one_transaction("remove", "remove_schema")


def planned_install(state: TriggerState) -> Action:
    """What an installation would do to a source in this state. Refuses a newer version."""
    _refuse_newer(state)
    if state.is_current:
        return "unchanged"
    if state.version is None:
        return "installed"
    return "repaired" if state.version == VERSION else "upgraded"


def planned_uninstall(state: TriggerState) -> Action:
    """What a removal would do to a source in this state. Refuses a newer version, whose parts it does not know."""
    _refuse_newer(state)
    return "absent" if state.version is None else "uninstalled"


def install(connection: Connection) -> Action:
    """Bring the source to `VERSION`: all of it, or nothing. Does nothing when it is there and enabled."""
    return _run(connection, "unchanged", planned_install, ("remove", *_INSTALL))


def uninstall(connection: Connection) -> Action:
    """Take away all that `install` has made."""
    return _run(connection, "absent", planned_uninstall, ("remove", "remove_schema"))


def _run(
    connection: Connection, nothing_to_do: Action, plan: Callable[[TriggerState], Action], scripts: tuple[str, ...]
) -> Action:
    state = trigger_state(connection)
    if plan(state) == nothing_to_do:
        return nothing_to_do
    if state.is_standby:
        raise UnsupportedSourceError(
            "the source is a standby, where nothing can be installed",
            hint="Run `walrelay migrate-source` on its primary; the standby follows.",
        )
    try:
        with connection.transaction():
            connection.execute(_LOCK)
            action = plan(trigger_state(connection))
            if action != nothing_to_do:
                for name in scripts:
                    connection.execute(script(name))
            return action
    except psycopg.Error as error:
        raise _named(error) from error


def _named(error: psycopg.Error) -> WalrelayError:
    match error:
        case pg.InsufficientPrivilege():
            return SourceMigrationRightsError("this role may not install or remove event triggers on the source")
        case pg.ObjectNotInPrerequisiteState():
            return SourceMigrationSchemaError("the schema walrelay on the source belongs to another role")
        case _:
            return translate(error, doing="migrating the source")


def _refuse_newer(state: TriggerState) -> None:
    if state.version is not None and state.version > VERSION:
        raise SourceMigrationNewerError(
            f"the source's DDL trigger has version {state.version}; this walrelay knows versions up to {VERSION}",
            context={"found": state.version, "known": VERSION},
        )


def _in_one_transaction(*names: str) -> LiteralString:
    return "\n".join(["BEGIN;", _LOCK, *(script(name) for name in names), "COMMIT;\n"])
