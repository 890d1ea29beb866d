"""`spark.readStream.format("walrelay").option("log", DIR)`: the change log as a stream; offset = LSN, replayable.

One row per change: position, table, kind, and the row before and after, as JSON text, or as typed structs when the
option `table` names one. `spark.read` with the same options gives the log so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from walrelay.decode.base import SPARK, TEXT, Tally, Target
from walrelay.decode.json_text import json_objects
from walrelay.decode.retarget import retarget_struct
from walrelay.decode.table import arrow_schema, spark_struct
from walrelay.errors import ConfigError
from walrelay.log.failures import LogSchemaChangedError
from walrelay.log.reader import LogReader, TableBatch
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.model.special import SpecialValues
from walrelay.spark.failures import as_text

OWN_OPTIONS = ("log", "table", "from", "to", "special_values", "partition_bytes")
PARTITION_BYTES = 64 * 1024 * 1024
"""Of data files one Spark task reads; a segment is never split."""
_POSITION = "commit_lsn BIGINT, end_lsn BIGINT, ordinal BIGINT, xid BIGINT, commit_time TIMESTAMP, table STRING"


@dataclass(frozen=True)
class LogOptions:
    """The options of a read, checked."""

    log: str
    table: TableName | None
    start: str
    to: Lsn | None
    special_values: SpecialValues
    partition_bytes: int

    @classmethod
    def of(cls, options: Any) -> LogOptions:
        given = {key.lower(): value for key, value in dict(options).items()}
        unknown = sorted(set(given) - set(OWN_OPTIONS))
        if unknown:
            raise ConfigError(
                f"unknown option: {unknown[0]}",
                hint=f"format('walrelay') with a log knows: {', '.join(OWN_OPTIONS)}.",
            )
        policy = given.get("special_values", "null")
        if policy not in ("null", "clamp", "error"):
            raise ConfigError(f"special_values cannot be {policy}", hint="null, clamp or error.")
        try:
            table = TableName.parse(given["table"]) if "table" in given else None
            to = Lsn.parse(given["to"]) if "to" in given else None
            start = given.get("from", "earliest")
            if start not in ("earliest", "latest"):
                Lsn.parse(start)
            size = int(given.get("partition_bytes", PARTITION_BYTES))
        except ValueError as error:
            raise ConfigError(
                f"an option is wrong: {error}", hint="from: earliest, latest or an LSN; table: schema.table."
            ) from error
        return cls(given["log"], table, start, to, policy, size)

    def start_lsn(self, reader: LogReader) -> Lsn:
        match self.start:
            case "earliest":
                return reader.start()
            case "latest":
                return reader.end()
            case text:
                return Lsn.parse(text)


def change_ddl(options: LogOptions) -> str:
    """The columns of the stream, as Spark DDL."""
    image = "STRING"
    if options.table is not None:
        image = spark_struct(LogReader(options.log).table(options.table).schema)
    return (
        f"{_POSITION}, op STRING, schema_version INT, row {image}, old {image}, old_kind STRING,"
        " unchanged ARRAY<STRING>"
    )


@dataclass
class RangePartition(InputPartition):
    """The changes after one commit up to another: whatever files hold them when they are read."""

    after: int
    to: int


class _Changes:
    """What both readers do. Cold: what is opened is opened again where it is read."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._version: SchemaVersion | None = None
        self._opened: LogReader | None = None
        if options.table is not None:
            self._version = LogReader(options.log).table(options.table)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def _log(self) -> LogReader:
        if self._opened is None:
            self._opened = LogReader(self._options.log)
        return self._opened

    def _plan(self, after: Lsn, to: Lsn) -> list[InputPartition]:
        """Neighbouring segments of up to `partition_bytes` in a partition; only those that hold the table."""
        found: list[InputPartition] = []
        size = 0
        for entry in self._log().entries(after, to) if after < to else []:
            table = None if self._version is None else self._version.schema.id
            mine = sum(file.bytes for file in entry.files if table is None or file.table == table)
            if not mine:
                continue
            low, high = max(after, entry.start_lsn), min(to, entry.end_lsn)
            last = found[-1] if found else None
            if isinstance(last, RangePartition) and size + mine <= self._options.partition_bytes:
                last.to = int(high)
                size += mine
            else:
                found.append(RangePartition(int(low), int(high)))
                size = mine
        return found

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        tables = None if self._version is None else {self._version.schema.id}
        policy = self._options.special_values
        for one in self._log().batches(Lsn(partition.after), Lsn(partition.to), tables):
            yield typed(one, self._version.schema, policy) if self._version else untyped(one, policy)


