"""A warehouse's rows, hashed as Postgres hashes the source's, for `verify`.

No warehouse writes all values out as Postgres does. So the columns are read, as Arrow and in pieces, and hashed here by
DuckDB, whose text is the same (`destinations/row_text`): that costs a scan of the table, and its way over the network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import sql

from walrelay.changes.shapes import match_held
from walrelay.destinations.duckdb.file import duckdb_module
from walrelay.destinations.row_text import DuckDBSide
from walrelay.destinations.verifying import Fingerprints, HashedRow, HeldTable, KeyRanges, RangeSum
from walrelay.destinations.warehouse.positions import Positions
from walrelay.destinations.warehouse.service import Reader, Warehouse
from walrelay.destinations.warehouse.state import Kept
from walrelay.errors import DestinationError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.retyping import source_type
from walrelay.model.schema import Column, TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SIDE = DuckDBSide()
_LAST = {
    "date": "9999-12-31",
    "timestamp": "9999-12-31 23:59:59.999999",
    "timestamptz": "9999-12-31 23:59:59.999999+00",
}


class WarehouseLook:
    """`reader` shows one state of the warehouse."""

    def __init__(self, warehouse: Warehouse, reader: Reader, source: str, positions: Positions) -> None:
        self._warehouse = warehouse
        self._reader = reader
        self._source = source
        self._positions = positions
        self._fixed: dict[TableId, Kept | None] = {}

    def identity(self) -> str | None:
        return self._warehouse.identity()

    def copies(self) -> dict[TableId, Lsn | None]:
        return {one.state.table: one.state.copied for one in self._warehouse.kept(self._source)}

    def _kept(self, table: TableId) -> Kept | None:
        if table not in self._fixed:
            self._fixed[table] = self._reader.fixed(self._source, table)
        return self._fixed[table]

    def held(self, schema: TableSchema) -> HeldTable | None:
        kept = self._kept(schema.id)
        if kept is None:
            return None
        applied = None if kept.applied is None else self._positions.reached(schema.id, kept.applied)
        is_there = self._warehouse.columns(kept.state.place) is not None
        return HeldTable(applied, kept.state.copied, self._odd(schema, kept), is_there)

    def _odd(self, schema: TableSchema, kept: Kept) -> tuple[str, ...]:
        found = []
        for one in match_held(schema.columns, kept.state.columns, self._warehouse.dialect):
            held = one.held
            is_same = held is not None and held.type == one.type
            if not is_same or (held is not None and held.source_type not in ("", source_type(one.column.type))):
                found.append(one.column.name)
        return tuple(found)

    # --------------------------------------------------------------------------------------------------------- hashing

    def fingerprint(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> Fingerprints:
        sums: dict[int, RangeSum] = {}
        for duckdb, table in self._pieces(schema):
            asked = sql.SQL("SELECT {k} AS k, {r} AS r FROM {t}").format(
                k=SIDE.row_hash(self._places(schema, key)),
                r=SIDE.row_hash(self._places(schema, schema.columns)),
                t=sql.SQL(table),
            )
            question = f"SELECT k >> {ranges.shift}, count(*), sum(r) FROM ({asked.as_string(None)}){_where(ranges)}"
            for range_, rows, hashes in _asked(duckdb, f"{question} GROUP BY ALL", ranges):
                before = sums.get(int(range_), RangeSum())
                sums[int(range_)] = RangeSum(before.rows + rows, before.hashes + int(hashes))
        return sums

    def rows(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> list[HashedRow]:
        columns, found = self._places(schema, schema.columns), list[HashedRow]()
        width = len(columns)
        for duckdb, table in self._pieces(schema):
            wanted = [SIDE.row_hash(columns), *(SIDE.column(one) for one in columns)]
            wanted += [SIDE.printed(one) for one in columns]
            asked = sql.SQL("SELECT {k} AS k, {w} FROM {t}").format(
                k=SIDE.row_hash(self._places(schema, key)), w=sql.SQL(", ").join(wanted), t=sql.SQL(table)
            )
            rows = _asked(duckdb, f"SELECT * FROM ({asked.as_string(None)}){_where(ranges)}", ranges)
            found += [HashedRow(row[0], row[1], tuple(row[2 : 2 + width]), tuple(row[2 + width :])) for row in rows]
        return found

    def replace_rows(self, schema: TableSchema, key: tuple[Column, ...], keys: Collection[int], rows: pa.Table) -> int:
        raise DestinationError(
            f"rows of {schema.name} cannot be put right one by one in {self._warehouse.title}",
            hint="`walrelay resync` copies the table again; readers see the old rows until the new ones are there.",
        )

    @staticmethod
    def _places(schema: TableSchema, columns: Sequence[Column]) -> list[Column]:
        """The columns under the names that they have in a piece."""
        places = {column.name: f"v{i}" for i, column in enumerate(schema.columns)}
        return [replace(column, name=places[column.name]) for column in columns]

    def _pieces(self, schema: TableSchema) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """The table's rows, each piece as a relation of DuckDB's whose columns are v0…"""
        kept = self._kept(schema.id)
        if kept is None:
            raise DestinationError(f"{schema.name} is gone from {self._warehouse.shown}")
        matched = match_held(schema.columns, kept.state.columns, self._warehouse.dialect)
        names = [self._warehouse.here(one.held.name if one.held else one.column.name) for one in matched]
        restored = ", ".join(
            f"{self._warehouse.restored(column, f'c{i}')} AS v{i}" for i, column in enumerate(schema.columns)
        )
        with _duckdb() as connection:
            for piece in self._reader.rows(kept.state.place, names, schema.columns):
                connection.register("piece", _known(pa.Table.from_batches([piece])))
                yield connection, f"(SELECT {restored} FROM piece)"
                connection.unregister("piece")


def unheld(column: Column, *, array_nulls: bool) -> sql.Composable | None:
    """SQL of Postgres for «policy treats the source's value», where it is a column of its own: see `values`."""
    type_, x = column.type, sql.Identifier(column.name)
    if column.as_text:
        return None
    if type_.kind == "base" and type_.schema == "pg_catalog" and type_.name in _LAST:
        return sql.SQL("({x} < '0001-01-01' OR {x} > {last})").format(x=x, last=sql.Literal(_LAST[type_.name]))
    if type_.kind == "array" and not array_nulls:
        some = sql.SQL("EXISTS (SELECT FROM unnest({}) AS e WHERE e IS NOT DISTINCT FROM NULL)").format(x)
        return sql.SQL("({} IS NULL OR {})").format(x, some)
    return None


