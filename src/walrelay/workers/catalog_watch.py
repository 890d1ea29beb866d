"""Notices what happens to a table without a message: its fingerprint in the catalog is compared with the one of its
copy. What nobody told leads to another copy; a shape that no change has shown yet is shown to the destination."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from psycopg import sql

from walrelay.config.choices import OnSilentChange
from walrelay.errors import CopyAgainError, RightsError, SourceError, TableMissingError
from walrelay.log.reader import LogReader
from walrelay.model.fingerprints import Fingerprint, doubts, is_same, same_columns
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.notice import Notice
from walrelay.model.phases import Ready, SyncDone
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.postgres.catalog import PublishedTable, read_schema
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.fingerprints import entries, holds_rows_from_before, look, pulse
from walrelay.postgres.slot import inserted_lsn
from walrelay.workers.board import TableBoard
from walrelay.workers.fingerprint_book import FingerprintBook, Known
from walrelay.workers.gone_partitions import GonePartitions

LOCK_TIMEOUT: Final = "SET lock_timeout = '500ms'"
"""Whoever has locked a table must not stop us; we look again soon."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """A table that is not what it was."""

    known: Known
    now: Fingerprint
    lsn: Lsn
    """Everything that had happened to it when it was looked at is in the log up to here."""
    reasons: tuple[str, ...] = ()
    """Why it must be copied again."""
    replaced: frozenset[int] = frozenset()
    """Transactions that have given its rows new files: unless each is one that the log knows for a TRUNCATE of the
    table, rows were written anew, or went, and nobody told."""
    schema: TableSchema | None = None
    """Its shape, when that has changed."""
    end: Lsn | None = None
    """The log's end when it held all that had happened."""


