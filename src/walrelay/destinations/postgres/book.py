"""What the database says about itself, in the schema `_walrelay`: whose each table is, how far it has come and which
shape it has. Written in the transaction that writes the rows, so it is never ahead of them nor behind."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from typing import Any

from walrelay.changes.shapes import HeldColumn
from walrelay.destinations.holdings import Holding, Progress, Shape, Writer
from walrelay.destinations.postgres.client import Connection, rows, run
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import TableSchema

_LOCK = 0x77616C72
"""An advisory lock of ours: two runs that make the tables at once would be in each other's way."""


@lru_cache(maxsize=1)
def metadata_sql() -> str:
    return files("walrelay.destinations.postgres").joinpath("metadata.sql").read_text(encoding="utf-8")


class TargetBook:
    """On a connection, within its transaction. Tables are those of the writer's source, unless it says otherwise."""

    def __init__(self, connection: Connection, writer: Writer) -> None:
        self.writer = writer
        self._connection = connection
        self._source = writer.source_id or ""

    def is_there(self) -> bool:
        ((found,),) = rows(self._connection, "SELECT pg_catalog.to_regclass('_walrelay.tables') IS NOT NULL")
        return bool(found)

    def create(self) -> None:
        run(self._connection, f"SELECT pg_catalog.pg_advisory_xact_lock({_LOCK})")
        if not self.is_there():
            run(self._connection, metadata_sql())

    # ----------------------------------------------------------------------------------------------------- progress

    def progress(self, tables: Collection[TableId] | None, *, lock: bool = False) -> dict[TableId, Progress]:
        """How far tables are. `lock`: nobody else writes to them until the transaction ends; a run of ours whose
        connection was lost may still be about to commit."""
        which = "" if tables is None else " AND table_id = ANY (%s)"
        found = rows(
            self._connection,
            "SELECT table_id, applied_lsn::text, copied_lsn::text FROM _walrelay.tables WHERE source_id = %s"
            f"{which} AND columns IS NOT NULL ORDER BY table_id{' FOR UPDATE' if lock else ''}",
            (self._source, *([] if tables is None else [list(tables)])),
        )
        return {table: Progress(_lsn(applied), _lsn(copied)) for table, applied, copied in found}

    def whole(self) -> Lsn | None:
        """Up to where all tables of the pipeline hold every change."""
        found = rows(
            self._connection,
            "SELECT applied_lsn::text FROM _walrelay.progress WHERE source_id = %s AND pipeline = %s",
            (self._source, self.writer.pipeline or ""),
        )
        return Lsn.parse(found[0][0]) if found else None

    def advance(self, tables: Iterable[TableId], lsn: Lsn) -> None:
        """Record that these tables hold everything up to there; none goes back."""
        run(
            self._connection,
            "UPDATE _walrelay.tables SET applied_lsn = %s::pg_lsn, applied_at = now() WHERE source_id = %s"
            " AND table_id = ANY (%s) AND coalesce(applied_lsn < %s::pg_lsn, true)",
            (str(lsn), self._source, list(tables), str(lsn)),
        )

    def advance_whole(self, lsn: Lsn) -> None:
        run(
            self._connection,
            "INSERT INTO _walrelay.progress AS p VALUES (%s, %s, %s, now()) ON CONFLICT (source_id, pipeline)"
            " DO UPDATE SET applied_lsn = excluded.applied_lsn, applied_at = excluded.applied_at"
            " WHERE p.applied_lsn < excluded.applied_lsn",
            (self._source, self.writer.pipeline or "", str(lsn)),
        )

    # ------------------------------------------------------------------------------------------------------- shapes

    def shapes(self, tables: Iterable[TableId]) -> dict[TableId, Shape]:
        found = rows(
            self._connection,
            "SELECT table_id, schema_name, table_name, columns, shape_lsn::text, shape_version FROM _walrelay.tables"
            " WHERE source_id = %s AND table_id = ANY (%s) AND columns IS NOT NULL",
            (self._source, list(tables)),
        )
        return {
            table: Shape(TableName(schema, name), _columns(columns), Lsn.parse(lsn), version)
            for table, schema, name, columns, lsn, version in found
        }

    def keys(self, tables: Iterable[TableId]) -> dict[TableId, frozenset[str]]:
        """The columns on which each table has its unique index; none where rows may be equal."""
        found = rows(
            self._connection,
            "SELECT table_id, key_columns FROM _walrelay.tables WHERE source_id = %s AND table_id = ANY (%s)",
            (self._source, list(tables)),
        )
        return {table: frozenset(names or ()) for table, names in found}

    def reshape(self, schema: TableSchema, shape: Shape) -> None:
        """Record what the table looks like now, and that it is this pipeline's."""
        run(
            self._connection,
            "INSERT INTO _walrelay.tables (source_id, table_id, schema_name, table_name, pipeline, shape_lsn,"
            " shape_version, columns, key_columns) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (source_id, table_id) DO UPDATE SET (schema_name, table_name, pipeline, shape_lsn,"
            " shape_version, columns, key_columns) = (excluded.schema_name, excluded.table_name, excluded.pipeline,"
            " excluded.shape_lsn, excluded.shape_version, excluded.columns, excluded.key_columns)",
            (
                self._source, schema.id, shape.name.schema, shape.name.name, self.writer.pipeline, str(shape.lsn),
                shape.version, json.dumps([asdict(one) for one in shape.columns]), list(schema.key_columns),
            ),
        )  # fmt: skip

    def copied(self, schema: TableSchema, shape: Shape, count: int) -> None:
        """Record a copy: nothing but it is in the table, and it has this shape."""
        self.forget(schema.id)
        self.reshape(schema, shape)
        run(
            self._connection,
            "UPDATE _walrelay.tables SET copied_lsn = %s, row_count = %s, copied_at = now(), applied_at = now()"
            " WHERE source_id = %s AND table_id = %s",
            (str(shape.lsn), count, self._source, schema.id),
        )

    def forget(self, table: TableId) -> None:
        """Nothing is known of what was applied to the table; whose it is, and its name, stay."""
        run(
            self._connection,
            "UPDATE _walrelay.tables SET applied_lsn = NULL, copied_lsn = NULL, columns = NULL"
            " WHERE source_id = %s AND table_id = %s",
            (self._source, table),
        )

    # ------------------------------------------------------------------------------------------------------- places

    def rename(self, table: TableId, name: TableName) -> None:
        run(
            self._connection,
            "UPDATE _walrelay.tables SET schema_name = %s, table_name = %s WHERE source_id = %s AND table_id = %s",
            (name.schema, name.name, self._source, table),
        )

    def strike(self, name: TableName) -> None:
        """No table of ours has this name any more."""
        where = "schema_name = %s AND table_name = %s"
        run(self._connection, f"DELETE FROM _walrelay.tables WHERE {where}", (name.schema, name.name))

    def holding(self, name: TableName) -> Holding | None:
        found = self._holdings("schema_name = %s AND table_name = %s", (name.schema, name.name))
        return found[0] if found else None

    def placed(self, table: TableId) -> Sequence[Holding]:
        return self._holdings("source_id = %s AND table_id = %s", (self._source, table))

    def holdings(self) -> Sequence[Holding]:
        return self._holdings("true", ())

    def _holdings(self, where: str, values: tuple[Any, ...]) -> list[Holding]:
        found = rows(
            self._connection,
            "SELECT schema_name, table_name, table_id, nullif(source_id, ''), pipeline FROM _walrelay.tables"
            f" WHERE {where}",
            values,
        )
        return [Holding(TableName(schema, name), *rest) for schema, name, *rest in found]

    # ---------------------------------------------------------------------------------------------------- who it is

    def database_id(self) -> str | None:
        found = rows(self._connection, "SELECT id FROM _walrelay.database") if self.is_there() else []
        return found[0][0] if found else None

    def name_database(self, id_: str) -> None:
        run(self._connection, "INSERT INTO _walrelay.database (id) VALUES (%s)", (id_,))

    def source_name(self, source_id: str) -> str:
        """A source as people know it, with its id: two may have stood at one place."""
        found = rows(self._connection, "SELECT name FROM _walrelay.sources WHERE source_id = %s", (source_id,))
        return f"{found[0][0]} ({source_id})" if found else f"the source {source_id}"

    def remember_source(self) -> None:
        if self.writer.source_id is not None:
            run(
                self._connection,
                "INSERT INTO _walrelay.sources VALUES (%s, %s)"
                " ON CONFLICT (source_id) DO UPDATE SET name = excluded.name",
                (self.writer.source_id, self.writer.source_name),
            )


def _columns(found: list[Mapping[str, Any]]) -> tuple[HeldColumn, ...]:
    return tuple(HeldColumn(**one) for one in found)


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)
