"""Brings a database to the schema that this version knows: under a lock, in one transaction, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, inspect, select
from sqlalchemy.schema import CreateTable

from walrelay.stores.failures import StoreNewerSchemaError
from walrelay.stores.sql.migrations import MIGRATIONS
from walrelay.stores.sql.tables import store_migrations


def is_current(connection: Connection, schema: str | None, where: str) -> bool:
    """Whether nothing is to be done. Refuses a store that a newer version has written."""
    return _version(connection, schema, where) == len(MIGRATIONS)


def migrate(connection: Connection, schema: str | None, where: str) -> None:
    """Run the steps that are missing. The caller holds the lock, and commits."""
    done = _version(connection, schema, where)
    if done == 0 and not inspect(connection).has_table(store_migrations.name, schema):
        connection.execute(CreateTable(store_migrations))
    for number, (name, upgrade) in enumerate(MIGRATIONS, start=1):
        if number > done:
            upgrade(connection)
            connection.execute(
                insert(store_migrations).values(number=number, name=name, applied_at=datetime.now(UTC).isoformat())
            )


def _version(connection: Connection, schema: str | None, where: str) -> int:
    if not inspect(connection).has_table(store_migrations.name, schema):
        return 0
    found = connection.execute(select(func.max(store_migrations.c.number))).scalar() or 0
    if found > len(MIGRATIONS):
        raise StoreNewerSchemaError(
            f"the store {where} has schema version {found}; this walrelay knows versions up to {len(MIGRATIONS)}",
            context={"found": found, "known": len(MIGRATIONS)},
        )
    return int(found)
