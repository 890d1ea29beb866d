"""What a person can do about changes that could not be decoded: look, have the tables copied again, go on without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from walrelay.control.stores import Place
from walrelay.errors import TableMissingError
from walrelay.log.failures import LogDamagedError
from walrelay.log.identity import read_lineage
from walrelay.log.quarantine import quarantined_changes
from walrelay.log.storage import open_storage
from walrelay.log.view import LogView
from walrelay.model.names import TableId
from walrelay.model.phases import Errored, Init
from walrelay.model.quarantine import FACT, QuarantinedChange, state_of
from walrelay.stores.base import PipelineStore
from walrelay.stores.failures import NoEarlierPhaseError


@dataclass(frozen=True)
class QuarantineLine:
    """One change, for people and machines; without values unless they were asked for."""

    table: str
    commit_lsn: str
    ordinal: int
    op: str
    commit_time: str | None
    code: str
    reason: str
    key_columns: tuple[str, ...]
    key_known: bool
    state: str
    """As `state_of` says."""
    key: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What was done for one table."""

    table: str
    changes: int
    """That were open."""
    done: bool
    phase: str | None = None


def list_quarantine(place: Place, tables: Sequence[str], *, show_values: bool) -> list[QuarantineLine]:
    """All changes in the log's quarantine, in commit order."""
    view = LogView(open_storage(place.location))
    with place.opened() as store:
        facts = store.get_facts(FACT)
    return [
        QuarantineLine(
            table=one.name,
            commit_lsn=str(one.commit_lsn),
            ordinal=one.ordinal,
            op=one.op,
            commit_time=None if one.commit_time is None else one.commit_time.isoformat(),
            code=one.code,
            reason=one.reason,
            key_columns=_key_columns(view, one),
            key_known=one.key is not None,
            state=state_of(one, facts.get(one.table)),
            key=one.key if show_values else None,
        )
        for one in _chosen(view, tables)
    ]


def retry_quarantine(place: Place, tables: Sequence[str]) -> list[Outcome]:
    """Have the tables with open changes copied again at the next start. The pipeline must not run."""
    view = LogView(open_storage(place.location))
    outcomes = []
    with place.opened() as store, store.acquire_pipeline_lock():
        facts = store.get_facts(FACT)
        for table, changes in _open_by_table(view, tables, facts).items():
            known = store.get_table_replication_state(table) is not None
            if known:
                _back_to_init(store, table)
                _remember(store, table, facts, held=None)
            outcomes.append(Outcome(changes[-1].name, len(changes), known, "init" if known else None))
    return outcomes


def drop_quarantine(place: Place, tables: Sequence[str]) -> list[Outcome]:
    """Go on without the open changes of the tables, for good. The pipeline must not run."""
    view = LogView(open_storage(place.location))
    outcomes = []
    with place.opened() as store, store.acquire_pipeline_lock():
        facts = store.get_facts(FACT)
        for table, changes in _open_by_table(view, tables, facts).items():
            held = "held" in (facts.get(table) or {})
            last = max(one.end_lsn for one in changes)
            _remember(store, table, facts, held=None, dropped=str(last))
            if held and isinstance(store.get_table_replication_state(table), Errored):
                store.rollback_table_replication_state(table)
            outcomes.append(Outcome(changes[-1].name, len(changes), True))
    return outcomes


def _chosen(view: LogView, tables: Sequence[str]) -> list[QuarantinedChange]:
    if read_lineage(view.storage) is None:
        return []
    found = quarantined_changes(view)
    unknown = sorted(set(tables) - {one.name for one in found})
    if unknown:
        names = ", ".join(sorted({one.name for one in found})) or "no table"
        raise TableMissingError(
            f"nothing of {unknown[0]} is in the quarantine", hint=f"It has changes of: {names}. Write schema.table."
        )
    return [one for one in found if not tables or one.name in tables]


def _open_by_table(
    view: LogView, tables: Sequence[str], facts: dict[TableId, Any]
) -> dict[TableId, list[QuarantinedChange]]:
    found: dict[TableId, list[QuarantinedChange]] = {}
    for one in _chosen(view, tables):
        if state_of(one, facts.get(one.table)) == "open":
            found.setdefault(one.table, []).append(one)
    return found


def _key_columns(view: LogView, one: QuarantinedChange) -> tuple[str, ...]:
    try:
        return view.version(one.table, one.schema_version).schema.key_columns
    except LogDamagedError:
        return ()


def _remember(store: PipelineStore, table: TableId, facts: dict[TableId, Any], **marks: str | None) -> None:
    fact = {**(facts.get(table) or {}), **marks}
    kept = {mark: lsn for mark, lsn in fact.items() if lsn is not None}
    store.store_fact(table, FACT, kept or None)


def _back_to_init(store: PipelineStore, table: TableId) -> None:
    try:
        while not isinstance(store.get_table_replication_state(table), Init):
            store.rollback_table_replication_state(table)
    except NoEarlierPhaseError:
        store.update_table_replication_state(table, Init())
