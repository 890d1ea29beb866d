"""`spark.readStream.format("walrelay").option("log", DIR)`: the change log as a stream; offset = LSN, replayable.

One row per change: position, table, kind, and the row before and after, as JSON text, or as typed structs when the
option `table` names one. `spark.read` with the same options gives the log so far.

A name may pass from table to table. It means the one that has it where the range ends (a stream's: the log, when it is
started), or else the last that had it before; its changes are then followed by its id, through renames. The declared
shape is that of the same place, and stays, since Spark's cannot change: older and newer changes are said in it, column
by column as attribute numbers tell. A column that came later is not shown, one that was not there yet is NULL.

Decoders are loaded where rows are read: Spark starts a process only to ask how far the log is, and it should not wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from walrelay.changes.spark_failures import as_text
from walrelay.errors import ConfigError
from walrelay.log.storage import public_url
from walrelay.log.table_names import table_named
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import SpecialValues

if TYPE_CHECKING:
    import pyarrow as pa

OWN_OPTIONS = ("log", "table", "from", "to", "special_values", "partition_bytes")
_BATCH_OPTIONS = ("ranges", "table_id", "schema_version")
"""How an `EventBatch` says what belongs to it."""
PARTITION_BYTES = 64 * 1024 * 1024
"""Of data files one Spark task reads; a segment is never split."""
_POSITION = "commit_lsn BIGINT, end_lsn BIGINT, ordinal BIGINT, xid BIGINT, commit_time TIMESTAMP, table STRING"


@dataclass(frozen=True)
class LogOptions:
    """The options of a read, checked."""

    log: str = field(repr=False)
    """Its URL; may hold a secret that Spark was not told (`secret_log`)."""
    table: TableName | None
    start: str
    to: Lsn | None
    ranges: str | None
    """From where on each table belongs to an `EventBatch`, as its `dataframe` says it."""
    special_values: SpecialValues
    partition_bytes: int
    declared: tuple[TableId, int] | None = None
    """The table and the version of its shape in which all of its changes are shown."""

    @classmethod
    def of(cls, options: Any) -> LogOptions:
        given = {key.lower(): value for key, value in dict(options).items()}
        unknown = sorted(set(given) - {*OWN_OPTIONS, *_BATCH_OPTIONS})
        if unknown:
            raise ConfigError(
                f"unknown option: {unknown[0]}",
                hint=f"format('walrelay') with a log knows: {', '.join(OWN_OPTIONS)}.",
            )
        if public_url(given["log"]) != given["log"]:
            raise ConfigError(
                "the option log holds a secret, and Spark shows options to whoever looks at a plan",
                hint="Leave it out of the URL; put AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY into the environment of"
                " the driver and the executors.",
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
            declared = (int(given["table_id"]), int(given["schema_version"])) if "table_id" in given else None
        except ValueError as error:
            raise ConfigError(
                f"an option is wrong: {error}", hint="from: earliest, latest or an LSN; table: schema.table."
            ) from error
        return cls(given["log"], table, start, to, given.get("ranges"), policy, size, declared)

    def settled(self) -> LogOptions:
        """With the table and its shape decided once: other processes ask later, when the name may mean another one."""
        if self.table is None or self.declared is not None:
            return self
        log = LogView(self.log)
        # A restarted stream goes on from its checkpoint, wherever `from` says it began.
        after = Lsn(0) if self.start in ("earliest", "latest") else Lsn.parse(self.start)
        version = table_named(log, self.table, after, log.end() if self.to is None else self.to)
        return replace(self, declared=(version.schema.id, version.version))

    def version(self) -> SchemaVersion | None:
        """The declared shape of settled options."""
        return None if self.declared is None else LogView(self.log).version(*self.declared)

    def start_lsn(self, reader: LogView) -> Lsn:
        match self.start:
            case "earliest":
                return reader.start()
            case "latest":
                return reader.end()
            case text:
                return Lsn.parse(text)


def change_ddl(options: LogOptions) -> str:
    """The columns of the stream, as Spark DDL; of settled options."""
    image = "STRING"
    version = options.version()
    if version is not None:
        from walrelay.changes.spark_dialect import row_type

        image = row_type(version.schema.columns)
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
        self._options = options.settled()
        self._version = self._options.version()
        self._opened: LogView | None = None

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

    def _read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:
            return  # what Spark makes of a plan without partitions
        from walrelay.changes.batch import chosen, ranges_from_json
        from walrelay.log.reader import LogReader
        from walrelay.spark.change_rows import refuse_doubts, typed, untyped

        assert isinstance(partition, RangePartition)
        options, version = self._options, self._version
        tables = None if version is None else {version.schema.id}
        ranges = None if options.ranges is None else ranges_from_json(options.ranges)
        if ranges is not None:
            tables = ranges.keys() & (tables or ranges.keys())
        log = LogReader(options.log)
        batches = log.batches(Lsn(partition.after), Lsn(partition.to), tables)
        for one in batches if ranges is None else chosen(batches, ranges):
            policy = options.special_values
            if version is not None:
                refuse_doubts(log, one.version, version)
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
