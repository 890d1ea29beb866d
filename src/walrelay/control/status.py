"""Where a pipeline stands, seen from outside: its store, its log, and what capture says of itself."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from walrelay.control.commands import is_running
from walrelay.control.stores import Place
from walrelay.log.identity import read_lineage
from walrelay.log.manifest import Treated
from walrelay.log.quarantine import quarantined_changes
from walrelay.log.readers import ReaderPositions
from walrelay.log.status import SILENT_SECONDS, CaptureStatus, read_status
from walrelay.log.storage import open_storage
from walrelay.log.view import LogView
from walrelay.model import quarantine
from walrelay.model.names import TableId
from walrelay.model.phases import Errored, TableReplicationPhase, phase_name
from walrelay.model.progress import Apply
from walrelay.stores.base import WHOLE_PIPELINE, PipelineStore
from walrelay.stores.facts import ENDED, WANTED, paused_since
from walrelay.stores.names import known_name
from walrelay.workers import treated as treated_values
from walrelay.workers.status import known_lag


@dataclass(frozen=True)
class TableLine:
    """One table."""

    name: str
    phase: str
    reason: str | None = None
    solution: str | None = None
    code: str | None = None
    """Of the error."""
    retry_at: float | None = None
    """When it is tried again by itself, in seconds since 1970."""
    wanted: str | None = None
    """What a person has asked for, and the pipeline has not done yet: resync, rollback."""


@dataclass(frozen=True)
class ReaderLine:
    """Who reads the log: what it has not read is kept for it."""

    name: str
    lsn: str
    seconds: float
    """Since it came there."""
    is_this: bool
    """Whether it is the pipeline that was asked for."""


@dataclass(frozen=True)
class Ended:
    """What ended the last run, when it was an error."""

    code: str
    message: str
    hint: str
    at: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class StatusReport:
    """One look. LSNs as Postgres prints them."""

    pipeline: str
    running: bool
    tables: tuple[TableLine, ...]
    applied_lsn: str | None
    """Every table that is ready has everything up to here."""
    log_end_lsn: str | None
    lag_seconds: float | None
    """Age of the oldest change that is in the log but not in the destination; None while nobody hears from the source:
    then nobody knows what has been committed there."""
    unknown_since: float | None
    """Since when the lag is not known, in seconds since 1970; None also when it never was."""
    lag_bytes: int
    """Of WAL between the source's end, as capture last heard it, and what is applied."""
    log_segments: int
    log_bytes: int
    capture: CaptureStatus | None
    treated: dict[str, Treated] = field(default_factory=dict)
    """Values treated by policy, by table, then `copy` (the last one) or `changes` (since the log began), then kind."""
    quarantined: dict[str, int] = field(default_factory=dict)
    """Changes in the quarantine that still hold their table, by table."""
    readers: tuple[ReaderLine, ...] = ()
    paused_since: float | None = None
    ended: Ended | None = None
    """Of a pipeline that does not run."""

    @property
    def healthy(self) -> bool:
        """Whether no table is in error, nothing is missing, and the last run did not end in an error."""
        return self.ended is None and not self.quarantined and all(one.phase != "errored" for one in self.tables)

    def to_json(self) -> str:
        return json.dumps({"healthy": self.healthy, **asdict(self)}, indent=2)


def pipeline_status(place: Place) -> StatusReport:
    """The status of the pipeline whose state is there. Raises when there is none."""
    with place.opened() as store:
        return _report(store, place.only_pipeline(), place.location)


def _report(store: PipelineStore, pipeline: str, location: str) -> StatusReport:
    names = store.get_table_mappings()
    progress = store.get_durable_progress(Apply())
    storage = open_storage(location)
    capture, reader = read_status(storage), LogView(storage)
    there = read_lineage(storage) is not None
    end = reader.end() if there else None
    name = known_name(store) or pipeline
    readers = ReaderPositions(storage).all()
    read = readers.get(name)
    applied = progress.lsn if progress is not None else None if read is None else read.lsn
    lag, unknown_since = known_lag(reader, applied, end, capture)
    entries = reader.entries() if there else []
    running = is_running(store)
    return StatusReport(
        pipeline=pipeline,
        running=running,
        tables=_tables(store, names),
        applied_lsn=str(applied) if applied is not None else None,
        log_end_lsn=str(end) if end is not None else None,
        lag_seconds=lag,
        unknown_since=unknown_since,
        lag_bytes=capture.lag_bytes if capture is not None else 0,
        log_segments=len(entries),
        log_bytes=sum(entry.bytes for entry in entries),
        capture=capture if capture is not None and time.time() - capture.at < SILENT_SECONDS else None,
        treated=treated_by_table(store, names, reader.treated() if there else {}),
        quarantined=quarantined_by_table(store, reader) if there else {},
        readers=tuple(
            ReaderLine(one, str(at.lsn), max(0.0, time.time() - at.at), one == name)
            for one, at in sorted(readers.items())
        ),
        paused_since=paused_since(store),
        ended=None if running else _ended(store),
    )


def _tables(store: PipelineStore, names: dict[TableId, str]) -> tuple[TableLine, ...]:
    wanted = store.get_facts(WANTED)
    lines = (
        _line(names.get(table, str(table)), phase, (wanted.get(table) or {}).get("what"))
        for table, phase in store.get_table_replication_states().items()
    )
    return tuple(sorted(lines, key=lambda line: line.name))


def _ended(store: PipelineStore) -> Ended | None:
    found = store.get_facts(ENDED).get(WHOLE_PIPELINE)
    return None if found is None else Ended(**found)


def treated_by_table(
    store: PipelineStore, names: dict[TableId, str], captured: Treated
) -> dict[str, dict[str, dict[str, int]]]:
    """What the store has of copies and of the destination, and the log of capture."""
    found = {names.get(table, str(table)): dict(fact) for table, fact in store.get_facts(treated_values.FACT).items()}
    for name, counts in captured.items():
        fact = found.setdefault(name, {})
        fact["changes"] = dict(Counter(fact.get("changes", {})) + Counter(counts))
    return dict(sorted(found.items()))


def quarantined_by_table(store: PipelineStore, log: LogView) -> dict[str, int]:
    if not (found := quarantined_changes(log)):
        return {}
    facts = store.get_facts(quarantine.FACT)
    open_ = (one.name for one in found if quarantine.state_of(one, facts.get(one.table)) == "open")
    return dict(sorted(Counter(open_).items()))


def _line(name: str, phase: TableReplicationPhase, wanted: str | None) -> TableLine:
    if isinstance(phase, Errored):
        return TableLine(name, "errored", phase.reason, phase.solution, phase.code, phase.retry_at, wanted)
    return TableLine(name, phase_name(phase), wanted=wanted)
