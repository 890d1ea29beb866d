"""The rows of a Postgres that is written to, hashed and summed up there, for `verify`; and rows put right."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from psycopg import sql
from psycopg.rows import tuple_row

from walrelay.changes.shapes import match_held
from walrelay.destinations.hashed_rows import KEY, NEVER, SIDE, keyed_sql, numbers_sql, rows_sql, sums_sql
from walrelay.destinations.holdings import Shape, Writer
from walrelay.destinations.postgres.book import TargetBook
from walrelay.destinations.postgres.client import Connection, run
from walrelay.destinations.postgres.dialect import quoted
from walrelay.destinations.postgres.places import TargetPlaces, place
from walrelay.destinations.postgres.stages import Stages
from walrelay.destinations.postgres.text import column_text
from walrelay.destinations.postgres.types import TargetTypes
from walrelay.destinations.verifying import Fingerprints, HashedRow, HeldTable, KeyRanges, RangeSum
from walrelay.errors import DestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.retyping import source_type
from walrelay.model.schema import Column, TableSchema


class TargetLook:
    """On a connection, within a transaction that sees one state."""

    def __init__(self, connection: Connection, writer: Writer) -> None:
        self._connection = connection
        self._book = TargetBook(connection, writer)
        self._dialect = TargetTypes(lambda _: None).dialect(connection)
        self._places = TargetPlaces(connection, self._book)

    def identity(self) -> str | None:
        return self._book.database_id()

    def copies(self) -> dict[TableId, Lsn | None]:
        if not self._book.is_there():
            return {}
        return {table: progress.copied for table, progress in self._book.progress(None).items()}

    def held(self, schema: TableSchema) -> HeldTable | None:
        if not self._book.is_there():
            return None
        progress = self._book.progress([schema.id]).get(schema.id)
        shape = self._book.shapes([schema.id]).get(schema.id)
        if progress is None or shape is None:
            return None
        is_there = self._places.is_there(shape.name)
        return HeldTable(progress.applied, progress.copied, self._odd(schema, shape), is_there)

    def fingerprint(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> Fingerprints:
        question = sums_sql(
            self._table(schema), self._columns(schema, key), self._columns(schema, schema.columns), NEVER, ranges
        )
        return {range_: RangeSum(rows, int(hashes)) for range_, rows, hashes, _ in self._asked(question)}

    def rows(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> list[HashedRow]:
        columns = self._columns(schema, schema.columns)
        width = len(columns)
        question = rows_sql(self._table(schema), self._columns(schema, key), columns, (), ranges)
        return [
            HashedRow(row[0], row[1], tuple(row[2 : 2 + width]), tuple(row[2 + width :]))
            for row in self._asked(question)
        ]

    def replace_rows(self, schema: TableSchema, key: tuple[Column, ...], keys: Collection[int], rows: pa.Table) -> int:
        """Those that come are staged in a table like this one, so that both sides' keys are hashed alike."""
        here = self._columns(schema, key)
        gone = sql.SQL("DELETE FROM {} WHERE {} = ANY ({})").format(
            self._table(schema), SIDE.row_hash(here), numbers_sql(keys)
        )
        self._connection.execute(gone)
        if not rows.num_rows:
            return 0
        shape = self._shape(schema)
        if not schema.columns:
            series = f"pg_catalog.generate_series(1, {rows.num_rows})"
            return run(self._connection, f"INSERT INTO {place(shape.name)} SELECT FROM {series}").rowcount
        columns = self._columns(schema, schema.columns)
        types = {one.name: one.type for one in shape.columns}
        stages = Stages()
        stage = stages.fill(
            self._connection,
            "repair",
            tuple((quoted(one.name), types[one.name]) for one in columns),
            [column_text(rows.column(i).combine_chunks(), one) for i, one in enumerate(schema.columns)],
        )
        names = sql.SQL(", ").join(sql.Identifier(one.name) for one in columns)
        chosen = sql.SQL("INSERT INTO {} ({names}) SELECT {names} FROM ({}) AS keyed WHERE {} = ANY ({})").format(
            sql.Identifier(shape.name.schema, shape.name.name),
            keyed_sql(sql.SQL(stage), here),
            KEY,
            numbers_sql(keys),
            names=names,
        )
        count = self._connection.execute(chosen).rowcount
        run(self._connection, f"DROP TABLE {stage}")
        return count

    # ----------------------------------------------------------------------------------------------------- statements

    def _shape(self, schema: TableSchema) -> Shape:
        shape = self._book.shapes([schema.id]).get(schema.id)
        if shape is None:
            raise DestinationError(f"{schema.name} is gone from the destination")
        return shape

    def _odd(self, schema: TableSchema, shape: Shape) -> tuple[str, ...]:
        found = []
        for one in match_held(schema.columns, shape.columns, self._dialect):
            if one.held is None or one.held.type != one.type or one.held.source_type != source_type(one.column.type):
                found.append(one.column.name)
        return tuple(found)

    def _columns(self, schema: TableSchema, columns: Sequence[Column]) -> list[Column]:
        """The columns under the names that they have here."""
        matched = match_held(schema.columns, self._shape(schema).columns, self._dialect)
        names = {one.column.name: one.held.name for one in matched if one.held}
        return [replace(column, name=names[column.name]) for column in columns]

    def _table(self, schema: TableSchema) -> sql.Composable:
        name = self._shape(schema).name
        return sql.SQL("ONLY {}").format(sql.Identifier(name.schema, name.name))

    def _asked(self, question: sql.Composed) -> list[Any]:
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(question).fetchall()
