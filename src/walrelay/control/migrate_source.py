"""Install the DDL trigger on a source or remove it, or say what that would run."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass

from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.source_migrations import (
    VERSION,
    Action,
    install,
    install_script,
    planned_install,
    planned_uninstall,
    trigger_state,
    uninstall,
    uninstall_script,
)

_CHANGES_NOTHING: tuple[Action, ...] = ("unchanged", "absent")


@dataclass(frozen=True, slots=True)
class Migration:
    """What was done to a source or, with `sql`, what would be. `version` is what it has afterwards."""

    source: str
    action: Action
    version: int | None
    sql: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def migrate_source(source: PostgresSource, *, remove: bool = False, dry_run: bool = False) -> Migration:
    """Bring the source's DDL trigger to this version, or take it away. A dry run changes nothing there."""
    with closing(connect(source, application="walrelay migrate-source")) as connection:
        if not dry_run:
            action = uninstall(connection) if remove else install(connection)
            sql = None
        else:
            plan = planned_uninstall if remove else planned_install
            action = plan(trigger_state(connection))
            script = uninstall_script() if remove else install_script()
            sql = "" if action in _CHANGES_NOTHING else script
    return Migration(source.location, action, None if remove else VERSION, sql)
