"""Which life of a replication slot a position belongs to (SEMANTICS 4)."""

from __future__ import annotations

from dataclasses import dataclass

from walrelay.model.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Lineage:
    """One life of a replication slot. LSNs of two lineages cannot be compared."""

    slot: str
    system_identifier: str
    timeline: int
    created_lsn: Lsn

    def __str__(self) -> str:
        return (
            f"slot {self.slot} of system {self.system_identifier}, timeline {self.timeline}, "
            f"created at {self.created_lsn}"
        )
