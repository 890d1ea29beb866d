"""Listeners that hear a run besides the one that shows it: several as one, and one that counts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from walrelay.errors import WalrelayError
from walrelay.model.names import TableName
from walrelay.workers.report import Listener, Silent, TableReport


class Several:
    """All of them hear everything, in this order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def run_started(self, tables: dict[TableName, int]) -> None:
        self._tell(lambda one: one.run_started(tables))

    def table_started(self, table: TableName, attempt: int) -> None:
        self._tell(lambda one: one.table_started(table, attempt))

    def table_progress(self, table: TableName, rows: int) -> None:
        self._tell(lambda one: one.table_progress(table, rows))

    def table_writing(self, table: TableName, rows: int) -> None:
        self._tell(lambda one: one.table_writing(table, rows))

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        self._tell(lambda one: one.table_retrying(table, error, seconds))

    def table_finished(self, report: TableReport) -> None:
        self._tell(lambda one: one.table_finished(report))

    def notice(self, message: str) -> None:
        self._tell(lambda one: one.notice(message))

    def _tell(self, tell: Callable[[Listener], None]) -> None:
        for one in self._listeners:
            tell(one)


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """How a table's last copy ended well."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What was counted so far. Never changes."""

    rows_copied: int
    copies: int
    failed_attempts: Mapping[str, int]
    """Of tables, by name."""
    last_copies: Mapping[str, CopyEnd]
    rows_being_read: int
    """In copies under way, as far as Postgres tells."""


class Counting(Silent):
    """Counts what it hears."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = self._copies = 0
        self._failed: Counter[str] = Counter()
        self._ends: dict[str, CopyEnd] = {}
        self._reading: dict[str, int] = {}

    def table_progress(self, table: TableName, rows: int) -> None:
        with self._lock:
            self._reading[str(table)] = rows

    def table_retrying(self, table: TableName, error: WalrelayError, seconds: float) -> None:
        with self._lock:
            self._reading.pop(str(table), None)
            self._failed[str(table)] += 1

    def table_finished(self, report: TableReport) -> None:
        name = str(report.name)
        with self._lock:
            self._reading.pop(name, None)
            if report.error is not None:
                self._failed[name] += 1
                return
            self._rows += report.rows
            self._copies += 1
            self._ends[name] = CopyEnd(report.rows, report.seconds)

    def heard(self) -> Heard:
        with self._lock:
            return Heard(self._rows, self._copies, dict(self._failed), dict(self._ends), sum(self._reading.values()))
