"""What Spark has landed of a batch for DuckDB, in the log's own form."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from walrelay.destinations.duckdb.dialect import DIALECT
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema
from walrelay.model.special import Special

LANDED = replace(DIALECT, own={**DIALECT.own, "interval": "STRUCT(months INTEGER, days INTEGER, microseconds BIGINT)"})
"""What DuckDB calls the columns of a change in the log."""
FRAME_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""For Spark, so that it writes times as the log has them."""
Run = tuple[TableId, int]
"""A table's changes under one schema version."""


@dataclass
class Landed:
    """What Spark has made of a batch."""

    runs: dict[Run, Path] = field(default_factory=dict)
    treated: dict[TableId, Counter[Special]] = field(default_factory=dict)
    changes: dict[Run, int] = field(default_factory=dict)
    """How many there were, before they were collapsed."""


def relation(path: Path, schema: TableSchema) -> str:
    """SQL for what has landed, with the types that a change in the log has."""
    row = LANDED.struct_of([(LANDED.quoted(one.name), LANDED.column_type(one)) for one in schema.columns])
    files = str(path / "*.parquet").replace("'", "''")
    return (
        "(SELECT commit_lsn, end_lsn, ordinal, xid, op,"
        f' CAST("row" AS {row}) AS "row", CAST("old" AS {row}) AS "old", old_kind, "unchanged"'
        f" FROM read_parquet('{files}', hive_partitioning=false))"
    )