class ChangeStreamReader(_Changes, DataSourceStreamReader):
    """The stream. Its offset is the end LSN of the last transaction taken."""

    def initialOffset(self) -> dict[str, str]:
        with as_text():
            return {"lsn": str(self._options.start_lsn(self._log()))}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, str]:
        """Spark 4.1 gives no arguments, later versions do; a batch may be as large as the log is."""
        with as_text():
            end = self._log().end()
            begun = Lsn.parse(start["lsn"]) if start else end
            return {"lsn": str(max(end, begun))}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        with as_text():
            return self._plan(Lsn.parse(start["lsn"]), Lsn.parse(end["lsn"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with as_text():
            yield from self._read(partition)


class ChangeReader(_Changes, DataSourceReader):
    """The log as it is now, for batch jobs."""

    def partitions(self) -> list[InputPartition]:
        with as_text():
            log = self._log()
            return self._plan(self._options.start_lsn(log), self._options.to or log.end())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with as_text():
            yield from self._read(partition)


def typed(one: TableBatch, declared: TableSchema, policy: SpecialValues) -> pa.RecordBatch:
    """Changes with their rows as structs of the declared columns, whatever shape the table had at the time."""
    wanted = pa.struct(list(arrow_schema(declared, SPARK)))
    images = (_image(one, name, SPARK, policy) for name in ("row", "old"))
    return _assembled(one, *(_aligned(image, wanted, declared) for image in images))


def untyped(one: TableBatch, policy: SpecialValues) -> pa.RecordBatch:
    """Changes with their rows as JSON text."""
    return _assembled(one, *(json_objects_or_null(_image(one, name, TEXT, policy)) for name in ("row", "old")))


def json_objects_or_null(image: pa.StructArray) -> pa.Array:
    """JSON text, and NULL (not the word) where there is no row."""
    if image.null_count == len(image):
        return pa.nulls(len(image), pa.string())
    text = json_objects(image)
    return pc.if_else(image.is_valid(), text, None) if image.null_count else text


def _image(one: TableBatch, name: str, target: Target, policy: SpecialValues) -> pa.StructArray:
    return retarget_struct(one.batch.column(name), one.version.schema, Tally(target, policy))


def _assembled(one: TableBatch, row: pa.Array, old: pa.Array) -> pa.RecordBatch:
    batch = one.batch
    names = ["commit_lsn", "end_lsn", "ordinal", "xid", "commit_time"]
    columns = [batch.column(name) for name in names]
    columns.append(pa.repeat(str(one.version.schema.name), batch.num_rows))
    columns += [batch.column("op"), batch.column("schema_version"), row, old]
    columns += [batch.column("old_kind"), batch.column("unchanged")]
    names += ["table", "op", "schema_version", "row", "old", "old_kind", "unchanged"]
    return pa.RecordBatch.from_arrays(columns, names)


def _aligned(image: pa.StructArray, wanted: pa.StructType, declared: TableSchema) -> pa.StructArray:
    """By name: a column that was not there yet, or is no more, is NULL; one of another type is converted exactly."""
    if image.type == wanted or wanted.num_fields == 0:
        return image
    here = {image.type.field(place).name: place for place in range(image.type.num_fields)}
    flat = image.flatten()
    columns = []
    for place in range(wanted.num_fields):
        want = wanted.field(place)
        if want.name not in here:
            columns.append(pa.nulls(len(image), want.type))
            continue
        try:
            columns.append(flat[here[want.name]].cast(want.type))
        except pa.ArrowException as error:
            raise LogSchemaChangedError(
                f"column {want.name} of {declared.name} had another type then, which cannot be converted",
                context={"table": str(declared.name), "column": want.name},
            ) from error
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)
