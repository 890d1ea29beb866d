"""The fingerprints of tables that are accounted for: each table's is taken with its copy, and renewed with whatever is
found to be harmless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from walrelay.model.fingerprints import Fingerprint
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.stores.base import PipelineStore

FINGERPRINT: Final = "fingerprint"
"""The fact under which the store has a table's fingerprint."""


@dataclass(frozen=True, slots=True)
class Known:
    """A fingerprint, and where the WAL ended about then."""

    fingerprint: Fingerprint
    lsn: Lsn


class FingerprintBook:
    """The store's, read once; this process is the only one that writes them. Calls may come from several threads, for
    different tables."""

    def __init__(self, store: PipelineStore) -> None:
        self._store = store
        self._bodies: dict[TableId, dict[str, Any]] = store.get_facts(FINGERPRINT)

    def get(self, table: TableId) -> Known | None:
        body = self._bodies.get(table)
        return None if body is None else Known(Fingerprint.from_json(body["print"]), Lsn.parse(body["lsn"]))

    def put(self, fingerprint: Fingerprint, lsn: Lsn) -> None:
        table = fingerprint.sighting.table
        body = {"lsn": str(lsn), "print": fingerprint.to_json()}
        self._store.store_fact(table, FINGERPRINT, body)
        self._bodies[table] = body

    def forget(self, table: TableId) -> None:
        """The store has forgotten the table with all its facts."""
        self._bodies.pop(table, None)
