"""How far tables are: a table of ours, written after the rows. A row that it does not tell of yet comes again, and is
the same then; one that it tells of is there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from walrelay.destinations.clickhouse.client import ONE_BLOCK, Server
from walrelay.destinations.clickhouse.dialect import literal
from walrelay.destinations.clickhouse.names import OWN
from walrelay.model.lsn import Lsn

TABLE = f"{OWN}progress"


@dataclass
class Progress:
    """By epoch: a copy made anew has one of its own, of which nothing is told."""

    server: Server
    _reached: dict[str, Lsn] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self) -> None:
        self.server.command(
            f"CREATE TABLE IF NOT EXISTS {self.server.place(TABLE)} (epoch String, lsn UInt64, table_name String,"
            " pipeline String, at DateTime64(6, 'UTC') DEFAULT now64(6)) ENGINE = ReplacingMergeTree(lsn)"
            " ORDER BY epoch COMMENT 'how far walrelay has brought each table'",
            doing="making its own tables",
        )

    def read(self) -> None:
        found = self.server.rows(f"SELECT epoch, max(lsn) FROM {self.server.place(TABLE)} GROUP BY epoch")
        self._reached = {epoch.decode(): Lsn(lsn) for epoch, lsn in found}

    def reached(self, epoch: str) -> Lsn | None:
        return self._reached.get(epoch)

    def record(self, names: Mapping[str, str], to: Lsn, pipeline: str) -> None:
        """Tables, by epoch, hold all up to here. An older batch takes nothing back."""
        with self._lock:
            further = {epoch: name for epoch, name in names.items() if (self._reached.get(epoch) or Lsn(0)) < to}
            if not further:
                return
            rows = ", ".join(
                f"({literal(epoch)}, {int(to)}, {literal(name)}, {literal(pipeline)})"
                for epoch, name in further.items()
            )
            self.server.command(
                f"INSERT INTO {self.server.place(TABLE)} (epoch, lsn, table_name, pipeline) VALUES {rows}",
                ONE_BLOCK,
                doing="recording progress",
            )
            self._reached.update(dict.fromkeys(further, to))
