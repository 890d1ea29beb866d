"""What a run tells while it goes, and at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from walrelay.errors import WalrelayError
from walrelay.model.names import TableName
from walrelay.model.special import Special


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table's copy, ended."""

    name: TableName
    rows: int
    seconds: float
    attempts: int = 1
    treated: Counter[Special] = field(default_factory=Counter)
    error: WalrelayError | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run, ended."""

    tables: tuple[TableReport, ...]
    seconds: float
    changes: int = 0
    """Changes written, in mode `changes`."""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables if table.error is None)

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def treated(self) -> Counter[Special]:
        """Values treated by policy, over all tables."""
        return sum((table.treated for table in self.tables), Counter())

    @property
    def failed(self) -> tuple[TableReport, ...]:
        return tuple(table for table in self.tables if table.error is not None)


class Listener(Protocol):
    """Hears how a run goes; calls come from several threads."""

    def run_started(self, tables: dict[TableName, int]) -> None:
        """The tables, each with the rows that Postgres estimates."""

    def table_started(self, table: TableName, attempt: int) -> None: ...

    def table_progress(self, table: TableName, rows: int) -> None:
        """So many rows have been read so far in this attempt."""

    def table_writing(self, table: TableName, rows: int) -> None:
        """All rows have landed; the destination takes them."""

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None: ...

    def table_finished(self, report: TableReport) -> None: ...

    def notice(self, message: str) -> None: ...


class Silent:
    """Hears and says nothing."""

    def run_started(self, tables: dict[TableName, int]) -> None: ...

    def table_started(self, table: TableName, attempt: int) -> None: ...

    def table_progress(self, table: TableName, rows: int) -> None: ...

    def table_writing(self, table: TableName, rows: int) -> None: ...

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None: ...

    def table_finished(self, report: TableReport) -> None: ...

    def notice(self, message: str) -> None: ...
