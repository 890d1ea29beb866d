"""A table's landed copy into a DuckDB file, piece by piece.

While a large copy is loaded, changes of other tables come in beside it, but no other process can open the file. So it
lets go of the file between its pieces; they stand in a table of their own, which takes the other's place in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from walrelay.destinations.duckdb.dialect import column_type, projection, quoted
from walrelay.destinations.duckdb.pieces import FILE_NAME, ROW_NUMBER, Piece
from walrelay.destinations.duckdb.progress import NO_COLUMNS, place
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BUILDING = "_walrelay_copy_of_"
"""How the names of unfinished copies begin."""


class Loading:
    """The statements of one copy, for whatever connection has the file."""

    def __init__(self, schema: TableSchema, pipeline_id: str) -> None:
        self._schema = schema
        self._mark = _mark(pipeline_id)
        # With the oid, since Postgres tells names apart that DuckDB does not.
        self._building = TableName(schema.name.schema, f"{BUILDING}{schema.name.name}_{schema.id}")

    def drop(self, connection: DuckDBPyConnection, catalog: str) -> None:
        """Remove what an attempt has left."""
        connection.execute(f"DROP TABLE IF EXISTS {place(catalog, self._building)}")

    def begin(self, connection: DuckDBPyConnection, catalog: str, piece: Piece) -> None:
        """Make a table for pieces like this one, within a transaction."""
        building = place(catalog, self._building)
        connection.execute(f"CREATE OR REPLACE TABLE {building} AS {self._select(piece)} LIMIT 0")
        connection.execute(f"COMMENT ON TABLE {building} IS {_text(self._mark)}")

    def add(self, connections: Sequence[DuckDBPyConnection], catalog: str, pieces: Sequence[Piece]) -> int:
        """Put pieces to those before them, all at the same time; their number of rows."""
        building = place(catalog, self._building)

        def add(connection: DuckDBPyConnection, piece: Piece) -> int:
            return _count(connection, f"INSERT INTO {building} {self._select(piece)}")

        with ThreadPoolExecutor(len(pieces), thread_name_prefix="walrelay load") as threads:
            return sum(threads.map(add, connections, pieces))

    def put_in_place(self, connection: DuckDBPyConnection, catalog: str) -> None:
        """Let the pieces be the table."""
        connection.execute(f"DROP TABLE IF EXISTS {place(catalog, self._schema.name)}")
        building, name = place(catalog, self._building), self._schema.name.name
        connection.execute(f"ALTER TABLE {building} RENAME TO {quoted(name)}")

    def replace(self, connection: DuckDBPyConnection, catalog: str, piece: Piece | None) -> int:
        """Put the only piece, or an empty table, in the table's place."""
        table = place(catalog, self._schema.name)
        if piece is not None:
            return _count(connection, f"CREATE OR REPLACE TABLE {table} AS {self._select(piece)}")
        columns = [f"{quoted(column.name)} {column_type(column)}" for column in self._schema.columns]
        connection.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(columns or [f'{NO_COLUMNS} BOOLEAN'])})")
        return 0

    def _select(self, piece: Piece) -> str:
        columns = self._schema.columns
        landed = [f"landed_{number}" for number in range(len(columns))]
        selected = ", ".join(
            f"{projection(column, name)} AS {quoted(column.name)}" for column, name in zip(columns, landed, strict=True)
        )
        if not columns:
            landed, selected = ["landed_bare"], f"landed_bare AS {NO_COLUMNS}"
        # A directory called key=value would otherwise become a column.
        options = "union_by_name=false, hive_partitioning=false"
        if piece.first is not None:
            options += f", {ROW_NUMBER}=true, filename={_text(FILE_NAME)}"
            landed += ["landed_row", "landed_file"]
        files = f"[{', '.join(map(_text, piece.paths))}]"
        rows = f"read_parquet({files}, {options}) AS landed({', '.join(landed)}){_where(piece)}"
        if piece.by_one_thread:
            # Rows can be numbered by one thread only, which is all that is wanted of the number.
            rows = f"(SELECT *, row_number() OVER () AS landed_number FROM {rows}) WHERE landed_number > 0"
        return f"SELECT {selected} FROM {rows}"


def _where(piece: Piece) -> str:
    if piece.first is None:
        return ""
    begin, end = f"landed_row >= {piece.first}", f"landed_row < {piece.end}"
    if len(piece.paths) > 1:
        begin = f"(landed_file <> {_text(piece.paths[0])} OR {begin})"
        end = f"(landed_file <> {_text(piece.paths[-1])} OR {end})"
    return f" WHERE {begin} AND {end}"


def drop_unfinished(connection: DuckDBPyConnection, catalog: str, pipeline_id: str) -> None:
    """Remove copies that a run of this pipeline has begun and was killed in."""
    question = (
        "SELECT schema_name, table_name FROM duckdb_tables()"
        " WHERE database_name = ? AND starts_with(table_name, ?) AND comment = ?"
    )
    for schema, name in connection.execute(question, [catalog, BUILDING, _mark(pipeline_id)]).fetchall():
        connection.execute(f"DROP TABLE {place(catalog, TableName(schema, name))}")


def _mark(pipeline_id: str) -> str:
    return f"unfinished copy of pipeline {pipeline_id}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _count(connection: DuckDBPyConnection, statement: str) -> int:
    ((count,),) = connection.execute(statement).fetchall()
    return int(count)
