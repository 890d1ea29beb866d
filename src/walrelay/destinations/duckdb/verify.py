"""A DuckDB file's rows, hashed and summed up by DuckDB itself, for `verify`; and rows put right."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import sql

from walrelay.changes.shapes import match_held
from walrelay.destinations.duckdb.dialect import DIALECT, column_type, projection, quoted
from walrelay.destinations.duckdb.names import folded
from walrelay.destinations.duckdb.progress import WHOLE, ProgressBook, place
from walrelay.destinations.holdings import Shape, Writer
from walrelay.destinations.row_text import DuckDBSide
from walrelay.destinations.verifying import Fingerprints, HashedRow, HeldTable, KeyRanges, RangeSum
from walrelay.errors import DestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.retyping import source_type
from walrelay.model.schema import Column, TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SIDE = DuckDBSide()
KEY = "_walrelay_key"
LEFT_OUT, CHOSEN, KEYS, INCOMING = "_walrelay_left_out", "_walrelay_chosen", "_walrelay_keys", "_walrelay_incoming"


class DuckDBLook:
    """On a connection whose catalog `catalog` is the file, within an open transaction."""

    def __init__(self, connection: DuckDBPyConnection, catalog: str, writer: Writer) -> None:
        self._connection = connection
        self._catalog = catalog
        self._writer = writer
        self._book = ProgressBook(connection, catalog, writer)

    def identity(self) -> str | None:
        if not self._has("_walrelay", "file"):
            return None
        found = self._rows(f"SELECT id FROM {place(self._catalog, TableName('_walrelay', 'file'))}")
        return found[0][0] if found else None

    def copies(self) -> dict[TableId, Lsn | None]:
        if not self._has("_walrelay", "progress"):
            return {}
        return {table: progress.copied for table, progress in self._book.all().items() if table != WHOLE}

    def held(self, schema: TableSchema) -> HeldTable | None:
        if not self._has("_walrelay", "progress"):
            return None
        progress = self._book.all([schema.id]).get(schema.id)
        shape = self._shape(schema)
        if progress is None or shape is None:
            return None
        is_there = self._has(shape.name.schema, shape.name.name)
        return HeldTable(progress.applied, progress.copied, self._odd(schema, shape), is_there)

    def fingerprint(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> Fingerprints:
        columns = self._columns(schema, schema.columns)
        rows = sql.SQL("SELECT {} AS {}, {} AS r FROM {}").format(
            self._key(schema, key), sql.Identifier(KEY), SIDE.row_hash(columns), self._table(schema)
        )
        question = sql.SQL("SELECT {key} >> {shift}, count(*), sum(r) FROM ({rows}){where} GROUP BY ALL").format(
            key=sql.Identifier(KEY), shift=sql.Literal(ranges.shift), rows=rows, where=self._where(ranges)
        )
        return {int(range_): RangeSum(rows, int(hashes)) for range_, rows, hashes in self._asked(question, ranges)}

    def rows(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> list[HashedRow]:
        columns = self._columns(schema, schema.columns)
        width = len(columns)
        keyed = sql.SQL("SELECT *, {} AS {} FROM {}").format(
            self._key(schema, key), sql.Identifier(KEY), self._table(schema)
        )
        wanted = [sql.Identifier(KEY), SIDE.row_hash(columns)]
        wanted += [SIDE.column(column) for column in columns] + [SIDE.printed(column) for column in columns]
        question = sql.SQL("SELECT {} FROM ({}){}").format(sql.SQL(", ").join(wanted), keyed, self._where(ranges))
        return [
            HashedRow(row[0], row[1], tuple(row[2 : 2 + width]), tuple(row[2 + width :]))
            for row in self._asked(question, ranges)
        ]

    def replace_rows(self, schema: TableSchema, key: tuple[Column, ...], keys: Collection[int], rows: pa.Table) -> int:
        ranges = KeyRanges(0, keys=frozenset(keys))
        table, where = self._table(schema), sql.SQL(" WHERE {} IN (SELECT h FROM {})")
        gone = sql.SQL("DELETE FROM {}").format(table) + where.format(self._key(schema, key), sql.Identifier(KEYS))
        self._asked(gone, ranges)
        if not rows.num_rows:
            return 0
        if not schema.columns:
            bare = sql.SQL("INSERT INTO {} SELECT NULL FROM range({})").format(table, sql.Literal(rows.num_rows))
            return int(self._asked(bare, ranges)[0][0])
        # Under names of ours, as a copy is taken: a user's name may be that of something else in the statement.
        landed = rows.rename_columns([f"landed_{i}" for i in range(rows.num_columns)])
        self._connection.register(INCOMING, landed)
        shape = self._shape(schema)
        assert shape is not None, "the table was looked at before"
        names = [one.name for one in self._columns(schema, schema.columns)]
        taken = ", ".join(
            f"{projection(column, f'landed_{i}')} AS {quoted(name)}"
            for i, (column, name) in enumerate(zip(schema.columns, names, strict=True))
        )
        chosen = where.format(self._key(schema, key), sql.Identifier(KEYS)).as_string(None)
        listed = ", ".join(map(quoted, names))
        put = f"INSERT INTO {table.as_string(None)} ({listed}) SELECT {listed} FROM (SELECT {taken} FROM {INCOMING})"
        ((count,),) = self._asked(put + chosen, ranges)
        self._connection.unregister(INCOMING)
        return int(count)

    # ----------------------------------------------------------------------------------------------------- statements

    def _shape(self, schema: TableSchema) -> Shape | None:
        return self._book.shapes([schema.id]).get(schema.id)

    @staticmethod
    def _odd(schema: TableSchema, shape: Shape) -> tuple[str, ...]:
        found = []
        for one in match_held(schema.columns, shape.columns, DIALECT):
            held = one.held
            is_same = held is not None and held.type == column_type(one.column)
            if not is_same or (held is not None and held.source_type not in ("", source_type(one.column.type))):
                found.append(one.column.name)
        return tuple(found)

    def _columns(self, schema: TableSchema, columns: Sequence[Column]) -> list[Column]:
        """The columns under the names that they have here."""
        shape = self._shape(schema)
        if shape is None:
            raise DestinationError(f"{schema.name} is gone from the DuckDB file")
        names = {
            one.column.name: one.held.name for one in match_held(schema.columns, shape.columns, DIALECT) if one.held
        }
        return [replace(column, name=names[column.name]) for column in columns]

    def _key(self, schema: TableSchema, key: Sequence[Column]) -> sql.Composable:
        return SIDE.row_hash(self._columns(schema, key))

    def _table(self, schema: TableSchema) -> sql.Composable:
        shape = self._shape(schema)
        assert shape is not None, "the table was looked at before"
        return sql.Identifier(self._catalog, shape.name.schema, shape.name.name)

    @staticmethod
    def _where(ranges: KeyRanges) -> sql.Composable:
        key = sql.Identifier(KEY)
        tests = []
        if ranges.chosen is not None:
            tests.append(
                sql.SQL("{} >> {} IN (SELECT h FROM {})").format(key, sql.Literal(ranges.shift), sql.Identifier(CHOSEN))
            )
        if ranges.keys is not None:
            tests.append(sql.SQL("{} IN (SELECT h FROM {})").format(key, sql.Identifier(KEYS)))
        if ranges.leaving_out:
            tests.append(sql.SQL("{} NOT IN (SELECT h FROM {})").format(key, sql.Identifier(LEFT_OUT)))
        return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(tests) if tests else sql.SQL("")

    def _asked(self, question: sql.Composable | str, ranges: KeyRanges) -> list[Any]:
        given = {CHOSEN: ranges.chosen, KEYS: ranges.keys, LEFT_OUT: ranges.leaving_out or None}
        used = {name: numbers for name, numbers in given.items() if numbers is not None}
        for name, numbers in used.items():
            self._connection.register(name, pa.table({"h": pa.array(sorted(numbers), pa.int64())}))
        text = question if isinstance(question, str) else question.as_string(None)
        found = self._rows(text)
        for name in used:
            self._connection.unregister(name)
        return found

    def _has(self, schema: str, table: str) -> bool:
        there = self._rows("SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?", self._catalog)
        return any(folded(*one) == folded(schema, table) for one in there)

    def _rows(self, question: str, *values: Any) -> list[Any]:
        return self._connection.execute(question, list(values)).fetchall()
