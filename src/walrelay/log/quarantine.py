"""What of the log could not be decoded: its quarantine, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from walrelay.log.failures import LogDamagedError, named
from walrelay.log.manifest import DataFile, Entry
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.quarantine import QuarantinedChange

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS: Final = 10
"""How often a range is looked up again when compaction has replaced a file meanwhile."""
BRIEF: Final = ("commit_lsn", "end_lsn", "ordinal", "xid", "table", "name", "code", "reason")
"""The columns by which it is decided what becomes of a table."""


def quarantine_files(entries: Sequence[Entry]) -> list[DataFile]:
    return [file for entry in entries for file in entry.files if file.kind == "quarantine"]


def read_quarantine(log: LogView, after: Lsn, to: Lsn, columns: Sequence[str] = BRIEF) -> pa.Table:
    """What could not be decoded of the transactions that end after `after` and up to `to`, in no order."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from walrelay.decode.quarantine import QUARANTINE_SCHEMA

    schema = pa.schema([QUARANTINE_SCHEMA.field(name) for name in columns])
    for attempt in range(1, ATTEMPTS + 1):
        tables = [schema.empty_table()]
        try:
            for file in quarantine_files(log.entries(after, to)):
                with named(log.storage.location(file.path)), log.storage.open(file.path) as handle:
                    tables.append(pq.read_table(handle, columns=list(columns)).cast(schema))
        except FileNotFoundError as error:
            if attempt == ATTEMPTS:
                raise LogDamagedError("a file of the log's quarantine is missing") from error
            continue
        except pa.ArrowInvalid as error:
            raise LogDamagedError("a file of the log's quarantine cannot be read") from error
        found = pa.concat_tables(tables)
        ends = found.column("end_lsn")
        return found.filter(pc.and_(pc.greater(ends, int(after)), pc.less_equal(ends, int(to))))
    raise AssertionError("unreachable")


def quarantined_changes(log: LogView) -> list[QuarantinedChange]:
    """All that is in the log, in commit order. Of most logs nothing: then Arrow is not even loaded."""
    start, end = log.start(), log.end()
    if not quarantine_files(log.entries(start, end)):
        return []
    from walrelay.decode.quarantine import QUARANTINE_SCHEMA

    columns = [name for name in QUARANTINE_SCHEMA.names if name != "message"]
    rows = read_quarantine(log, start, end, columns)
    rows = rows.sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")])
    return [
        QuarantinedChange(**{**row, "commit_lsn": Lsn(row["commit_lsn"]), "end_lsn": Lsn(row["end_lsn"])})
        for row in rows.to_pylist()
    ]
