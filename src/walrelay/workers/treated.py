"""Values that a destination cannot hold, treated by policy: how many, by table, kept in the store (SEMANTICS 22a).

What capture treated is counted in the log, with the changes themselves; here is what copies and the destination did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from walrelay.model.names import TableId
from walrelay.model.special import Special
from walrelay.stores.base import StateStore

FACT = "treated"
"""The store's fact about a table: `copy`, of its last copy, and `changes`, of all since; each by kind."""


def record_copy(store: StateStore, table: TableId, treated: Counter[Special]) -> None:
    """A copy is in place of all that was there."""
    if treated or table in store.get_facts(FACT):
        _record(store, table, "copy", treated)


def record_changes(store: StateStore, treated: Mapping[TableId, Counter[Special]]) -> None:
    """The destination has treated these, besides what it did before."""
    if not any(treated.values()):
        return
    facts = store.get_facts(FACT)
    for table, counts in treated.items():
        if counts:
            before = Counter({Special[name]: count for name, count in facts.get(table, {}).get("changes", {}).items()})
            _record(store, table, "changes", before + counts)


def _record(store: StateStore, table: TableId, road: Literal["copy", "changes"], counts: Counter[Special]) -> None:
    fact = {**store.get_facts(FACT).get(table, {}), road: {special.name: count for special, count in counts.items()}}
    store.store_fact(table, FACT, {name: part for name, part in fact.items() if part} or None)


def counted(treated: Mapping[str, Mapping[str, int]]) -> Counter[Special]:
    """The log's counts, over all tables."""
    total: Counter[Special] = Counter()
    for counts in treated.values():
        total.update({Special[name]: count for name, count in counts.items()})
    return total
