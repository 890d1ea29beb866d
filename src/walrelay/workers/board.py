"""The tables of a running pipeline: their phases (the store's), how far each is applied, and when a failed one is
tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from walrelay.destinations.events import TableRange
from walrelay.errors import CopyAgainError, DestinationBusyError, TableMissingError, WalrelayError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import (
    Catchup,
    Errored,
    Init,
    NoRetry,
    Ready,
    TableReplicationPhase,
    TimedRetry,
)
from walrelay.stores.base import PipelineStore

LONGEST_DELAY = timedelta(minutes=5)


class TableBoard:
    """Everything may be called from several threads. `changed` is notified with every new phase."""

    def __init__(
        self,
        store: PipelineStore,
        *,
        retries: int,
        retry_delay: timedelta,
        failed: Callable[[TableName, WalrelayError, float | None], None],
    ) -> None:
        self._store = store
        self._retries = retries
        self._retry_delay = retry_delay
        self._tell = failed
        self.changed = threading.Condition()
        self.writing = threading.Lock()
        """Held while the apply worker writes or hands over."""
        self.names: dict[TableId, TableName] = {}
        self.positions: dict[TableId, Lsn] = {}
        """Of tables that the apply worker has: everything up to here is in the destination."""
        self.copying_since: dict[TableId, Lsn] = {}
        """Of tables that are being copied: what the log must keep for their catch-up."""
        self._retry_at: dict[TableId, float] = {}
        self._attempts: dict[TableId, int] = {}
        self.errors: dict[TableId, WalrelayError] = {}

    def phases(self) -> dict[TableId, TableReplicationPhase]:
        known = self._store.get_table_replication_states()
        return {table: phase for table, phase in known.items() if table in self.names}

    def phase(self, table: TableId) -> TableReplicationPhase | None:
        return self._store.get_table_replication_state(table)

    def set(self, table: TableId, phase: TableReplicationPhase) -> None:
        self.set_all({table: phase})

    def set_all(self, phases: Mapping[TableId, TableReplicationPhase]) -> None:
        self._store.update_table_replication_states(dict(phases))
        with self.changed:
            for table, phase in phases.items():
                if isinstance(phase, Ready):
                    self.copying_since.pop(table, None)
                    self.errors.pop(table, None)
            self.changed.notify_all()

    def forget(self, table: TableId) -> None:
        """It left the publication; what the destination has of it stays (SEMANTICS 12)."""
        self._store.delete_table_pipeline_state(table)
        with self.changed:
            held = (self.names, self.positions, self.copying_since, self._retry_at, self._attempts, self.errors)
            for kept in held:
                kept.pop(table, None)
            self.changed.notify_all()

    def ranges(self, to: Lsn) -> tuple[TableRange, ...]:
        """What of the next batch belongs to whom: the tables that are ready, each from where it stands."""
        positions = dict(self.positions)
        return tuple(
            TableRange(table, positions[table])
            for table, phase in self.phases().items()
            if isinstance(phase, Ready) and positions.get(table, to) < to
        )

    def moved(self, ranges: tuple[TableRange, ...], to: Lsn) -> None:
        """These were written up to `to`. One that got ready since was not: a retry may come at any moment."""
        for one in ranges:
            if one.table in self.positions:
                self.positions[one.table] = max(to, self.positions[one.table])

    def oldest_needed(self, position: Lsn) -> Lsn:
        """The least position that a live table still has to go on from (SEMANTICS 3). One that only a person can help
        is not waited for."""
        lost = {
            table
            for table, phase in self.phases().items()
            if isinstance(phase, Errored) and isinstance(phase.retry_policy, NoRetry)
        }
        held = {**self.copying_since, **self.positions}
        return min([position, *(lsn for table, lsn in held.items() if table not in lost)])

    def wait_for_catchup(self, table: TableId, stopping: threading.Event) -> Lsn | None:
        """How far the table is to catch up; None when the pipeline stops first."""
        with self.changed:
            while not stopping.is_set():
                phase = self.phase(table)
                if isinstance(phase, Catchup):
                    return phase.lsn
                self.changed.wait(0.1)
        return None

    # ------------------------------------------------------------------------------------------------ failures

    def failed(self, table: TableId, error: WalrelayError) -> None:
        """Put the table aside, with reason, remedy and what happens next; the others go on."""
        if isinstance(error, CopyAgainError):
            self._copy_again(table, error)
            return
        attempt = self._attempts.get(table, 0) + 1
        self._attempts[table] = attempt
        # A table may have been renamed since it was found; the next look at the publication knows.
        passes = error.retryable or isinstance(error, (DestinationBusyError, TableMissingError))
        retry = passes and attempt <= self._retries
        policy = TimedRetry(attempt) if retry else NoRetry()
        self.set(table, Errored(error.message, error.hint or None, policy))
        self.errors[table] = error
        delay: float | None = None
        if retry:
            delay = min(self._retry_delay * 2 ** (attempt - 1), LONGEST_DELAY).total_seconds()
            self._retry_at[table] = time.monotonic() + delay
        self._tell(self.names[table], error, delay)

    def _copy_again(self, table: TableId, error: CopyAgainError) -> None:
        """The log cannot bring it further: it begins anew."""
        self.positions.pop(table, None)
        self.set(table, Init())
        self._tell(self.names[table], error, 0.0)

    def fail_named(self, error: WalrelayError) -> bool:
        """Whether the error names a table of ours, which is then put aside. Its id says it better than its name, which
        may be another one by now."""
        number, name = error.context.get("table_id"), error.context.get("table")
        if number in self.names:
            found = [number]
        else:
            found = [table for table, known in dict(self.names).items() if name is not None and str(known) == str(name)]
        for table in found:
            self.failed(table, error)
        return bool(found)

    def succeeded(self, table: TableId) -> None:
        """A success starts the count of attempts anew."""
        self._attempts.pop(table, None)

    def resume_retries(self) -> None:
        """After a restart: what was to be tried again by itself is, now."""
        for table, phase in self.phases().items():
            if isinstance(phase, Errored) and isinstance(phase.retry_policy, TimedRetry):
                self._attempts[table] = phase.retry_policy.attempt
                self._retry_at[table] = time.monotonic()

    def due_retries(self) -> list[TableId]:
        """Tables whose time has come; each is back in the phase before its error."""
        now = time.monotonic()
        due = [table for table, at in self._retry_at.items() if at <= now]
        for table in due:
            del self._retry_at[table]
            if isinstance(self.phase(table), Errored):
                self._store.rollback_table_replication_state(table)
        return due
