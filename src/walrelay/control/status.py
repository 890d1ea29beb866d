"""Where a pipeline stands, seen from outside: its store, its log, and what capture says of itself."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from walrelay.errors import ConfigError, StateMissingError
from walrelay.log.identity import read_lineage
from walrelay.log.readers import ReaderPositions
from walrelay.log.status import CaptureStatus, read_status
from walrelay.log.storage import open_storage
from walrelay.log.view import LogView
from walrelay.model.phases import Errored, TableReplicationPhase, phase_name
from walrelay.model.progress import Apply
from walrelay.stores.base import PipelineStore
from walrelay.stores.failures import StoreInUseError
from walrelay.stores.sqlite import SqliteStore

STATE_FILE = "state.sqlite"
LOG_DIRECTORY = "log"
SILENT_SECONDS = 10.0
"""A capture that has not written its status for so long is not running."""


@dataclass(frozen=True)
class TableLine:
    """One table."""

    name: str
    phase: str
    reason: str | None = None
    solution: str | None = None


@dataclass(frozen=True)
class StatusReport:
    """One look. LSNs as Postgres prints them."""

    pipeline: str
    running: bool
    tables: tuple[TableLine, ...]
    applied_lsn: str | None
    """Every table that is ready has everything up to here."""
    log_end_lsn: str | None
    lag_seconds: float
    """Age of the oldest change that is in the log but not in the destination."""
    lag_bytes: int
    """Of WAL between the source's end, as capture last heard it, and what is applied."""
    log_segments: int
    log_bytes: int
    capture: CaptureStatus | None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def pipeline_status(state: Path, pipeline: str, log: str | None = None) -> StatusReport:
    """The status of the pipeline whose state is in the directory `state`. Raises when there is none."""
    file = state / STATE_FILE
    if not file.exists():
        raise StateMissingError(f"there is no pipeline's state in {state}")
    if pipeline not in pipelines_in(file):
        raise ConfigError(f"{state} has no pipeline {pipeline}", hint=f"It has: {', '.join(pipelines_in(file))}.")
    store = SqliteStore(file, pipeline)
    try:
        return _report(store, pipeline, log or str(state / LOG_DIRECTORY))
    finally:
        store.close()


def only_pipeline(state: Path) -> str:
    """The id of the pipeline in `state`, when there is one and not more."""
    file = state / STATE_FILE
    if not file.exists():
        raise StateMissingError(f"there is no pipeline's state in {state}")
    found = pipelines_in(file)
    if len(found) == 1:
        return found[0]
    known = ", ".join(found) or "none"
    raise ConfigError(f"{state} has {len(found)} pipelines", hint=f"Name one with --id: {known}.")


def pipelines_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT pipeline_id FROM pipelines ORDER BY 1")]


def _report(store: PipelineStore, pipeline: str, location: str) -> StatusReport:
    store.load_table_replication_states()
    store.load_table_mappings()
    names = store.get_table_mappings()
    progress = store.get_durable_progress(Apply())
    storage = open_storage(location)
    capture = read_status(storage)
    reader = LogView(storage)
    there = read_lineage(storage) is not None
    end = reader.end() if there else None
    applied = progress.lsn if progress is not None else ReaderPositions(storage).positions().get(pipeline)
    waiting = reader.entries(applied, end) if end is not None and applied is not None and applied < end else []
    entries = reader.entries() if there else []
    return StatusReport(
        pipeline=pipeline,
        running=_is_running(store),
        tables=tuple(
            sorted(
                (
                    _line(names.get(table, str(table)), phase)
                    for table, phase in store.get_table_replication_states().items()
                ),
                key=lambda line: line.name,
            )
        ),
        applied_lsn=str(applied) if applied is not None else None,
        log_end_lsn=str(end) if end is not None else None,
        lag_seconds=max(0.0, time.time() - waiting[0].created_at) if waiting else 0.0,
        lag_bytes=capture.lag_bytes if capture is not None else 0,
        log_segments=len(entries),
        log_bytes=sum(entry.bytes for entry in entries),
        capture=capture if capture is not None and time.time() - capture.at < SILENT_SECONDS else None,
    )


def _line(name: str, phase: TableReplicationPhase) -> TableLine:
    if isinstance(phase, Errored):
        return TableLine(name, "errored", phase.reason, phase.solution)
    return TableLine(name, phase_name(phase))


def _is_running(store: PipelineStore) -> bool:
    """Whether somebody holds the pipeline's lock."""
    try:
        with store.acquire_pipeline_lock(patience=0):
            return False
    except StoreInUseError:
        return True
