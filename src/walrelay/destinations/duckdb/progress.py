"""What a DuckDB file says about itself: how far each table has come, and which shape it has.

Written in the transaction that writes the rows, so it is never ahead of them nor behind (DESIGN 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from walrelay.changes.shapes import HeldColumn, held_columns
from walrelay.destinations.duckdb.dialect import DIALECT, quoted
from walrelay.destinations.holdings import Holding, Progress, Shape, Writer
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.retyping import SourceType
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WHOLE = 0
"""The table id of the row that stands for all tables together; no table has this oid."""
_ALL = "(all tables)"
NO_COLUMNS = "_walrelay_no_columns"
"""A table without columns cannot exist in DuckDB; its rows are all alike and carry nothing."""


def of_columns(schema: TableSchema) -> tuple[HeldColumn, ...]:
    return held_columns(schema.columns, DIALECT)


def place(catalog: str, name: TableName) -> str:
    """The table's full name in SQL: two parts could be read as a catalog and a table."""
    return f"{quoted(catalog)}.{quoted(name.schema)}.{quoted(name.name)}"


@lru_cache(maxsize=1)
def metadata_sql() -> str:
    return files("walrelay.destinations.duckdb").joinpath("metadata.sql").read_text(encoding="utf-8")


class ProgressBook:
    """The `_walrelay` tables of an open file. `catalog` is what the connection calls the file. Tables are those of the
    writer's source: another one may have some of the same oid."""

    def __init__(self, connection: DuckDBPyConnection, catalog: str, writer: Writer | None = None) -> None:
        self.writer = writer or Writer()
        self._connection = connection
        self._prefix = f"{quoted(catalog)}._walrelay"
        self._ours = f"source_id IS NOT DISTINCT FROM {_literal(self.writer.source_id)}"
        # How far all tables are is a pipeline's own: another one may have others of them.
        pipeline = f"pipeline IS NOT DISTINCT FROM {_literal(self.writer.pipeline)}"
        self._our_progress = f"{self._ours} AND (table_id <> {WHOLE} OR {pipeline})"

    def create(self) -> None:
        """Make the tables, unless they are there, in the connection's own catalog: a view keeps names as given."""
        self._connection.execute(metadata_sql())

    def all(self, tables: Iterable[TableId] | None = None) -> dict[TableId, Progress]:
        """How far the tables are, or these alone and the row that stands for all."""
        which = "" if tables is None else f" AND table_id IN ({_numbers([WHOLE, *tables])})"
        rows = self._rows(
            f"SELECT table_id, applied_lsn, copied_lsn FROM {self._prefix}.progress WHERE {self._our_progress}{which}"
        )
        return {table: Progress(_lsn(applied), _lsn(copied)) for table, applied, copied in rows}

    def shapes(self, tables: Iterable[TableId]) -> dict[TableId, Shape]:
        rows = self._rows(
            "SELECT table_id, schema_name, table_name, lsn, version, columns, source_types"
            f" FROM {self._prefix}.shapes WHERE {self._ours} AND table_id IN ({_numbers(tables)})"
        )
        return {
            table: Shape(TableName(schema, name), _held_columns(columns, types), Lsn.parse(lsn), version)
            for table, schema, name, lsn, version, columns, types in rows
        }

    def advance(self, names: Mapping[TableId, str], known: Iterable[TableId], lsn: Lsn) -> None:
        """Record that these tables hold everything up to `lsn`. `known` are those that have a row."""
        known = [table for table in known if table in names]
        if known:
            self._connection.execute(
                f"UPDATE {self._prefix}.progress SET applied_lsn = ?, applied_at = now()"
                f" WHERE {self._our_progress} AND table_id IN ({_numbers(known)})",
                [str(lsn)],
            )
        for table in names.keys() - set(known):
            self._add_progress(table, names[table], applied=lsn, copied=None)

    def copied(self, schema: TableSchema, snapshot_lsn: Lsn | None) -> None:
        """Record a copy: nothing but it is in the table, and it has this shape."""
        self.forget(schema.id)
        lsn = snapshot_lsn or Lsn(0)
        self._add_progress(schema.id, str(schema.name), applied=None, copied=lsn)
        self._add_shape(schema.id, Shape(schema.name, of_columns(schema), lsn, 0))

    def _add_progress(self, table: TableId, name: str, *, applied: Lsn | None, copied: Lsn | None) -> None:
        self._connection.execute(
            f"INSERT INTO {self._prefix}.progress"
            " (table_id, table_name, applied_lsn, copied_lsn, applied_at, source_id, pipeline)"
            " VALUES (?, ?, ?, ?, now(), ?, ?)",
            [table, name, _text(applied), _text(copied), self.writer.source_id, self.writer.pipeline],
        )

    def reshape(self, table: TableId, shape: Shape) -> None:
        """Record what the table looks like now."""
        self._connection.execute(f"DELETE FROM {self._prefix}.shapes WHERE {self._ours} AND table_id = ?", [table])
        self._add_shape(table, shape)

    def _add_shape(self, table: TableId, shape: Shape) -> None:
        columns = [
            {"name": one.name, "attnum": one.attnum, "type": one.type, "added": one.added} for one in shape.columns
        ]
        self._connection.execute(
            f"INSERT INTO {self._prefix}.shapes (table_id, schema_name, table_name, lsn, version, columns, source_id,"
            " source_types)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                table, shape.name.schema, shape.name.name, str(shape.lsn), shape.version, columns,
                self.writer.source_id, [one.source_type for one in shape.columns],
            ],
        )  # fmt: skip

    def rename(self, table: TableId, name: TableName) -> None:
        """Record that the table has another name now."""
        where = f"WHERE {self._ours} AND table_id = ?"
        self._connection.execute(f"UPDATE {self._prefix}.progress SET table_name = ? {where}", [str(name), table])
        self._connection.execute(
            f"UPDATE {self._prefix}.shapes SET schema_name = ?, table_name = ? {where}", [name.schema, name.name, table]
        )
        self._connection.execute(
            f"UPDATE {self._prefix}.tables SET schema_name = ?, table_name = ? WHERE {self._ours} AND source_oid = ?",
            [name.schema, name.name, table],
        )

    def tables(self) -> list[TableId]:
        """Those of which anything is recorded."""
        question = " UNION ".join(
            f"SELECT table_id FROM {self._prefix}.{one} WHERE {self._ours}" for one in ("progress", "shapes")
        )
        return [table for (table,) in self._rows(question)]

    def knows(self, table: TableId) -> bool:
        return bool(
            self._rows(
                f"SELECT 1 FROM {self._prefix}.progress WHERE {self._ours} AND table_id = $1"
                f" UNION ALL SELECT 1 FROM {self._prefix}.shapes WHERE {self._ours} AND table_id = $1",
                [table],
            )
        )

    def forget(self, table: TableId) -> None:
        """Nothing is known of what was applied to this table."""
        for one in ("progress", "shapes"):
            self._connection.execute(f"DELETE FROM {self._prefix}.{one} WHERE {self._ours} AND table_id = ?", [table])

    def describe(self, schema: TableSchema) -> None:
        """Say in `_walrelay.tables` what the table is; a copy's own facts stay."""
        facts = [list(schema.primary_key), [str(column.type) for column in schema.columns]]
        changed = self._rows(
            f"UPDATE {self._prefix}.tables SET primary_key = ?, column_types = ? WHERE {self._ours} AND source_oid = ?"
            " RETURNING 1",
            [*facts, schema.id],
        )
        if not changed:
            self._enter(schema, None, None)

    def enter_copy(self, schema: TableSchema, rows: int, snapshot_lsn: Lsn | None) -> None:
        """Say in `_walrelay.tables` that the table was copied."""
        self._enter(schema, rows, snapshot_lsn)

    def _enter(self, schema: TableSchema, rows: int | None, snapshot_lsn: Lsn | None) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO {self._prefix}.tables (schema_name, table_name, source_oid, primary_key,"
            " column_types, row_count, snapshot_lsn, copied_at, source_id, pipeline)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, CASE WHEN ? THEN now() END, ?, ?)",
            [
                schema.name.schema, schema.name.name, schema.id, list(schema.primary_key),
                [str(column.type) for column in schema.columns], rows, _text(snapshot_lsn), rows is not None,
                self.writer.source_id, self.writer.pipeline,
            ],
        )  # fmt: skip

    def strike(self, name: TableName) -> None:
        """No table of ours has this name any more."""
        where = "schema_name = ? AND table_name = ?"
        self._connection.execute(f"DELETE FROM {self._prefix}.tables WHERE {where}", [name.schema, name.name])

    def holding(self, name: TableName) -> Holding | None:
        """Whose copy stands under this name, if a source's does."""
        found = self._holdings(
            "lower(schema_name) = lower(?) AND lower(table_name) = lower(?)", [name.schema, name.name]
        )
        return found[0] if found else None

    def placed(self, table: TableId) -> list[Holding]:
        """Under which names the table stands."""
        return self._holdings(f"{self._ours} AND source_oid = ?", [table])

    def holdings(self) -> list[Holding]:
        return self._holdings("true", [])

    def _holdings(self, where: str, values: list[Any]) -> list[Holding]:
        rows = self._rows(
            f"SELECT schema_name, table_name, source_oid, source_id, pipeline FROM {self._prefix}.tables WHERE {where}",
            values,
        )
        return [Holding(TableName(schema, name), *rest) for schema, name, *rest in rows]

    def source_name(self, source_id: str) -> str:
        """A source as people know it, with its id: two may have stood at one place."""
        found = self._rows(f"SELECT name FROM {self._prefix}.sources WHERE source_id = ?", [source_id])
        return f"{found[0][0]} ({source_id})" if found else f"the source {source_id}"

    def remember_source(self) -> None:
        writer = self.writer
        if writer.source_id is not None:
            self._connection.execute(f"DELETE FROM {self._prefix}.sources WHERE source_id = ?", [writer.source_id])
            self._connection.execute(
                f"INSERT INTO {self._prefix}.sources VALUES (?, ?)", [writer.source_id, writer.source_name]
            )

    def _rows(self, question: str, values: list[Any] | None = None) -> list[Any]:
        return self._connection.execute(question, values or []).fetchall()


def _held_columns(columns: list[dict[str, Any]], types: list[SourceType] | None) -> tuple[HeldColumn, ...]:
    """Files of earlier versions do not say which types the columns have in Postgres."""
    known = types or [""] * len(columns)
    return tuple(HeldColumn(**one, source_type=type_) for one, type_ in zip(columns, known, strict=True))


def whole(progress: Mapping[TableId, Progress]) -> Lsn | None:
    """Where all tables stand together."""
    found = progress.get(WHOLE)
    return None if found is None else found.applied


def names_of_all(names: Mapping[TableId, str]) -> dict[TableId, str]:
    """The names with the row for all tables."""
    return {**names, WHOLE: _ALL}


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)


def _text(lsn: Lsn | None) -> str | None:
    return None if lsn is None else str(lsn)


def _literal(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def _numbers(tables: Iterable[TableId]) -> str:
    return ", ".join(str(int(table)) for table in tables) or "NULL"
