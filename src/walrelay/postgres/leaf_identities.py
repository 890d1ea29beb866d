"""Partitions whose replica identity does not fit the table under whose name their changes are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from walrelay.errors import LeafIdentityError
from walrelay.model.names import TableId, TableName
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.sql import statement


@dataclass(frozen=True, slots=True)
class OddLeaf:
    """A partition that names a changed row by other columns than its root's key; its name is quoted as SQL wants it."""

    table: TableId
    name: str
    key: tuple[str, ...]
    root_key: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        wanted = f"({', '.join(self.root_key)})" if self.root_key else "all columns"
        return f"{self.name} names changed rows by ({', '.join(self.key)}), not by {wanted}"


def odd_leaves(connection: Connection, tables: Sequence[TableId]) -> list[OddLeaf]:
    """Those below the given tables; of a table that is not partitioned there are none."""
    with talking("looking at the partitions' replica identities"):
        rows = connection.execute(statement("leaf_identities"), {"tables": list(tables)}).fetchall()
    return [OddLeaf(row.table_id, row.leaf, tuple(row.leaf_key), tuple(row.root_key), _remedy(row)) for row in rows]


def _remedy(row: Any) -> str:
    # A root's primary key is every partition's. Another unique index need not be the identity of any.
    inherits = row.root_key and row.root_identity != "i"
    return f"ALTER TABLE {row.leaf} REPLICA IDENTITY {'DEFAULT' if inherits else 'FULL'};"


def refuse_odd_leaves(connection: Connection, table: TableId, name: TableName, publication: str) -> None:
    """Deletes of such partitions would remove nothing, and new keys leave the old row behind."""
    with talking("reading the publication"):
        found = connection.execute(statement("publication"), {"publication": publication}).fetchone()
    if found is None or not (found.updates or found.deletes):
        return
    odd = odd_leaves(connection, [table])
    if odd:
        raise LeafIdentityError(
            f"changes of {name} cannot be followed: its partition {odd[0]}",
            hint=" ".join(leaf.remedy for leaf in odd),
            context={"table": str(name)},
        )
