"""Tables in a directory of Delta tables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Self

from walrelay.config.settings import duration
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.delta.format import DeltaFormat
from walrelay.destinations.delta.needs import NEEDS
from walrelay.destinations.delta.table import DELETION_VECTORS, FILES_KEPT, LOG_KEPT, deltalake_module
from walrelay.destinations.lake.destination import MAINTAIN, LakeDestination, maintain_every
from walrelay.destinations.lake.format import LakeFormat
from walrelay.destinations.lake.maintenance import MAINTAIN_EVERY
from walrelay.destinations.urls import options_in, path_in, yes_or_no


class DeltaDestination(LakeDestination):
    """A local directory of Delta tables, `schema/table` each, as Postgres calls them. `maintain_every`: how often those
    that got changes are compacted, and files removed that no version of the last `keep_versions` needs; None is never.
    Of tables that are made or copied from now on: `keep_versions`, None is Delta's own week; and `deletion_vectors`,
    changes mark rows as deleted instead of writing whole files anew, which readers must know of. `cluster_by_key`: when
    a table is compacted its rows are put in the order of its key, so that a MERGE, or who looks for a key, opens few
    files; that writes the whole table anew each time."""

    name = "delta"

    def __init__(
        self,
        path: str | Path,
        *,
        maintain_every: timedelta | None = MAINTAIN_EVERY,
        keep_versions: timedelta | None = None,
        deletion_vectors: bool = False,
        cluster_by_key: bool = False,
    ) -> None:
        super().__init__(path, NEEDS, maintain_every)
        self._properties = {DELETION_VECTORS: "true"} if deletion_vectors else {}
        self._cluster = cluster_by_key
        if keep_versions is not None:
            kept = f"interval {int(keep_versions.total_seconds())} seconds"
            self._properties |= {FILES_KEPT: kept, LOG_KEPT: kept}

    @classmethod
    def from_url(cls, url: str) -> Self:
        options = options_in(url, MAINTAIN, "keep_versions", "deletion_vectors", "cluster_by_key")
        kept = options.get("keep_versions")
        return cls(
            path_in(url, "Delta", "lake"),
            maintain_every=maintain_every(options),
            keep_versions=None if kept is None else duration("keep_versions", kept),
            deletion_vectors=yes_or_no("deletion_vectors", options.get("deletion_vectors", "no")),
            cluster_by_key=yes_or_no("cluster_by_key", options.get("cluster_by_key", "no")),
        )

    def _open(self, context: DestinationContext) -> LakeFormat:
        deltalake_module()
        return DeltaFormat(self.path, self._properties, cluster=self._cluster)
