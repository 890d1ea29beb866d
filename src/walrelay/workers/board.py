"""The tables of a running pipeline: their names, their phases (the store's), how far each is applied, and when a failed
one is tried again. The one owner of all that several threads know about tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from walrelay.backoff import delay_of
from walrelay.changes.batch import TableRange
from walrelay.errors import CopyAgainError, DestinationBusyError, PhaseOrderError, TableMissingError, WalrelayError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import (
    Catchup,
    Errored,
    Init,
    LateRetry,
    NoRetry,
    Ready,
    RetryPolicy,
    TableReplicationPhase,
    TimedRetry,
    may_follow,
    phase_name,
)
from walrelay.stores.base import PipelineStore

T = TypeVar("T")
Tell = Callable[[TableName, WalrelayError, float | None, bool], None]
"""Hears of a table that failed: why, in how many seconds it is tried again (None is not by itself), and whether it was
given up, so that nobody waits for it."""


@dataclass(frozen=True)
class RetryRule:
    """How failed tables are tried again."""

    retries: int
    delay: timedelta
    late_delay: timedelta = timedelta(minutes=1)
    """Between two looks whether a cause that only somebody else can remove is gone."""


class TableBoard:
    """Everything may be called from several threads. What is handed out (`names`, `positions`, …) is a snapshot that
    never changes: each change puts another one in its place. `changed` is notified with every new phase.

    Order of locks: `writing`, then `_lock`, then the store's own. Nobody is called with `_lock` held, but the store.
    """

    def __init__(
        self,
        store: PipelineStore,
        rule: RetryRule,
        failed: Tell,
        recovered: Callable[[TableName], None] = lambda _name: None,
    ) -> None:
        self._store = store
        self._rule = rule
        self._tell = failed
        self._recovered = recovered
        self.changed = threading.Condition()
        self._lock = threading.RLock()
        """Held over two steps of which nobody may see the first alone."""
        self.writing = threading.Lock()
        """Held while the apply worker writes or hands over."""
        self.names: Mapping[TableId, TableName] = {}
        self.positions: Mapping[TableId, Lsn] = {}
        """Of tables that the apply worker has: everything up to here is in the destination."""
        self._copying_since: Mapping[TableId, Lsn] = {}
        """Of tables that are being copied: what the log must keep for their catch-up."""
        self._retry_at: dict[TableId, float] = {}
        self._attempts: dict[TableId, int] = {}

    # -------------------------------------------------------------------------------------------------- what is known

    def found(self, names: Mapping[TableId, TableName]) -> None:
        """These tables are there, under these names."""
        with self._lock:
            if any(self.names.get(table) != name for table, name in names.items()):
                self.names = {**self.names, **names}

    def forget(self, table: TableId) -> None:
        """It left the publication; what the destination has of it stays (SEMANTICS 12)."""
        with self._lock:
            self._store.delete_table_pipeline_state(table)
            self.names = _without(self.names, table)
            self._leave(table)
            self._copying_since = _without(self._copying_since, table)
            self._attempts.pop(table, None)
        self._notify()

    def place(self, table: TableId, lsn: Lsn) -> None:
        """The destination has everything of the table up to `lsn`."""
        with self._lock:
            self.positions = {**self.positions, table: lsn}

    @contextmanager
    def standing(self, table: TableId, phase: TableReplicationPhase) -> Iterator[bool]:
        """Whether the table is still in this phase, and nobody has it; if so, it stays there meanwhile. For whoever has
        seen it there, and has done something since that took time."""
        with self._lock:
            yield self.phase(table) == phase and table not in self.positions

    def begin_copy(self, table: TableId, since: Lsn) -> None:
        """Its copy begins; the log keeps what comes from `since` on."""
        with self._lock:
            self._copying_since = {**self._copying_since, table: since}

    def copying_since(self, table: TableId) -> Lsn:
        return self._copying_since[table]

    def moved(self, ranges: tuple[TableRange, ...], to: Lsn) -> None:
        """These were written up to `to`. One that got ready since was not: a retry may come at any moment."""
        with self._lock:
            known = self.positions
            further = {one.table: max(to, known[one.table]) for one in ranges if one.table in known}
            if further:
                self.positions = {**known, **further}

    def taken_over(self, tables: Iterable[TableId], lsn: Lsn) -> None:
        """The apply worker has them from here on."""
        tables = list(tables)
        with self._lock:
            self.positions = {**self.positions, **dict.fromkeys(tables, lsn)}
            self.set_all(dict.fromkeys(tables, Ready()))

    def ranges(self, to: Lsn) -> tuple[TableRange, ...]:
        """What of the next batch belongs to whom: the tables that are ready, each from where it stands."""
        with self._lock:
            phases, positions = self.phases(), self.positions
        return tuple(
            TableRange(table, positions[table])
            for table, phase in phases.items()
            if isinstance(phase, Ready) and positions.get(table, to) < to
        )

    def oldest_needed(self, position: Lsn) -> Lsn:
        """The least position that a live table still has to go on from (SEMANTICS 3). One that was given up is not
        waited for: if it comes back too late, it is copied again."""
        with self._lock:
            given_up = self.given_up()
            held = {**self._copying_since, **self.positions}
        return min([position, *(lsn for table, lsn in held.items() if table not in given_up)])

    # --------------------------------------------------------------------------------------------------------- phases

    def phases(self) -> dict[TableId, TableReplicationPhase]:
        with self._lock:
            known, names = self._store.get_table_replication_states(), self.names
        return {table: phase for table, phase in known.items() if table in names}

    def phase(self, table: TableId) -> TableReplicationPhase | None:
        return self._store.get_table_replication_state(table)

    def given_up(self) -> dict[TableId, Errored]:
        """The tables in error that nobody should wait for."""
        return {
            table: phase for table, phase in self.phases().items() if isinstance(phase, Errored) and phase.is_given_up
        }

    def set(self, table: TableId, phase: TableReplicationPhase) -> None:
        self.set_all({table: phase})

    def set_all(self, phases: Mapping[TableId, TableReplicationPhase]) -> None:
        """All or none. Raises PhaseOrderError for a step that the table of transitions does not have."""
        with self._lock:
            for table, phase in phases.items():
                self._check_order(table, phase)
            self._store.update_table_replication_states(dict(phases))
            ready = [table for table, phase in phases.items() if isinstance(phase, Ready)]
            if ready:
                self._copying_since = _without(self._copying_since, *ready)
        self._notify()

    def _check_order(self, table: TableId, phase: TableReplicationPhase) -> None:
        before = self.phase(table)
        if not may_follow(before, phase):
            told = "unknown" if before is None else phase_name(before)
            name = self.names.get(table)
            raise PhaseOrderError(
                f"{name or table} cannot go from {told} to {phase_name(phase)}",
                context={"table": str(name), "table_id": table},
            )

    def begin_anew(self, table: TableId) -> None:
        """It is copied again, from the beginning, and tried without a wait."""
        with self._lock:
            self._leave(table)
            self._attempts.pop(table, None)
            self.set(table, Init())

    def roll_back(self, table: TableId) -> str:
        """One phase back, which is tried at once; returns its name. What is only in memory counts as nothing."""
        with self._lock:
            phase = self._store.rollback_table_replication_state(table)
            self._leave(table)
            self._attempts.pop(table, None)
        self._notify()
        return phase_name(phase)

    def wait_for_catchup(self, table: TableId, stopping: threading.Event) -> Lsn | None:
        """How far the table is to catch up; None when the pipeline stops first, or has other plans for it."""
        with self.changed:
            while not stopping.is_set():
                match self.phase(table):
                    case Catchup(lsn):
                        return lsn
                    case Init() | Errored() | None:
                        return None
                    case _:
                        self.changed.wait(0.1)
        return None

    def wait_changed(self, seconds: float) -> None:
        """Until a phase changes, or for so long."""
        with self.changed:
            self.changed.wait(seconds)

    # ------------------------------------------------------------------------------------------------------- failures

    def failed(self, table: TableId, error: WalrelayError) -> None:
        """Put the table aside, with reason, remedy and what happens next; the others go on."""
        if isinstance(error, CopyAgainError):
            with self._lock:
                self._leave(table)
                self.set(table, Init())
            self._tell(self._name(table), error, 0.0, False)
            return
        with self._lock:
            attempt = self._attempts[table] = self._attempts.get(table, 0) + 1
            policy, delay = self._next_attempt(error, attempt)
            retry_at = None if delay is None else time.time() + delay
            if error.copies_again:
                # Whoever tries it again, goes back to the phase before.
                self._leave(table)
                self.set(table, Init())
            self.set(table, Errored(error.message, error.hint or None, policy, error.code, retry_at))
            if delay is None:
                self._retry_at.pop(table, None)
            else:
                self._retry_at[table] = time.monotonic() + delay
        self._tell(self._name(table), error, delay, not isinstance(policy, TimedRetry))

    def _next_attempt(self, error: WalrelayError, attempt: int) -> tuple[RetryPolicy, float | None]:
        rule = self._rule
        # A table may have been renamed since it was found; the next look at the publication knows.
        passes = error.retryable or isinstance(error, DestinationBusyError | TableMissingError)
        if passes and attempt <= rule.retries:
            return TimedRetry(attempt), delay_of(attempt, rule.delay).total_seconds()
        if passes or error.may_pass:
            return LateRetry(), rule.late_delay.total_seconds()
        return NoRetry(), None

    def fail_named(self, error: WalrelayError) -> bool:
        """Whether the error names a table of ours, which is then put aside. Its id says it better than its name, which
        may be another one by now."""
        number, name = error.context.get("table_id"), error.context.get("table")
        names = self.names
        if isinstance(number, int) and number in names:
            found = [number]
        else:
            found = [table for table, known in names.items() if name is not None and str(known) == str(name)]
        for table in found:
            self.failed(table, error)
        return bool(found)

    def succeeded(self, table: TableId) -> None:
        """A success starts the count of attempts anew."""
        with self._lock:
            had_failed = self._attempts.pop(table, None) is not None
        if had_failed:
            self._recovered(self._name(table))

    def resume_retries(self) -> None:
        """After a restart: whatever was in error is tried again, since its cause may be gone."""
        with self._lock:
            for table, phase in self.phases().items():
                if isinstance(phase, Errored):
                    self._retry_at[table] = time.monotonic()

    def due_retries(self) -> list[TableId]:
        """Tables whose time has come; each is back in the phase before its error."""
        now = time.monotonic()
        with self._lock:
            due = [table for table, at in self._retry_at.items() if at <= now]
            for table in due:
                del self._retry_at[table]
                if isinstance(self.phase(table), Errored):
                    self._store.rollback_table_replication_state(table)
        if due:
            self._notify()
        return due

    def _leave(self, table: TableId) -> None:
        """The apply worker has it no more, and nothing is to be tried."""
        self.positions = _without(self.positions, table)
        self._retry_at.pop(table, None)

    def _name(self, table: TableId) -> TableName:
        return self.names.get(table) or TableName("?", str(table))

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()


def _without(held: Mapping[TableId, T], *tables: TableId) -> Mapping[TableId, T]:
    return {table: value for table, value in held.items() if table not in tables}


@contextmanager
def held(lock: threading.Lock, seconds: float = 0.0) -> Iterator[bool]:
    """Whether the lock could be had within so many seconds; if so, it is held."""
    got = lock.acquire(timeout=seconds) if seconds else lock.acquire(blocking=False)
    try:
        yield got
    finally:
        if got:
            lock.release()
