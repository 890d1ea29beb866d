"""What becomes of a table whose changes could not be decoded: it never gets the rest without them (SEMANTICS 21)."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.batch import EventBatch, TableRange
from walrelay.config.choices import OnBadChanges
from walrelay.errors import CopyAgainError, SpecialKeyError, SpecialValueError, UndecodedChangesError, WalrelayError
from walrelay.log.manifest import Entry
from walrelay.log.quarantine import quarantine_files, read_quarantine
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.quarantine import FACT, marked
from walrelay.model.visibility import VisibleTransactions
from walrelay.stores.base import StateStore

MOST_COPIES, WITHIN_SECONDS = 3, 3600.0
"""A table that gets such changes all the time is not copied for ever."""
_VALUES: dict[str, type[SpecialValueError]] = {kind.code: kind for kind in (SpecialValueError, SpecialKeyError)}
"""A copy would fail for the same reason."""
_THEN = "Then stop the pipeline, `walrelay quarantine retry`, and start it: the table is copied again."


class QuarantineRule:
    """Asked before the destination is, by everybody who sends changes."""

    def __init__(self, store: StateStore, policy: OnBadChanges, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock
        self._copies: dict[TableId, deque[float]] = {}
        self._lock = threading.Lock()

    @staticmethod
    def within(batch: EventBatch, entries: list[Entry]) -> pa.Table | None:
        """What of the batch is in the quarantine; None is nothing. `entries` are the batch's."""
        if not quarantine_files(entries):
            return None
        found = read_quarantine(batch.log, batch.after, batch.to)
        return found if found.num_rows else None

    def check(self, batch: EventBatch, found: pa.Table | None) -> None:
        """Raise, for one table, when changes of it are in the quarantine (`found`) that its copy has not seen."""
        if found is None:
            return
        facts = self._store.get_facts(FACT)
        for range_ in self._ranges(batch, found):
            mine = found.filter(pc.equal(found.column("table"), range_.table))
            after = max(range_.after, marked(facts.get(range_.table), "dropped"))
            mine = _unseen(mine.filter(pc.greater(mine.column("end_lsn"), int(after))), range_.unseen_by)
            if mine.num_rows:
                self._mark(range_.table, facts, held=Lsn(pc.max(mine.column("end_lsn")).as_py()))
                raise self._failure(range_.table, mine)

    def passed(self, batch: EventBatch, found: pa.Table | None) -> None:
        """The batch is durable: what is in the quarantine of copied tables was seen by their copies."""
        copied = [one for one in batch.ranges or () if one.unseen_by is not None]
        if not copied or found is None:
            return
        facts = self._store.get_facts(FACT)
        with_some = set(found.column("table").to_pylist())
        for range_ in copied:
            if range_.table in with_some:
                self._mark(range_.table, facts, settled=max(batch.to, marked(facts.get(range_.table), "settled")))

    @staticmethod
    def _ranges(batch: EventBatch, found: pa.Table) -> tuple[TableRange, ...]:
        if batch.ranges is not None:
            return batch.ranges
        return tuple(TableRange(table, batch.after) for table in pc.unique(found.column("table")).to_pylist())

    def _mark(self, table: TableId, facts: dict[TableId, Any], **lsns: Lsn) -> None:
        fact = {**(facts.get(table) or {}), **{mark: str(lsn) for mark, lsn in lsns.items()}}
        if "settled" in lsns:
            fact.pop("held", None)
        if fact != facts.get(table):
            self._store.store_fact(table, FACT, fact)

    def _failure(self, table: TableId, bad: pa.Table) -> WalrelayError:
        first = bad.sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")]).slice(0, 1).to_pylist()[0]
        name, count = first["name"], bad.num_rows
        context = {"table": name, "table_id": table, "changes": count, "first_lsn": str(Lsn(first["commit_lsn"]))}
        codes = Counter(bad.column("code").to_pylist())
        for code, kind in reversed(_VALUES.items()):
            if codes[code]:
                why = bad.filter(pc.equal(bad.column("code"), code)).column("reason")[0].as_py()
                said = f"{_changes(codes[code])} of {name} cannot be taken: {why}"
                return kind(said, hint=f"{kind.default_hint} {_THEN}", context=context)
        said = f"{_changes(count)} of {name} could not be decoded ({first['reason']})"
        if self._policy == "error":
            return UndecodedChangesError(said, context=context)
        if not self._may_copy(table):
            return UndecodedChangesError(f"{said}; it was copied again {MOST_COPIES} times already", context=context)
        return CopyAgainError(f"{said}; it is copied again", context=context)

    def _may_copy(self, table: TableId) -> bool:
        with self._lock:
            times = self._copies.setdefault(table, deque())
            while times and times[0] < self._clock() - WITHIN_SECONDS:
                times.popleft()
            times.append(self._clock())
            return len(times) <= MOST_COPIES


def _changes(count: int) -> str:
    return "1 change" if count == 1 else f"{count:,} changes"


def _unseen(bad: pa.Table, snapshot: str | None) -> pa.Table:
    if snapshot is None:
        return bad
    visible = VisibleTransactions.parse(snapshot)
    unseen = [xid for xid in pc.unique(bad.column("xid")).to_pylist() if not visible.sees(xid)]
    return bad.filter(pc.is_in(bad.column("xid"), value_set=pa.array(unseen, pa.int64())))
