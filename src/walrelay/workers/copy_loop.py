"""Mode `copy`: the tables of a publication, each once. The sync workers of a pipeline that runs on, without a feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from walrelay.errors import StoppedError, WalrelayError
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import FinishedCopy, Init
from walrelay.postgres.catalog import PublishedTable, TableStorage
from walrelay.workers.board import RetryRule, TableBoard
from walrelay.workers.parts import RunParts
from walrelay.workers.report import ReportBook, TableReport
from walrelay.workers.sync_jobs import SyncJobs

TICK_SECONDS = 0.05


class CopyLoop:
    """For one thread."""

    def __init__(
        self, parts: RunParts, tables: Sequence[PublishedTable], storage: Mapping[TableId, TableStorage]
    ) -> None:
        self._parts = parts
        self._tables = {table.id: table for table in tables}
        self._sizes = {table: found.bytes for table, found in storage.items()}
        self._reports = ReportBook(parts.listener)
        rule = RetryRule(parts.settings.retries, parts.settings.retry_delay)
        self._board = TableBoard(parts.store, rule, self._failed)
        self._board.found({table.id: table.name for table in tables})
        self._board.set_all({table.id: Init() for table in tables})

    def run(self) -> tuple[TableReport, ...]:
        """Until every table is copied, or has failed for good, or the run is stopped."""
        parts, board = self._parts, self._board
        jobs = SyncJobs(parts, board, self._reports, None)
        try:
            while not parts.stopping.is_set():
                board.due_retries()
                jobs.start_due(self._tables, self._sizes)
                if not jobs.any_busy and self._is_done():
                    break
                board.wait_changed(TICK_SECONDS)
        except BaseException:
            parts.stopping.set()
            raise
        finally:
            jobs.stop()
        return (*self._reports.all(), *self._unfinished())

    def _unfinished(self) -> list[TableReport]:
        """Of a run that was stopped: the tables whose copies were not, or not wholly, made."""
        phases, given_up = self._board.phases(), self._board.given_up()
        error = StoppedError("the pipeline was stopped before this copy was made")
        return [
            TableReport(self._tables[table].name, 0, 0.0, error=error)
            for table, phase in phases.items()
            if not isinstance(phase, FinishedCopy) and table not in given_up
        ]

    def _is_done(self) -> bool:
        phases, given_up = self._board.phases(), self._board.given_up()
        return all(isinstance(phase, FinishedCopy) or table in given_up for table, phase in phases.items())

    def _failed(self, name: TableName, error: WalrelayError, delay: float | None, given_up: bool) -> None:
        if given_up:
            self._reports.add(TableReport(name, 0, 0.0, error=error))
        else:
            self._parts.listener.table_retrying(name, error, delay or 0.0)