@contextmanager
def _duckdb() -> Iterator[DuckDBPyConnection]:
    connection = duckdb_module().connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def _known(piece: pa.Table) -> pa.Table:
    """With decimals that DuckDB can take: it has none of 256 bits, and text is as exact."""
    for i, field in enumerate(piece.schema):
        if pa.types.is_decimal256(field.type):
            piece = piece.set_column(i, field.name, piece.column(i).cast(pa.string()))
    return piece.replace_schema_metadata(None)


def _where(ranges: KeyRanges) -> str:
    tests = []
    if ranges.chosen is not None:
        tests.append(f"k >> {ranges.shift} IN (SELECT h FROM chosen)")
    if ranges.keys is not None:
        tests.append("k IN (SELECT h FROM keys)")
    if ranges.leaving_out:
        tests.append("k NOT IN (SELECT h FROM left_out)")
    return " WHERE " + " AND ".join(tests) if tests else ""


def _asked(connection: DuckDBPyConnection, question: str, ranges: KeyRanges) -> list[Any]:
    given = {"chosen": ranges.chosen, "keys": ranges.keys, "left_out": ranges.leaving_out or None}
    used = {name: numbers for name, numbers in given.items() if numbers is not None}
    for name, numbers in used.items():
        connection.register(name, pa.table({"h": pa.array(sorted(numbers), pa.int64())}))
    found = connection.execute(question).fetchall()
    for name in used:
        connection.unregister(name)
    return found
