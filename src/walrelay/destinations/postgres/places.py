"""Tables that get other names in the database that is written to."""

from __future__ import annotations

from walrelay.destinations.holdings import Holding
from walrelay.destinations.places import Places
from walrelay.destinations.postgres.book import TargetBook
from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.destinations.postgres.dialect import quoted
from walrelay.model.names import TableId, TableName

WHERE, ELSEWHERE = "the destination", "another database"
_ASIDE = "_walrelay_aside_"


def place(name: TableName) -> str:
    """The table's full name in SQL."""
    return f"{quoted(name.schema)}.{quoted(name.name)}"


class TargetPlaces(Places):
    """Moves tables within the open transaction."""

    where, elsewhere = WHERE, ELSEWHERE

    def __init__(self, connection: Connection, book: TargetBook) -> None:
        super().__init__(book)
        self._connection = connection

    def _is_there(self, name: TableName) -> bool:
        question = (
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s)"
        )
        ((found,),) = rows(self._connection, question, (name.schema, name.name))
        return bool(found)

    def is_there(self, name: TableName) -> bool:
        return self._is_there(name)

    def refuse_strange(self, name: TableName) -> None:
        """Raise when something has the name that is not ours to replace."""
        self._holder(name)

    @staticmethod
    def _aside(name: TableName, table: TableId) -> TableName:
        """Another than the name and a number, which may be too long."""
        return TableName(name.schema, f"{_ASIDE}{table}")

    def _is_aside(self, one: Holding) -> bool:
        return one.name.name == f"{_ASIDE}{one.table}"

    def _drop(self, name: TableName) -> None:
        run(self._connection, f"DROP TABLE IF EXISTS {place(name)}")

    def _put_under(self, old: TableName, new: TableName) -> None:
        if old.schema != new.schema:
            make_schema(self._connection, new.schema)
            # Under a name that is free in both.
            moving = TableName(new.schema, f"_walrelay_moving_{abs(hash((old, new))) % 10**9}")
            run(self._connection, f"ALTER TABLE {place(old)} RENAME TO {quoted(moving.name)}")
            old = TableName(old.schema, moving.name)
            run(self._connection, f"ALTER TABLE {place(old)} SET SCHEMA {quoted(new.schema)}")
            old = moving
        run(self._connection, f"ALTER TABLE {place(old)} RENAME TO {quoted(new.name)}")


def make_schema(connection: Connection, name: str) -> None:
    """Unless it is there: one who may not make schemas may still have been given this one."""
    question = "SELECT pg_catalog.to_regnamespace(%s) IS NULL"
    ((is_missing,),) = rows(connection, question, (quoted(name),))
    if is_missing:
        run(connection, f"CREATE SCHEMA IF NOT EXISTS {quoted(name)}")
