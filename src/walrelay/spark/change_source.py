"""`spark.readStream.format("walrelay").option("log", DIR)`: the change log as a stream; offset = LSN, replayable.

One row per change: position, table, kind, and the row before and after, as JSON text, or as typed structs when the
option `table` names one. `spark.read` with the same options gives the log so far.

Decoders are loaded where rows are read: Spark starts a process only to ask how far the log is, and it should not wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from walrelay.errors import ConfigError
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import SpecialValues
from walrelay.spark.failures import as_text

if TYPE_CHECKING:
    import pyarrow as pa

OWN_OPTIONS = ("log", "table", "from", "to", "ranges", "special_values", "partition_bytes")
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
    ranges: str | None
    """From where on each table belongs to an `EventBatch`, as its `dataframe` says it."""
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
        return cls(given["log"], table, start, to, given.get("ranges"), policy, size)

    def start_lsn(self, reader: LogView) -> Lsn:
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
        from walrelay.decode.table import spark_struct

        image = spark_struct(LogView(options.log).table(options.table).schema)
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
        self._opened: LogView | None = None
        if options.table is not None:
            self._version = LogView(options.log).table(options.table)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def _log(self) -> LogView:
        if self._opened is None:
            self._opened = LogView(self._options.log)
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
        from walrelay.destinations.events import chosen, ranges_from_json
        from walrelay.log.reader import LogReader
        from walrelay.spark.change_rows import typed, untyped

        assert isinstance(partition, RangePartition)
        options, version = self._options, self._version
        tables = None if version is None else {version.schema.id}
        ranges = None if options.ranges is None else ranges_from_json(options.ranges)
        if ranges is not None:
            tables = ranges.keys() & (tables or ranges.keys())
        batches = LogReader(options.log).batches(Lsn(partition.after), Lsn(partition.to), tables)
        for one in batches if ranges is None else chosen(batches, ranges):
            policy = options.special_values
            yield typed(one, version.schema, policy) if version else untyped(one, policy)


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
