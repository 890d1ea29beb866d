"""What a person may want of a pipeline: whoever runs it does it at once, else its next start does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from walrelay.errors import ConfigError, UnknownTableError
from walrelay.model.names import TableId
from walrelay.model.phases import phase_name
from walrelay.stores.base import WHOLE_PIPELINE, PipelineStore
from walrelay.stores.facts import PAUSED, paused_since, wish
from walrelay.stores.failures import NoEarlierPhaseError, StoreInUseError


@dataclass(frozen=True)
class Asked:
    """What was asked for, for one table (or, with an empty name, the pipeline)."""

    table: str
    what: str
    phase: str | None
    """Where it stood when it was asked."""
    running: bool
    """Whether somebody runs the pipeline, and so does it now."""


def resync(store: PipelineStore, tables: Sequence[str] = ()) -> list[Asked]:
    """Have these tables, or all, copied again."""
    phases, running = store.get_table_replication_states(), is_running(store)
    found = find_tables(store, tables) if tables else _names(store)
    if not found:
        raise UnknownTableError("the pipeline knows no tables yet", hint="Run it first: it then copies all of them.")
    for table in found:
        wish(store, table, "resync")
    return [
        Asked(name, "resync", phase_name(phases[table]) if table in phases else None, running)
        for table, name in sorted(found.items(), key=lambda item: item[1])
    ]


def rollback(store: PipelineStore, table: str) -> Asked:
    """Have the table go one phase back: of one in error, what it did before is tried again."""
    ((number, name),) = find_tables(store, [table]).items()
    phase = store.get_table_replication_state(number)
    if phase is None or phase_name(phase) == "init":
        raise NoEarlierPhaseError(f"{name} has no earlier phase to go back to")
    wish(store, number, "rollback")
    return Asked(name, "rollback", phase_name(phase), is_running(store))


def pause(store: PipelineStore) -> Asked:
    """Write nothing more to the destination; capture goes on."""
    if paused_since(store) is None:
        store.store_fact(WHOLE_PIPELINE, PAUSED, {"since": time.time()})
    return Asked("", "pause", None, is_running(store))


def resume(store: PipelineStore) -> Asked:
    """End a pause."""
    store.store_fact(WHOLE_PIPELINE, PAUSED, None)
    return Asked("", "resume", None, is_running(store))


def find_tables(store: PipelineStore, wanted: Sequence[str]) -> dict[TableId, str]:
    """The tables of these names; the schema may be left out where that is clear."""
    names = _names(store)
    found: dict[TableId, str] = {}
    for one in wanted:
        fits = {table: name for table, name in names.items() if name == one} or {
            table: name for table, name in names.items() if name.partition(".")[2] == one
        }
        if not fits:
            known = ", ".join(sorted(names.values())) or "none"
            raise UnknownTableError(f"the pipeline has no table {one}", hint=f"It has: {known}.")
        if len(fits) > 1:
            raise ConfigError(f"several tables are called {one}", hint=f"Name one: {', '.join(sorted(fits.values()))}.")
        found |= fits
    return found


def _names(store: PipelineStore) -> dict[TableId, str]:
    mappings = store.get_table_mappings()
    return {table: mappings.get(table, str(table)) for table in store.get_table_replication_states()}


def is_running(store: PipelineStore) -> bool:
    """Whether somebody holds the pipeline's lock."""
    try:
        with store.acquire_pipeline_lock(patience=0):
            return False
    except StoreInUseError:
        return True
