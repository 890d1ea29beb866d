"""What a comparison has found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from walrelay.model.names import TableName

Status = Literal["equal", "different", "unknown"]
Kind = Literal["missing", "extra", "changed"]
Values = Mapping[str, str | None]
EXIT_CODES: Mapping[Status, int] = {"equal": 0, "different": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same on both sides; of a table whose rows may be equal, all rows that are equal to it."""

    kind: Kind
    """Seen from the destination."""
    key: Values
    """By column; empty where rows may be equal, or where only the row's hash is known."""
    key_hash: int
    columns: tuple[str, ...] = ()
    """Those that differ, when the row is on both sides."""
    source: Values | None = field(default=None, repr=False)
    destination: Values | None = field(default=None, repr=False)
    source_rows: int = 1
    destination_rows: int = 1

    def __str__(self) -> str:
        """The row by its key, never by its values."""
        named = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in self.key.items())
        who = f"({named})" if named else f"row #{self.key_hash:015x}"
        if self.kind == "changed":
            return f"{who} differs in {', '.join(self.columns)}"
        counts = f": {self.source_rows} in the source, {self.destination_rows} in the destination"
        told = counts if self.source_rows + self.destination_rows > 1 else ""
        return f"{who} is {'missing' if self.kind == 'missing' else 'too many'}{told}"

    def as_json(self, show_values: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": self.kind,
            "key": dict(self.key),
            "hash": f"{self.key_hash:015x}",
            "columns": list(self.columns),
            "source_rows": self.source_rows,
            "destination_rows": self.destination_rows,
        }
        if show_values:
            for name, row in (("source", self.source), ("destination", self.destination)):
                body[name] = None if row is None else dict(row)
        return body


@dataclass(frozen=True, slots=True)
class TableResult:
    """One table, compared."""

    name: TableName
    status: Status
    reason: str | None = None
    """Why it could not be compared, or what differs as a whole."""
    rows: int = 0
    """Of the source that were compared."""
    ranges: int = 0
    """Into how many the rows were cut, by the hash of their key."""
    differing_ranges: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    more: bool = False
    """Whether there are more than these."""
    treated_rows: int = 0
    """Rows with values that the destination cannot hold: treated by policy, they do not count as different."""
    not_compared: tuple[str, ...] = ()
    """Columns of types whose values only Postgres can write out: of these only NULL or not was compared."""
    snapshot_lsn: str | None = None
    applied_lsn: str | None = None
    repaired: int = 0
    """Rows of the source that were brought, or rows too many that were taken away."""
    seconds: float = 0.0

    def as_json(self, show_values: bool) -> dict[str, Any]:
        return {
            "table": str(self.name),
            "status": self.status,
            "reason": self.reason,
            "rows": self.rows,
            "ranges": self.ranges,
            "differing_ranges": list(self.differing_ranges),
            "differences": [one.as_json(show_values) for one in self.differences],
            "more": self.more,
            "treated_rows": self.treated_rows,
            "not_compared": list(self.not_compared),
            "snapshot_lsn": self.snapshot_lsn,
            "applied_lsn": self.applied_lsn,
            "repaired": self.repaired,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All tables that were asked for."""

    tables: tuple[TableResult, ...]

    @property
    def status(self) -> Status:
        """`different` when any table is, else `unknown` when any could not be compared."""
        found = {one.status for one in self.tables}
        return "different" if "different" in found else "unknown" if "unknown" in found else "equal"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]

    def to_json(self, *, show_values: bool = False) -> str:
        tables = [one.as_json(show_values) for one in self.tables]
        return json.dumps({"status": self.status, "tables": tables}, indent=2)
