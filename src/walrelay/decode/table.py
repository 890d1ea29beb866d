"""Rows found by a walk → one Arrow record batch, a column at a time."""

from __future__ import annotations

import pyarrow as pa

from walrelay.decode.base import Decoder, Fields, Tally, Target
from walrelay.decode.registry import decoder_for, duckdb_type, spark_type
from walrelay.decode.text import text
from walrelay.errors import BadBytesError, SpecialValueError
from walrelay.model.schema import Column, TableSchema
from walrelay.wire.copy_binary import Rows


def column_decoder(column: Column, target: Target) -> Decoder:
    return text() if column.as_text else decoder_for(column.type, target)


class TableDecoder:
    """Decodes a table's rows for one target. Not for sharing between threads: it counts special values."""

    def __init__(self, schema: TableSchema, tally: Tally) -> None:
        self._names = [column.name for column in schema.columns]
        self._decoders = [column_decoder(column, tally.target) for column in schema.columns]
        self._table = str(schema.name)
        self.tally = tally
        self.arrow_schema = arrow_schema(schema, tally.target)

    def decode(self, rows: Rows) -> pa.RecordBatch:
        """The rows as Arrow. Errors name table, column and the place in the stream, never a value."""
        columns = []
        for index, decoder in enumerate(self._decoders):
            fields = Fields(rows.buf, rows.starts[index], rows.lengths[index])
            where = {"table": self._table, "column": self._names[index]}
            try:
                columns.append(decoder.decode(fields, self.tally))
            except BadBytesError as error:
                raise BadBytesError(
                    f"{error.reason}, in column {self._names[index]} of {self._table}",
                    position=rows.base + error.position,
                    context={**error.context, **where, "position": rows.base + error.position},
                ) from error
            except SpecialValueError as error:
                raise SpecialValueError(
                    f"{error.message}, in column {self._names[index]} of {self._table}",
                    context={**error.context, **where},
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


def arrow_schema(schema: TableSchema, target: Target) -> pa.Schema:
    """All columns nullable: a NOT NULL of today may be dropped tomorrow, and readers should not care."""
    return pa.schema([pa.field(c.name, column_decoder(c, target).arrow_type) for c in schema.columns])


def spark_column_type(column: Column) -> str:
    return "STRING" if column.as_text else spark_type(column.type)


def duckdb_column_type(column: Column) -> str:
    return "VARCHAR" if column.as_text else duckdb_type(column.type)


def spark_ddl(schema: TableSchema) -> str:
    """The table's columns as Spark DDL."""
    return ", ".join(f"{_quoted(c.name)} {spark_column_type(c)}" for c in schema.columns)


def spark_struct(schema: TableSchema) -> str:
    """A row of the table as one Spark type."""
    return f"STRUCT<{', '.join(f'{_quoted(c.name)}: {spark_column_type(c)}' for c in schema.columns)}>"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
