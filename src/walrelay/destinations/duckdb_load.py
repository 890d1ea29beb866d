"""A table's landed copy into a DuckDB file, piece by piece.

While a large copy is loaded, changes of other tables come in beside it, but no other process can open the file. So it
lets go of the file between its pieces; they stand in a table of their own, which takes the other's place in the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walrelay.decode.table import duckdb_column_type
from walrelay.destinations.base import LandedFile
from walrelay.destinations.duckdb_progress import NO_COLUMNS, place
from walrelay.destinations.duckdb_types import projection, quoted
from walrelay.destinations.landing import GROUP_BYTES, GROUP_ROWS
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SMALL_BYTES = 16 * 1024 * 1024
"""Landed files of up to this are loaded at once: some tenths of a second, rows counted as below."""
PIECE_BYTES = 192 * 1024 * 1024
"""Of landed files for each of DuckDB's threads: some seconds, in which no other process gets the file."""
ROW_BYTES = 64
"""As many bytes more would take DuckDB as long as a row does, whatever is in it."""
PIECE_ROWS = 4 * GROUP_ROWS
"""Of a piece for each thread, however wide the rows are: where DuckDB finds two row groups half full and fewer than
three full ones between them, its checkpoint joins them, anew after each piece, while everybody waits."""
BUILDING = "_walrelay_copy_of_"
"""How the names of unfinished copies begin."""
ROW_NUMBER = "file_row_number"
"""DuckDB's column for a row's place in its file; it refuses to add it to files that have a column of this name."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some whole files, or a slice of one."""

    paths: tuple[str, ...]
    rows: int
    first: int | None = None
    """Of a slice: the number of its first row."""


def cut(schema: TableSchema, files: Sequence[LandedFile], piece_bytes: int, piece_rows: int = 1) -> list[Piece]:
    """All rows of the files, in pieces of `piece_bytes` or little more, and of a multiple of `piece_rows` or little
    more; none for a table without columns: nothing to load."""
    if not schema.columns:
        return []
    may_slice = all(column.name.lower() != ROW_NUMBER for column in schema.columns)
    return list(_cut(files, piece_bytes, piece_rows, may_slice))


def _cut(files: Sequence[LandedFile], piece_bytes: int, piece_rows: int, may_slice: bool) -> Iterator[Piece]:
    together: list[LandedFile] = []
    for file in files:
        slices = -(-weight([file]) // piece_bytes)
        step = -(-file.rows // max(slices, 1) // piece_rows) * piece_rows
        if may_slice and file.rows > step:
            firsts = range(0, file.rows - step // 2, step)  # what is less than half a piece goes with the last one
            for first, end in itertools.pairwise([*firsts, file.rows]):
                yield Piece((file.path,), end - first, first)
            continue
        whole = _whole(together)
        if whole.rows >= piece_rows and weight([*together, file]) > piece_bytes:
            yield whole
            together = []
        together.append(file)
    if together:
        yield _whole(together)


def weight(files: Sequence[LandedFile]) -> int:
    """The bytes of the files, and what their rows add to the work."""
    return sum(file.bytes + ROW_BYTES * file.rows for file in files)


def has_full_groups(files: Sequence[LandedFile]) -> bool:
    """Whether the rows were narrow enough to be landed in full row groups. In the order of the files DuckDB then keeps
    them as they are. Of others it makes full ones faster when each of its threads takes what comes."""
    return sum(file.bytes for file in files) <= GROUP_BYTES // GROUP_ROWS * sum(file.rows for file in files)


def _whole(files: Sequence[LandedFile]) -> Piece:
    return Piece(tuple(file.path for file in files), sum(file.rows for file in files))


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

    def add(self, connection: DuckDBPyConnection, catalog: str, piece: Piece, *, first: bool) -> int:
        """Put a piece to those before it; its number of rows."""
        building = place(catalog, self._building)
        if not first:
            return _count(connection, f"INSERT INTO {building} {self._select(piece)}")
        connection.execute("BEGIN")
        count = _count(connection, f"CREATE OR REPLACE TABLE {building} AS {self._select(piece)}")
        connection.execute(f"COMMENT ON TABLE {building} IS '{self._mark.replace(chr(39), chr(39) * 2)}'")
        connection.execute("COMMIT")
        return count

    def put_in_place(self, connection: DuckDBPyConnection, catalog: str) -> None:
        """Let the pieces be the table."""
        connection.execute(f"DROP TABLE IF EXISTS {place(catalog, self._schema.name)}")
        building, name = place(catalog, self._building), self._schema.name.name
        connection.execute(f"ALTER TABLE {building} RENAME TO {quoted(name)}")

    def replace(self, connection: DuckDBPyConnection, catalog: str, pieces: Sequence[Piece]) -> int:
        """Put the only piece, or an empty table, in the table's place."""
        table = place(catalog, self._schema.name)
        if pieces:
            (piece,) = pieces
            return _count(connection, f"CREATE OR REPLACE TABLE {table} AS {self._select(piece)}")
        columns = [f"{quoted(column.name)} {duckdb_column_type(column)}" for column in self._schema.columns]
        connection.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(columns or [f'{NO_COLUMNS} BOOLEAN'])})")
        return 0

    def _select(self, piece: Piece) -> str:
        columns = self._schema.columns
        landed = [f"landed_{number}" for number in range(len(columns))]
        selected = ", ".join(
            f"{projection(column, name)} AS {quoted(column.name)}" for column, name in zip(columns, landed, strict=True)
        )
        files = "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in piece.paths) + "]"
        # A directory called key=value would otherwise become a column.
        options, where = "union_by_name=false, hive_partitioning=false", ""
        if piece.first is not None:
            options += f", {ROW_NUMBER}=true"
            landed.append("landed_row")
            where = f" WHERE landed_row >= {piece.first} AND landed_row < {piece.first + piece.rows}"
        return f"SELECT {selected} FROM read_parquet({files}, {options}) AS landed({', '.join(landed)}){where}"


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


def _count(connection: DuckDBPyConnection, statement: str) -> int:
    ((count,),) = connection.execute(statement).fetchall()
    return int(count)
