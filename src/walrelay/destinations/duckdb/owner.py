"""Whether a run and a DuckDB file belong together, asked before anything is changed (SEMANTICS 27).

A file has an id of its own, and says of each table which source its rows come from and which pipeline keeps it current.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.names import folded
from walrelay.destinations.duckdb.places import ELSEWHERE, WHERE, DuckDBPlaces
from walrelay.destinations.duckdb.progress import WHOLE, ProgressBook
from walrelay.destinations.format import readable
from walrelay.destinations.holdings import Holding, writer_of
from walrelay.destinations.keepers import begins_anew, kept_by
from walrelay.destinations.notices import waits_for_holder
from walrelay.destinations.places import other_source
from walrelay.errors import (
    DestinationBusyError,
    DestinationNotWritableError,
    DiskFullError,
    OtherDestinationError,
    OtherPipelineError,
)
from walrelay.model.names import TableId, TableName
from walrelay.model.phases import Ready, SyncDone
from walrelay.model.progress import Apply
from walrelay.stores.file_lock import FileLock, HeldError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def write_lock(path: Path, context: DestinationContext) -> FileLock:
    """The right to write to the file, whatever else a run shares with others; waits for who has it. It is on a file
    beside, which is gone afterwards: readers are not concerned."""
    real = path.resolve()
    told = threading.Event()

    def waiting(holder: str) -> None:
        if context.stopping.is_set():
            raise HeldError(holder)
        if not told.is_set():
            context.notify(waits_for_holder(path, holder))
            told.set()

    what = f"pipeline {context.pipeline_id}, mode {context.mode}"
    patience = context.settings.busy_timeout.total_seconds()
    try:
        return FileLock(real.with_name(f".{real.name}.walrelay.lock"), what, patience, waiting)
    except HeldError as error:
        raise DestinationBusyError(
            f"another walrelay run writes to {path}: {error.holder}",
            hint="Wait until it has ended, or stop it; or choose another file.",
        ) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(
                f"the disk is full: {real.parent}", hint="Free some space, then run again; nothing was lost."
            ) from error
        raise DestinationNotWritableError(f"cannot lock {path}: {os.strerror(error.errno or 0).lower()}") from error


class Ownership:
    """Asks and answers within the open transaction."""

    def __init__(self, connection: DuckDBPyConnection, catalog: str, path: Path, context: DestinationContext) -> None:
        self._connection = connection
        self._catalog = catalog
        self._path = path
        self._context = context
        self._book = ProgressBook(connection, catalog, writer_of(context))

    def admit(self) -> str:
        """The file's id, when the run may write to it. Takes over what an earlier version has left without a name."""
        file_id = self._file_id()
        expected = self._context.expected
        if file_id is not None and expected is not None and file_id != expected.id:
            raise OtherDestinationError(
                f"{self._path} is another file than the one that this pipeline keeps current, {expected.place}",
                hint="Give that file; or run again with --begin-anew: the tables are then copied into this one.",
            )
        self._book.create()
        self._adopt()
        self._refuse_strangers()
        self._book.remember_source()
        DuckDBPlaces(self._connection, self._catalog, self._book).settle()
        if file_id is None:
            file_id = uuid.uuid4().hex
            self._connection.execute("INSERT INTO _walrelay.file VALUES (?, now())", [file_id])
        return file_id

    def _file_id(self) -> str | None:
        there = self._connection.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
            [self._catalog, "_walrelay", "file"],
        ).fetchall()
        found = self._connection.execute("SELECT id FROM _walrelay.file").fetchall() if there else []
        return readable(found[0][0], str(self._path)) if found else None

    def _adopt(self) -> None:
        """An earlier version has not recorded whose tables these are. A pipeline that has run before, and has not seen
        another file since, knows its tables by their oids; others must find the name as well."""
        context = self._context
        if context.source_id is None:
            return
        ran_before = context.mode != "copy" and context.store.get_durable_progress(Apply()) is not None
        trusted = ran_before and context.expected is None
        recorded = {one.table: one.name for one in self._book.holdings() if one.source_id is None}
        kept = self._kept_by_somebody() if context.mode == "copy" else set()
        ours = [
            table
            for table, name in context.tables.items()
            if table in recorded and table not in kept and (trusted or recorded[table] == name)
        ]
        for table in [*ours, *([WHOLE] if trusted else [])]:
            for one, column in (("tables", "source_oid"), ("progress", "table_id"), ("shapes", "table_id")):
                pipeline = "" if one == "shapes" else ", pipeline = $pipeline"
                values = {"source": context.source_id, "table": table}
                self._connection.execute(
                    f"UPDATE _walrelay.{one} SET source_id = $source{pipeline}"
                    f" WHERE source_id IS NULL AND {column} = $table",
                    values if one == "shapes" else {**values, "pipeline": context.pipeline_name},
                )

    def _kept_by_somebody(self) -> set[TableId]:
        """Tables that a pipeline of an earlier version has kept current."""
        question = "SELECT table_id FROM _walrelay.progress WHERE source_id IS NULL AND applied_lsn IS NOT NULL"
        return {table for (table,) in self._connection.execute(question).fetchall()}

    def _refuse_strangers(self) -> None:
        """Tables that this run would write to, and must not. One that runs already, and was given another table since,
        goes on: that table alone fails, when it is copied."""
        context = self._context
        phases = context.store.get_table_replication_states()
        known = {table for table, phase in phases.items() if isinstance(phase, Ready | SyncDone)}
        by_name = {folded(one.name.schema, one.name.name): one for one in self._book.holdings()}
        for table, name in context.tables.items():
            held = by_name.get(folded(name.schema, name.name))
            if held is not None and not known:
                self._refuse(name, held)
            for one in self._book.placed(table):
                self._refuse(one.name, one, takes_over=table not in known)

    def check(self, table: TableId, name: TableName) -> None:
        """Raise when the table must not be copied to this name."""
        held = self._book.holding(name)
        for one in [*([] if held is None else [held]), *self._book.placed(table)]:
            self._refuse(one.name, one)

    def _refuse(self, name: TableName, held: Holding, *, takes_over: bool = True) -> None:
        context = self._context
        if context.source_id is None or not self._is_there(held.name):
            return
        if held.source_id is None:
            if context.mode == "copy" and held.table in self._kept_by_somebody():
                raise self._other_pipeline(name, None)
        elif held.source_id != context.source_id:
            raise other_source(self._book, name, held.source_id, WHERE, ELSEWHERE)
        elif held.pipeline is None or held.pipeline == context.pipeline_name:
            return
        elif not (takes_over and begins_anew(held.pipeline, context)):
            raise self._other_pipeline(name, held.pipeline)

    def taken_over(self, name: TableName) -> str | None:
        """The pipeline that has kept the table current until now, when this is another one."""
        held = self._book.holding(name)
        before = None if held is None or not self._is_there(held.name) else held.pipeline
        return before if before != self._context.pipeline_name else None

    def _other_pipeline(self, name: TableName, pipeline: str | None) -> OtherPipelineError:
        return kept_by(pipeline, name, self._context, place=str(self._path), elsewhere=ELSEWHERE)

    def _is_there(self, name: TableName) -> bool:
        there = self._connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?", [self._catalog]
        ).fetchall()
        return any(folded(*one) == folded(name.schema, name.name) for one in there)
