"""What a run tells while it goes, and at its end."""

from __future__ import annotations

import threading
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
    """Changes written."""
    treated_changes: Counter[Special] = field(default_factory=Counter)
    """Values treated by policy in what was captured and written."""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables if table.error is None)

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def treated(self) -> Counter[Special]:
        """Values treated by policy, over all tables and both roads."""
        return sum((table.treated for table in self.tables), Counter(self.treated_changes))

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


class ReportBook:
    """How each table's last copy ended, from several threads; the listener hears it at once."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._reports: dict[TableName, TableReport] = {}
        self._lock = threading.Lock()

    def add(self, report: TableReport) -> None:
        """A failure that comes again and again is told once."""
        with self._lock:
            before = self._reports.pop(report.name, None)
            self._reports[report.name] = report
        if before is None or report.error is None or str(before.error) != str(report.error):
            self._listener.table_finished(report)

    def recovered(self, table: TableName) -> None:
        """What was said of its failure holds no more."""
        with self._lock:
            if table in self._reports and self._reports[table].error is not None:
                del self._reports[table]

    def all(self) -> tuple[TableReport, ...]:
        with self._lock:
            return tuple(self._reports.values())


class Silent:
    """Hears and says nothing."""

    def run_started(self, tables: dict[TableName, int]) -> None: ...

    def table_started(self, table: TableName, attempt: int) -> None: ...

    def table_progress(self, table: TableName, rows: int) -> None: ...

    def table_writing(self, table: TableName, rows: int) -> None: ...

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None: ...

    def table_finished(self, report: TableReport) -> None: ...

    def notice(self, message: str) -> None: ...
