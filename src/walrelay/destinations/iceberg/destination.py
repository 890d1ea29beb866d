"""Tables in an Iceberg catalog."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Self

from walrelay.config.settings import duration
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.iceberg.catalog import Catalog
from walrelay.destinations.iceberg.format import IcebergFormat, TableOptions
from walrelay.destinations.iceberg.maintenance import KEEP_SNAPSHOTS
from walrelay.destinations.iceberg.needs import embedded_catalog, needs_of
from walrelay.destinations.iceberg.shape import ICEBERG
from walrelay.destinations.lake.destination import MAINTAIN, LakeDestination, maintain_every
from walrelay.destinations.lake.format import LakeFormat
from walrelay.destinations.lake.maintenance import MAINTAIN_EVERY
from walrelay.destinations.urls import options_in, path_in
from walrelay.errors import ConfigError


class IcebergDestination(LakeDestination):
    """A local directory of Iceberg tables with a catalog in it, `catalog.db`; or with the catalog of your own whose
    properties are given, as Spark takes them (`type`, `uri`, `warehouse` …). Tables are `schema.table`, as Postgres
    calls them. `maintain_every`: how often tables that got changes are compacted, and snapshots that are older than
    `keep_snapshots` removed; None is never."""

    name = "iceberg"
    dialect = ICEBERG

    def __init__(
        self,
        path: str | Path,
        *,
        catalog: Mapping[str, str] | None = None,
        format_version: int = 3,
        table_properties: Mapping[str, str] | None = None,
        maintain_every: timedelta | None = MAINTAIN_EVERY,
        keep_snapshots: timedelta = KEEP_SNAPSHOTS,
    ) -> None:
        path = Path(path).absolute()
        super().__init__(path, needs_of(embedded_catalog(path) if catalog is None else catalog), maintain_every)
        if format_version not in (2, 3):
            raise ConfigError(f"Iceberg's format version {format_version} is not supported", hint="Use 2 or 3.")
        self._embedded = catalog is None
        self._options = TableOptions(format_version, dict(table_properties or {}), keep_snapshots)

    @classmethod
    def from_url(cls, url: str) -> Self:
        options = options_in(url, "format_version", MAINTAIN, "keep_snapshots")
        version, kept = options.get("format_version", "3"), options.get("keep_snapshots")
        return cls(
            path_in(url, "Iceberg", "lake"),
            format_version=int(version) if version.isdigit() else 0,
            maintain_every=maintain_every(options),
            keep_snapshots=KEEP_SNAPSHOTS if kept is None else duration("keep_snapshots", kept),
        )

    def _open(self, context: DestinationContext) -> LakeFormat:
        session, settings = context.spark().newSession(), self.capabilities.spark.settings
        # A session that somebody else has started need not know of this lake's catalog.
        for name, value in settings.items():
            session.conf.set(name, value)
        return IcebergFormat(Catalog(session), self._options, self.path if self._embedded else None, settings)
