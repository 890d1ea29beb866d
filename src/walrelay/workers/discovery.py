"""Which tables there are: those that appeared in or left the publication, and where known ones go on."""

from __future__ import annotations

import time
from collections.abc import Mapping

from walrelay.errors import LineageError, PublicationEmptyError
from walrelay.log.failures import LogGoneError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.notice import Notice
from walrelay.model.phases import Init, Ready, SyncDone
from walrelay.model.progress import Apply
from walrelay.postgres.catalog import PublishedTable, published_tables, storage_of
from walrelay.postgres.connection import connect, talking
from walrelay.workers.board import TableBoard, held
from walrelay.workers.catalog_watch import LOCK_TIMEOUT, CatalogWatch
from walrelay.workers.parts import LiveParts
from walrelay.workers.sync_jobs import SyncJobs

FORGET_SECONDS = 0.05


class Discovery:
    """For the thread that runs the pipeline."""

    def __init__(self, parts: LiveParts, board: TableBoard, watch: CatalogWatch, complete_from: Lsn) -> None:
        self._parts = parts
        self._board = board
        self._watch = watch
        self._complete_from, self._first_start = complete_from, parts.log.start()
        """A table that holds everything up to the one lacks nothing from before the other."""
        self.published: Mapping[TableId, PublishedTable] = {}
        self.sizes: Mapping[TableId, int] = {}
        self.looked_at = 0.0

    def look(self, jobs: SyncJobs | None) -> None:
        """Compare the publication with what is known. Nothing is forgotten that one of `jobs` may write to."""
        parts, board = self._parts, self._board
        try:
            with (
                talking("looking for tables"),
                connect(parts.source, application="walrelay discovery", stopping=parts.stopping) as connection,
            ):
                if self.published:
                    connection.execute(LOCK_TIMEOUT)
                published = published_tables(connection, parts.source.publication)
                found = {table.id: table for table in published if parts.shaping.includes_name(table.name)}
                fresh = [table for table in found if table not in self.published]
                sizes = storage_of(connection, fresh) if fresh else {}
                board.found({one.id: one.name for one in found.values()})
                self._watch.look(connection, found, board)
        except PublicationEmptyError:
            # Never taken as «all removed» (SEMANTICS 12).
            if not self.published:
                raise
            return
        finally:
            self.looked_at = time.monotonic()
        known = parts.store.get_table_replication_states()
        self.published = found
        if fresh:
            self.sizes = {**self.sizes, **{table: sizes[table].bytes for table in fresh}}
            parts.listener.run_started({found[table].name: sizes[table].rows_estimate for table in fresh})
            board.set_all({table: Init() for table in fresh if table not in known})
            mapped = parts.store.get_table_mappings()
            parts.store.store_table_mappings({table: str(found[table].name) for table in fresh if table not in mapped})
            self.place()
        for table in known.keys() - found.keys():
            if jobs is None or not jobs.is_busy(table):
                self._forget(table)

    def _forget(self, table: TableId) -> None:
        """Not while it may be written to: whoever does would remember it again. Then at the next look."""
        with held(self._board.writing, FORGET_SECONDS) as is_ours:
            if not is_ours:
                return
            name = self._board.names.get(table) or self._parts.store.get_table_mapping(table) or table
            self._board.forget(table)
            self._watch.forget(table)
        said = f"{name} is no longer published; what the destination has of it stays as it is"
        self._parts.listener.notice(Notice("table is no longer published", said, table=str(name)))

    def place(self) -> None:
        """Where the tables that need no copy go on: the destination's own word wins (DESIGN 6). Nothing is changed when
        one of them shows that the destination is of another log."""
        parts, board = self._parts, self._board
        progress = parts.store.get_durable_progress(Apply())
        found: list[tuple[TableId, Ready | SyncDone, Lsn | None, Lsn | None]] = []
        for table, phase in board.phases().items():
            if table in board.positions or not isinstance(phase, Ready | SyncDone):
                continue
            own = parts.destination.applied_lsn(table)
            remembered = phase.lsn if isinstance(phase, SyncDone) else progress.lsn if progress is not None else None
            position = own if own is not None else remembered
            is_lost = own is None and parts.destination.capabilities.materializes
            # Beyond the log is well, if the source is there: a log that was lost catches up with its destination.
            if position is not None and position > max(parts.log.head(), parts.source_lsn) and not is_lost:
                raise LineageError(
                    f"{board.names[table]} in the destination is at {position}, beyond the log's {parts.log.head()} and"
                    f" the source's {parts.source_lsn}"
                )
            found.append((table, phase, own, position))
        for table, phase, own, position in found:
            with board.standing(table, phase) as is_there:
                if is_there:  # else the apply worker, or a copy that was through, has moved it on
                    self._place(table, phase, own, position)

    def _place(self, table: TableId, phase: Ready | SyncDone, own: Lsn | None, position: Lsn | None) -> None:
        parts, board = self._parts, self._board
        if own is None and parts.destination.capabilities.materializes:
            self._copy_anew(table, f"the destination has lost {board.names[table]}; it is copied again")
        elif position is None or not self._reaches(position):
            self._out_of_reach(table, position)
        elif isinstance(phase, Ready):
            board.place(table, max(position, parts.log.start()))
        elif position != phase.lsn:
            board.set(table, SyncDone(max(position, parts.log.start())))

    def _reaches(self, position: Lsn) -> bool:
        """Whether the log has all that a table at this position lacks."""
        start = self._parts.log.start()
        return position >= start or (start == self._first_start and position >= self._complete_from)

    def _out_of_reach(self, table: TableId, position: Lsn | None) -> None:
        """The log has forgotten what the table lacks: an older copy of the destination was put in its place."""
        name, start = self._board.names[table], self._parts.log.start()
        said = f"{name} is at {position}, but the log begins at {start}"
        if self._parts.destination.capabilities.materializes:
            self._copy_anew(table, f"{said}; it is copied again")
        else:
            self._board.failed(table, LogGoneError(said, context={"table": str(name)}))

    def _copy_anew(self, table: TableId, why: str) -> None:
        name = str(self._board.names[table])
        self._parts.listener.notice(Notice("table is copied again", why, table=name, message=why))
        self._board.begin_anew(table)