class CatalogWatch:
    """For the thread that looks for tables and hands them over; `book` is shared with those that copy."""

    def __init__(
        self,
        publication: str,
        book: FingerprintBook,
        log: LogReader,
        policy: Callable[[TableName], OnSilentChange],
        notify: Callable[[str], None],
    ) -> None:
        self._publication = publication
        self._book = book
        self._log = log
        self._policy = policy
        self._notify = notify
        self._pulse = ""
        self._last: dict[TableId, Fingerprint] = {}
        """Every table as the last look found it."""
        self._unjudged: set[TableId] = set()
        """Tables that were being copied at the last look: they are compared with their copy once that is there."""
        self._findings: dict[TableId, _Finding] = {}
        self._parts = GonePartitions(log)
        self.seen_lsn = Lsn(0)
        """What was altered before this is known."""

    def look(self, connection: Connection, published: Mapping[TableId, PublishedTable], board: TableBoard) -> None:
        """Compare, when anything at all was altered since the last look."""
        lsn = inserted_lsn(connection)
        beat = pulse(connection, self._publication, sorted(published))
        if beat != self._pulse and self._compare(connection, published, board):
            self._pulse = beat
        if beat == self._pulse:
            self.seen_lsn = lsn

    def forget(self, table: TableId) -> None:
        """It left the publication."""
        self._findings.pop(table, None)
        self._unjudged.discard(table)
        self._book.forget(table)

    def is_settled(self, given_up: Collection[TableId]) -> bool:
        """Whether nothing waits to be judged, but for tables that only a person can help."""
        return not (self._findings.keys() | self._unjudged) - set(given_up)

    def has_heard(self, lsn: Lsn, given_up: Collection[TableId]) -> bool:
        """Whether everything in the log up to `lsn` was looked at for partitions that have come and gone."""
        waiting = self._last.keys() & set(self._parts.unjudged(self.seen_lsn)) - set(given_up)
        return self._parts.scanned_lsn >= lsn and not waiting

    @property
    def wants_look(self) -> bool:
        """Whether the next look should not wait."""
        return not self._pulse

    def _look_again(self) -> None:
        self._pulse, self.seen_lsn = "", Lsn(0)

    def _compare(self, connection: Connection, published: Mapping[TableId, PublishedTable], board: TableBoard) -> bool:
        """Whether all could be looked at: who has locked a table is waited for, but not for long."""
        connection.execute(LOCK_TIMEOUT)
        looked = look(connection, self._publication, sorted(published))
        self._last, self._unjudged = looked.tables, set()
        phases = board.phases()
        whole = True
        for table, now in looked.tables.items():
            known = self._book.get(table)
            if not isinstance(phases.get(table), Ready | SyncDone):
                self._unjudged.add(table)
            elif known is None:
                self._book.put(now, looked.time.began)  # an earlier version has copied it
            elif not is_same(known.fingerprint, now):
                try:
                    self._findings[table] = self._finding(connection, published[table], known, now)
                except RightsError:
                    # The copy says which right is missing, and waits for it.
                    reasons = ("it was altered, and may not be looked at",)
                    self._findings[table] = _Finding(known, now, looked.time.ended, reasons)
                except SourceError:
                    whole = False
        return whole

    def _finding(self, connection: Connection, table: PublishedTable, known: Known, now: Fingerprint) -> _Finding:
        before = known.fingerprint
        found = doubts(before, now)
        reasons = list(found.reasons)
        there = entries(connection, [one.id for one in (*found.replaced, *found.attached)])
        replaced = set[int]()
        for one in [one for one in found.attached if one.id in there]:
            entry = there[one.id]
            if holds_rows_from_before(connection, entry.name, one.attached_by, or_by=True):
                reasons.append(f"{entry.name} had rows when it was attached")
            # A relation's first file is called as itself.
            if one.filenode != one.id and entry.written_by != one.attached_by:
                replaced.add(entry.written_by)
        for entry in [there[one.id] for one in found.replaced if one.id in there]:
            if not holds_rows_from_before(connection, entry.name, before.oldest_xid):
                replaced.add(entry.written_by)
        if reasons or same_columns(before, now):
            return _Finding(known, now, inserted_lsn(connection), tuple(reasons), frozenset(replaced))
        schema, lsn = self._shape(connection, table, now)
        return _Finding(known, now, lsn, replaced=frozenset(replaced), schema=schema)

    def _shape(self, connection: Connection, table: PublishedTable, now: Fingerprint) -> tuple[TableSchema, Lsn]:
        """The table as it is, and a position at which it is so: nobody can alter it while we hold a lock."""
        name = sql.Identifier(now.name.schema, now.name.name)
        with talking(f"looking at {now.name}"), connection.transaction():
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
            looked = look(connection, self._publication, [table.id]).tables.get(table.id)
            if looked is None or not same_columns(now, looked):
                raise TableMissingError(f"{now.name} was altered meanwhile")
            schema = read_schema(connection, replace(table, name=now.name), publication=self._publication)
            return schema, inserted_lsn(connection)

    # ---------------------------------------------------------------------------------------------------- judging

    def judge(self, board: TableBoard, show: Callable[[SchemaVersion, Lsn], None]) -> None:
        """What is to be done about tables that are ready. `show` gives the destination a shape, for a table that holds
        everything up to an LSN. At a boundary between batches, with the board's writing lock."""
        self._judge_copied(board)
        self._judge_partitions(board)
        for table, finding in list(self._findings.items()):
            if not isinstance(board.phase(table), Ready) or table not in board.positions:
                continue
            if self._book.get(table) != finding.known:
                self._findings.pop(table)  # it was copied meanwhile
                self._look_again()
            elif finding.reasons:
                self._copy_again(board, finding, finding.reasons)
            elif finding.end is not None and board.positions[table] >= finding.end:
                self._settle(board, finding, show)
            elif finding.end is None and self._log.head() >= finding.lsn:
                self._findings[table] = replace(finding, end=self._log.end())

    def _judge_copied(self, board: TableBoard) -> None:
        """Whether what has been copied since the last look is what that look saw."""
        if not self._unjudged:
            return
        phases = board.phases()
        for table in [one for one in self._unjudged if isinstance(phases.get(one), Ready)]:
            self._unjudged.discard(table)
            known = self._book.get(table)
            if known is None or not is_same(known.fingerprint, self._last[table]):
                self._look_again()

    def _judge_partitions(self, board: TableBoard) -> None:
        """Whether rows came from partitions that nobody has seen."""
        is_wanted = any(len(one.storage) != 1 or one.storage[0].id != table for table, one in self._last.items())
        self._parts.scan(max(board.positions.values(), default=Lsn(0)), wanted=is_wanted)
        for table in self._parts.unjudged(self.seen_lsn):
            known, now = self._book.get(table), self._last.get(table)
            if known is None or now is None or not isinstance(board.phase(table), Ready):
                continue
            if self._parts.has_gone(known, now, self.seen_lsn):
                finding = _Finding(known, now, self.seen_lsn)
                self._copy_again(board, finding, ("a partition came and went, and rows that were in it",))

    def _settle(self, board: TableBoard, finding: _Finding, show: Callable[[SchemaVersion, Lsn], None]) -> None:
        table = finding.now.sighting.table
        position = board.positions[table]
        if finding.replaced and not self._has_told(finding, position):
            self._copy_again(board, finding, ("its rows stand in new files, and not by a TRUNCATE that was logged",))
            return
        if finding.schema is not None:
            show(SchemaVersion(finding.schema, 0, finding.lsn), position)
        self._accept(finding)

    def _has_told(self, finding: _Finding, position: Lsn) -> bool:
        """Whether the log has all that gave the table new files. A partition that is truncated by its own name in the
        transaction that truncated the root is emptied in place: rows that came in between are in doubt."""
        table = finding.now.sighting.table
        told = self._log.truncates(table, finding.known.lsn, position)
        if any(one.id != table for one in finding.now.storage):
            told = {xid: is_last for xid, is_last in told.items() if is_last}
        return finding.replaced <= told.keys()

    def _copy_again(self, board: TableBoard, finding: _Finding, reasons: tuple[str, ...]) -> None:
        name, why = finding.now.name, "; ".join(reasons)
        table = finding.now.sighting.table
        policy = self._policy(name)
        if policy == "copy":
            self._findings.pop(table, None)
            self._unjudged.add(table)
            board.failed(table, CopyAgainError(f"{name} has changed without a message: {why}"))
            return
        if policy == "warn":
            said = f"{name} has changed without a message: {why}; its rows may differ from the source's"
            self._notify(Notice.warning("table has changed without a message", said, table=str(name), why=why))
        self._accept(finding)

    def _accept(self, finding: _Finding) -> None:
        self._book.put(finding.now, finding.lsn)
        self._findings.pop(finding.now.sighting.table, None)
