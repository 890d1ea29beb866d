"""A database whose changes are captured into a log, and what the log, or a copy, holds of a table as Arrow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import psycopg
import pyarrow as pa
from psycopg import sql

from walrelay.capture.capture import Capture
from walrelay.config.settings import MiB, capture_settings
from walrelay.decode.base import ARROW, Tally
from walrelay.decode.table import TableDecoder
from walrelay.log.reader import LogReader
from walrelay.model.changes import Change
from walrelay.model.names import TableName
from walrelay.model.ranges import plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.model.special import SpecialValues
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import Connection
from walrelay.postgres.copy import copy_rows
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres


class Streamed:
    """A fresh database with a publication and, once `begin` was called, a slot."""

    def __init__(self, url: str, log: Path, connection: psycopg.Connection, slot: str) -> None:
        self.url = url
        self.log = log
        self.connection = connection
        self.slot = slot
        self.publication = "p"
        self.special_values: dict[str, dict[str, int]] = {}

    @property
    def version(self) -> int:
        return self.connection.info.server_version // 10_000

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own; several in one string are one transaction."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def begin(self, **settings: object) -> None:
        """Make the slot: what comes after this is captured."""
        self._capture(settings)

    def capture(self, **settings: object) -> list[Change]:
        """Capture all that was committed; every change that is in the log now, in order."""
        self._capture(settings)
        return list(self.reader.changes())

    @property
    def reader(self) -> LogReader:
        return LogReader(self.log)

    def schema(self, table: str) -> TableSchema:
        """As the log has it."""
        return self.reader.table(TableName.parse(table)).schema

    def images(self, name: Literal["row", "old"]) -> dict[TableName, pa.Table]:
        """By table the structs of all changes that have one, as tables."""
        found: dict[TableName, list[pa.RecordBatch]] = {}
        for one in self.reader.batches():
            # Not drop_null: of a struct that holds a uuid it can make no empty one (pyarrow 26).
            structs = one.batch.column(name).filter(one.batch.column(name).is_valid())
            batch = pa.RecordBatch.from_arrays(structs.flatten(), schema=pa.schema(list(structs.type)))
            found.setdefault(one.version.schema.name, []).append(batch)
        return {table: pa.Table.from_batches(batches) for table, batches in found.items()}

    def _capture(self, settings: dict[str, object]) -> None:
        source = PostgresSource(self.url, publication=self.publication)
        capture = Capture(source, slot=self.slot, log=self.log, settings=capture_settings(**settings))
        capture.run(until="caught-up")
        self.special_values = capture.status().special_values


@contextmanager
def streamed_database(server: EmbeddedPostgres, directory: Path) -> Iterator[Streamed]:
    """Dropped afterwards, and its slot with it: servers have few."""
    name = f"stream_{uuid4().hex[:12]}"
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as connection:
        yield Streamed(url, directory / f"log_{threading.get_native_id()}_{name}", connection, name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def copied(
    connection: Connection, table: str, special_values: SpecialValues = "null"
) -> tuple[TableSchema, pa.Table, Tally]:
    """The table as a copy decodes it for the log's target, with what was treated."""
    tally = Tally(ARROW, special_values)
    schema = read_schema(connection, find_table(connection, TableName.parse(table)))
    decoder = TableDecoder(schema, tally)
    batches = []
    for part in plan_ranges(schema, range_bytes=64 * MiB, max_ranges=1, parallelism=1):
        for rows in copy_rows(connection, schema, part, chunk_bytes=MiB):
            batch = decoder.decode(rows)
            # A copy: a batch is good until the next is asked for.
            batches.append(pa.ipc.read_record_batch(batch.serialize(), batch.schema))
    return schema, pa.Table.from_batches(batches, decoder.arrow_schema), tally


def same(left: pa.Table, right: pa.Table) -> bool:
    """Whether types, names and every bit of every value are the same; NaN too is like itself."""
    return left.schema.equals(right.schema) and all(
        _bits(mine).equals(_bits(theirs)) for mine, theirs in zip(left.columns, right.columns, strict=True)
    )


def _bits(column: Any) -> pa.Array:
    array = pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])
    wanted = _as_integers(array.type)
    return array if wanted == array.type else array.view(wanted)


def _as_integers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(kind):
        return pa.int64() if pa.types.is_float64(kind) else pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_integers(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_integers(field.type)) for field in kind])
    return kind
