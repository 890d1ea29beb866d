"""The source's side: a table under a snapshot, hashed and summed up by Postgres itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa
from psycopg import sql
from psycopg.rows import tuple_row

from walrelay.decode.base import Tally
from walrelay.decode.table import TableDecoder, arrow_schema
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.destinations.row_text import PostgresSide, special
from walrelay.destinations.verifying import Fingerprints, HashedRow, KeyRanges, RangeSum
from walrelay.model.schema import Column, TableSchema
from walrelay.model.special import SpecialValues
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.copy import copy_query

SIDE = PostgresSide()
KEY = sql.Identifier("_walrelay_key")
NEVER = sql.SQL("false")
SpecialTest = Callable[[Column], sql.Composable | None]
"""SQL for «the source's value is one that policy treats», where a column's type has such values."""


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

    def __init__(self, connection: Connection, schema: TableSchema, treated: SpecialTest = special) -> None:
        self._connection = connection
        self._treated = treated
        self.schema = schema
        key = tuple(schema.column(name) for name in schema.key_columns)
        self.key = key or schema.columns
        """The columns whose hash stands for the row: all of them where rows may be equal."""
        self.has_key = bool(key)

    def fingerprint(self, ranges: KeyRanges) -> tuple[Fingerprints, int]:
        """The sums of these ranges, and how many rows hold a value that policy treats."""
        specials = [test for column in self.schema.columns if (test := self._treated(column)) is not None]
        # OFFSET keeps Postgres from computing hashes twice.
        question = sql.SQL(
            "SELECT {key} >> {shift}, count(*), sum(r), count(*) FILTER (WHERE s)"
            " FROM (SELECT {hash} AS {key}, {row} AS r, {special} AS s FROM {rows} OFFSET 0) AS hashed{where}"
            " GROUP BY 1"
        ).format(
            key=KEY,
            shift=sql.Literal(ranges.shift),
            hash=SIDE.row_hash(self.key),
            row=SIDE.row_hash(self.schema.columns),
            special=sql.SQL(" OR ").join(specials) if specials else NEVER,
            rows=published_rows(self.schema),
            where=_where(ranges),
        )
        found = list(self._asked(question))
        sums = {range_: RangeSum(rows, int(hashes)) for range_, rows, hashes, _ in found}
        return sums, sum(treated for *_, treated in found)

    def rows(self, ranges: KeyRanges) -> list[tuple[HashedRow, frozenset[int]]]:
        """The rows of these ranges, each with the places of columns that hold a value which policy treats."""
        columns = self.schema.columns
        tests = [self._treated(column) or NEVER for column in columns]
        wanted = [KEY, SIDE.row_hash(columns), *(SIDE.column(one) for one in columns)]
        wanted += [SIDE.printed(one) for one in columns]
        wanted += [sql.SQL("coalesce({}, false)").format(test) for test in tests]
        question = sql.SQL("SELECT {} FROM ({}) AS keyed{}").format(
            sql.SQL(", ").join(wanted), self._keyed(), _where(ranges)
        )
        width = len(columns)
        found = []
        for row in self._asked(question):
            treated = frozenset(i for i, is_special in enumerate(row[2 + 2 * width :]) if is_special)
            values, printed = row[2 : 2 + width], row[2 + width : 2 + 2 * width]
            found.append((HashedRow(row[0], row[1], tuple(values), tuple(printed)), treated))
        return found

    def copied(self, keys: Collection[int], special_values: SpecialValues) -> pa.Table:
        """The rows with these keys, as a copy would bring them."""
        schema = self.schema
        columns = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(one.name)) if one.as_text else sql.Identifier(one.name)
            for one in schema.columns
        )
        query = sql.SQL("SELECT {} FROM ({}) AS keyed WHERE {} = ANY ({})").format(
            columns, self._keyed(), KEY, _numbers(keys)
        )
        decoder = TableDecoder(schema, Tally(DUCKDB, special_values), keys=schema.key_columns)
        with talking(f"reading rows of {schema.name}"):
            # A batch is good until the next is asked for.
            batches = [_kept(decoder.decode(rows)) for rows in copy_query(self._connection, query, len(schema.columns))]
        if not schema.columns:
            return pa.table({"bare": pa.nulls(sum(batch.num_rows for batch in batches))})
        return pa.Table.from_batches(batches, arrow_schema(schema, DUCKDB))

    def _keyed(self) -> sql.Composable:
        return sql.SQL("SELECT *, {} AS {} FROM {} OFFSET 0").format(
            SIDE.row_hash(self.key), KEY, published_rows(self.schema)
        )

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


def _numbers(found: Collection[int]) -> sql.Composable:
    return sql.SQL("{}::int8[]").format(sql.Literal("{" + ",".join(map(str, sorted(found))) + "}"))


def _where(ranges: KeyRanges) -> sql.Composable:
    tests: list[sql.Composable] = []
    if ranges.chosen is not None:
        of_row = sql.SQL("{} >> {}").format(KEY, sql.Literal(ranges.shift))
        tests.append(sql.SQL("{} = ANY ({})").format(of_row, _numbers(ranges.chosen)))
    if ranges.keys is not None:
        tests.append(sql.SQL("{} = ANY ({})").format(KEY, _numbers(ranges.keys)))
    if ranges.leaving_out:
        # An anti-join, which is hashed in every version.
        left_out = sql.SQL("SELECT FROM unnest({}) AS o(h) WHERE o.h = {}").format(_numbers(ranges.leaving_out), KEY)
        tests.append(sql.SQL("NOT EXISTS ({})").format(left_out))
    return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(tests) if tests else sql.SQL("")
