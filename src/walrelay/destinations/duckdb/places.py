"""Tables of a DuckDB file that get other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walrelay.destinations.duckdb.dialect import quoted
from walrelay.destinations.duckdb.names import folded
from walrelay.destinations.duckdb.progress import ProgressBook, place
from walrelay.destinations.places import Places
from walrelay.model.names import TableName

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WHERE, ELSEWHERE = "the DuckDB file", "another file"


class DuckDBPlaces(Places):
    """Moves tables within the open transaction."""

    where, elsewhere = WHERE, ELSEWHERE

    def __init__(self, connection: DuckDBPyConnection, catalog: str, book: ProgressBook) -> None:
        super().__init__(book)
        self._connection = connection
        self._catalog = catalog

    def _is_there(self, name: TableName) -> bool:
        there = self._connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?", [self._catalog]
        ).fetchall()
        return any(folded(*one) == folded(name.schema, name.name) for one in there)

    def _is_same(self, one: TableName, other: TableName) -> bool:
        return folded(one.schema, one.name) == folded(other.schema, other.name)

    def _drop(self, name: TableName) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {place(self._catalog, name)}")

    def _put_under(self, old: TableName, new: TableName) -> None:
        there, here = place(self._catalog, old), place(self._catalog, new)
        if old.schema == new.schema:
            self._connection.execute(f"ALTER TABLE {there} RENAME TO {quoted(new.name)}")
            return
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(new.schema)}")
        comment = self._comment(old)
        self._connection.execute(f"CREATE TABLE {here} AS SELECT * FROM {there}")
        self._connection.execute(f"DROP TABLE {there}")
        if comment is not None:
            self._connection.execute(f"COMMENT ON TABLE {here} IS '{comment.replace(chr(39), chr(39) * 2)}'")

    def _comment(self, name: TableName) -> str | None:
        found = self._connection.execute(
            "SELECT comment FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
            [self._catalog, name.schema, name.name],
        ).fetchall()
        return found[0][0] if found else None
