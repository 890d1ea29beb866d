"""The source's side: a table under a snapshot, hashed and summed up by Postgres itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa
from psycopg import sql
from psycopg.rows import tuple_row

from walrelay.decode.base import Tally, Target
from walrelay.decode.table import TableDecoder, arrow_schema
from walrelay.destinations.hashed_rows import KEY, NEVER, keyed_sql, numbers_sql, rows_sql, sums_sql
from walrelay.destinations.row_text import special
from walrelay.destinations.verifying import Fingerprints, HashedRow, KeyRanges, RangeSum
from walrelay.model.schema import Column, TableSchema
from walrelay.model.special import SpecialValues
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.copy import copy_query

Unheld = Callable[[Column], sql.Composable | None]
"""Whether a value is one that this destination does not hold, where others do."""


def published_rows(schema: TableSchema) -> sql.Composable:
    """What follows FROM: the rows that the publication gives."""
    name = sql.Identifier(schema.name.schema, schema.name.name)
    partitioned = any(leaf.id != schema.id for leaf in schema.leaves)
    rows = name if partitioned else sql.SQL("ONLY {}").format(name)
    if schema.row_filter is None:
        return rows
    # Printed by Postgres from its catalog, so it is SQL and no user's text.
    return sql.SQL("{} WHERE {}").format(rows, sql.SQL(schema.row_filter))


class SourceTable:
    """On a connection within the snapshot's transaction."""

    def __init__(self, connection: Connection, schema: TableSchema, unheld: Unheld = lambda _: None) -> None:
        self._connection = connection
        self._unheld = unheld
        self.schema = schema
        key = tuple(schema.column(name) for name in schema.key_columns)
        self.key = key or schema.columns
        """The columns whose hash stands for the row: all of them where rows may be equal."""
        self.has_key = bool(key)

    def fingerprint(self, ranges: KeyRanges) -> tuple[Fingerprints, int]:
        """The sums of these ranges, and how many rows hold a value that policy treats."""
        specials = [test for column in self.schema.columns if (test := self._special(column)) is not None]
        question = sums_sql(
            published_rows(self.schema),
            self.key,
            self.schema.columns,
            sql.SQL(" OR ").join(specials) if specials else NEVER,
            ranges,
        )
        found = list(self._asked(question))
        sums = {range_: RangeSum(rows, int(hashes)) for range_, rows, hashes, _ in found}
        return sums, sum(treated for *_, treated in found)

    def rows(self, ranges: KeyRanges) -> list[tuple[HashedRow, frozenset[int]]]:
        """The rows of these ranges, each with the places of columns that hold a value which policy treats."""
        columns = self.schema.columns
        tests = [self._special(column) or NEVER for column in columns]
        treated_ones = [sql.SQL("coalesce({}, false)").format(test) for test in tests]
        question = rows_sql(published_rows(self.schema), self.key, columns, treated_ones, ranges)
        width = len(columns)
        found = []
        for row in self._asked(question):
            treated = frozenset(i for i, is_special in enumerate(row[2 + 2 * width :]) if is_special)
            values, printed = row[2 : 2 + width], row[2 + width : 2 + 2 * width]
            found.append((HashedRow(row[0], row[1], tuple(values), tuple(printed)), treated))
        return found

    def copied(self, keys: Collection[int], special_values: SpecialValues, target: Target) -> pa.Table:
        """The rows with these keys, as a copy would bring them to a destination that can hold this."""
        schema = self.schema
        columns = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(one.name)) if one.as_text else sql.Identifier(one.name)
            for one in schema.columns
        )
        query = sql.SQL("SELECT {} FROM ({}) AS keyed WHERE {} = ANY ({})").format(
            columns, keyed_sql(published_rows(schema), self.key), KEY, numbers_sql(keys)
        )
        decoder = TableDecoder(schema, Tally(target, special_values), keys=schema.key_columns)
        with talking(f"reading rows of {schema.name}"):
            # A batch is good until the next is asked for.
            batches = [_kept(decoder.decode(rows)) for rows in copy_query(self._connection, query, len(schema.columns))]
        if not schema.columns:
            return pa.table({"bare": pa.nulls(sum(batch.num_rows for batch in batches))})
        return pa.Table.from_batches(batches, arrow_schema(schema, target))

    def _special(self, column: Column) -> sql.Composable | None:
        """Whether the value is one that policy treats: what nobody holds, and what this destination does not."""
        tests = [test for test in (special(column), self._unheld(column)) if test is not None]
        return sql.SQL("({})").format(sql.SQL(" OR ").join(tests)) if tests else None

    def _asked(self, question: sql.Composed) -> Iterator[Any]:
        # Without parameters, beside which a percent sign of a row filter would mean something.
        with talking(f"comparing {self.schema.name}"), self._connection.cursor(row_factory=tuple_row) as cursor:
            yield from cursor.execute(question)


def _kept(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in memory of its own."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(buffer.getvalue()).read_next_batch()
