"""What stores keep besides phases: progress, shapes by LSN, and what a destination has of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.schema import TableSchema


@dataclass(frozen=True, slots=True)
class DurableProgress:
    """Up to `lsn`, of this lineage and no other, everything is durable in the destination (SEMANTICS 4)."""

    lineage: Lineage
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class SchemaSnapshot:
    """A table's shape from `snapshot_lsn` on, until the next one (SEMANTICS 17)."""

    schema: TableSchema
    snapshot_lsn: Lsn


ReplicationMask = tuple[bool, ...]
"""Which columns of the shape are replicated, in its order."""

SchemaStatus = Literal["applying", "applied"]


@dataclass(frozen=True, slots=True)
class DestinationTableMetadata:
    """What the destination has of a table: a ledger entry that DDL there goes through (SEMANTICS 18).

    `applying` found at a start means that the DDL may have been done, in part or not at all: do it again, idempotently,
    from `previous_snapshot_lsn` to `snapshot_lsn`.
    """

    destination_table: str
    snapshot_lsn: Lsn
    """Names the shape that the table has, or is being brought to."""
    replication_mask: ReplicationMask
    status: SchemaStatus = "applying"
    previous_snapshot_lsn: Lsn | None = None
    """The shape before the change that is being applied; None for a new table."""

    def applying(self, snapshot_lsn: Lsn, replication_mask: ReplicationMask) -> DestinationTableMetadata:
        """The entry to store before the table is changed to another shape."""
        before = self.snapshot_lsn if self.status == "applied" else self.previous_snapshot_lsn
        return DestinationTableMetadata(
            self.destination_table, snapshot_lsn, replication_mask, "applying", previous_snapshot_lsn=before
        )

    def applied(self) -> DestinationTableMetadata:
        """The entry to store once the table has the shape."""
        return replace(self, status="applied", previous_snapshot_lsn=None)


@dataclass(frozen=True, slots=True)
class AppliedDestinationTableMetadata:
    """What the destination surely has of a table."""

    destination_table: str
    snapshot_lsn: Lsn
    replication_mask: ReplicationMask
