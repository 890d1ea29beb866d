"""Whether a DuckDB file holds what its source holds: each side is asked by itself, then the answers compared.

A row is written out as text, in one form that both sides produce with functions of their own, and hashed. A
table's fingerprint is the number of its rows and the sum of their hashes: the order does not matter, a value
in the wrong row does. Where fingerprints differ, the columns are hashed one by one to name those that do. No
row leaves its database.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import sql
from psycopg.rows import tuple_row

from walrelay.destinations.duckdb.file import failure
from walrelay.destinations.row_text import DuckDBSide, PostgresSide, Side, can_write
from walrelay.errors import MissingExtraError
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.connection import Connection, connect, talking
from walrelay.postgres.source import PostgresSource
from walrelay.verify.source_table import published_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class TableAgreement:
    """One table, compared."""

    name: TableName
    source_rows: int
    destination_rows: int | None
    """None when the destination has no such table."""
    columns: int
    hashes_agree: bool
    differing: tuple[str, ...] = ()
    """Columns whose values differ, or that the destination lacks."""
    not_compared: tuple[str, ...] = ()
    """Columns of types whose values only Postgres can write out: of these only NULL or not was compared."""

    @property
    def agrees(self) -> bool:
        return self.hashes_agree and self.source_rows == self.destination_rows

    @property
    def compared(self) -> int:
        """How many columns went into the hashes with their values."""
        return self.columns - len(self.not_compared)

    def __str__(self) -> str:
        """What was compared, or what differs."""
        if self.destination_rows is None:
            return "missing in the destination"
        if self.source_rows != self.destination_rows:
            return f"{self.source_rows:,} rows in the source, {self.destination_rows:,} in the destination"
        if self.differing:
            return f"differs in {', '.join(self.differing)}"
        if not self.hashes_agree:
            return "values stand in other rows than in the source"
        if self.source_rows == 0:
            return "no rows on either side"
        of = f"all {self.columns}" if not self.not_compared else f"{self.compared} of {self.columns}"
        return f"rows and {of} columns hashed"


def compare(source: PostgresSource, duckdb_path: str | Path) -> list[TableAgreement]:
    """Every table of the publication against its copy, in the order of their names.

    Only a source at rest can be compared, and what DuckDB cannot hold must have become NULL, as by default.
    """
    with connect(source, application="walrelay agreement") as origin, _opened(Path(duckdb_path)) as copy:
        schemas = _schemas(origin, source.publication)
        present = _columns_present(copy)
        whole = [schema for schema in schemas if not _lacking(schema, present)]
        with ThreadPoolExecutor(1, thread_name_prefix="walrelay-agreement") as pool:
            copies = pool.submit(lambda: {schema.name: _copy_fingerprint(copy, schema) for schema in whole})
            origins = {schema.name: _source_fingerprint(origin, schema) for schema in schemas}
            found = copies.result()
        agreements = []
        for schema in schemas:
            there, here, differing = origins[schema.name], found.get(schema.name), _lacking(schema, present)
            if here is None and schema.name in present:
                here = Fingerprint(_copy_rows(copy, schema), None)
            elif here is not None and here != there and here.rows == there.rows:
                differing = _differing(origin, copy, schema)
            agreements.append(_agreement(schema, there, here, differing))
        return agreements


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How many rows, and the sum of their hashes, if it could be asked for."""

    rows: int
    hashes: int | None


def _agreement(
    schema: TableSchema, there: Fingerprint, here: Fingerprint | None, differing: tuple[str, ...]
) -> TableAgreement:
    return TableAgreement(
        name=schema.name,
        source_rows=there.rows,
        destination_rows=None if here is None else here.rows,
        columns=len(schema.columns),
        hashes_agree=here is not None and there.hashes == here.hashes,
        differing=differing,
        not_compared=tuple(c.name for c in schema.columns if not (c.as_text or can_write(c.type))),
    )


SOURCE, COPY = PostgresSide(), DuckDBSide()


def _schemas(origin: Connection, publication: str) -> list[TableSchema]:
    """The tables as one snapshot shows them, which also the later questions see."""
    with talking("beginning the comparison"):
        origin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # A source at rest has cores to spare.
        origin.execute("SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather TO DEFAULT")
    schemas = [read_schema(origin, table) for table in published_tables(origin, publication)]
    return sorted(schemas, key=lambda schema: schema.name)


def _columns_present(copy: DuckDBPyConnection) -> dict[TableName, set[str]]:
    found: dict[TableName, set[str]] = {}
    question = "SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE NOT internal"
    for schema, table, column in copy.execute(question).fetchall():
        found.setdefault(TableName(schema, table), set()).add(column)
    return found


def _lacking(schema: TableSchema, present: dict[TableName, set[str]]) -> tuple[str, ...]:
    """The columns that the copy does not have; all when there is no copy."""
    here = present.get(schema.name, set())
    return tuple(column.name for column in schema.columns if column.name not in here)


def _rows_of(side: Side, schema: TableSchema) -> sql.Composable:
    """What follows FROM: the rows that the publication gives."""
    return sql.Identifier(schema.name.schema, schema.name.name) if side is COPY else published_rows(schema)


def _fingerprint(side: Side, schema: TableSchema) -> sql.Composed:
    hashes = side.row_hash(schema.columns)
    return sql.SQL("SELECT count(*), coalesce(sum({}), 0) FROM {}").format(hashes, _rows_of(side, schema))


def _by_column(side: Side, schema: TableSchema) -> sql.Composed:
    sums = (sql.SQL("coalesce(sum({}), 0)").format(side.hash(side.row([column]))) for column in schema.columns)
    return sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(sums), _rows_of(side, schema))


def _source_fingerprint(origin: Connection, schema: TableSchema) -> Fingerprint:
    return Fingerprint(*_source_answer(origin, _fingerprint(SOURCE, schema), schema))


def _copy_fingerprint(copy: DuckDBPyConnection, schema: TableSchema) -> Fingerprint:
    return Fingerprint(*_copy_answer(copy, _fingerprint(COPY, schema)))


def _copy_rows(copy: DuckDBPyConnection, schema: TableSchema) -> int:
    return _copy_answer(copy, sql.SQL("SELECT count(*) FROM {}").format(_rows_of(COPY, schema)))[0]


def _differing(origin: Connection, copy: DuckDBPyConnection, schema: TableSchema) -> tuple[str, ...]:
    there = _source_answer(origin, _by_column(SOURCE, schema), schema)
    here = _copy_answer(copy, _by_column(COPY, schema))
    return tuple(c.name for c, a, b in zip(schema.columns, there, here, strict=True) if a != b)


def _source_answer(origin: Connection, question: sql.Composed, schema: TableSchema) -> list[int]:
    with talking(f"comparing {schema.name}"):
        answer = origin.cursor(row_factory=tuple_row).execute(question).fetchone()
    return [int(number) for number in answer or ()]


def _copy_answer(copy: DuckDBPyConnection, question: sql.Composed) -> list[int]:
    return [int(number) for number in copy.execute(question.as_string(None)).fetchone() or ()]


@contextmanager
def _opened(path: Path) -> Iterator[DuckDBPyConnection]:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("DuckDB is not installed", hint="pip install 'walrelay[duckdb]'") from error
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            yield connection
    except duckdb.Error as error:
        raise failure(error, path) from error
