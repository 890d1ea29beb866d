"""Tables in an Iceberg catalog."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.iceberg.catalog import Catalog
from walrelay.destinations.iceberg.format import IcebergFormat, TableOptions
from walrelay.destinations.iceberg.needs import embedded_catalog, needs_of
from walrelay.destinations.iceberg.shape import ICEBERG
from walrelay.destinations.lake.destination import LakeDestination
from walrelay.destinations.lake.format import LakeFormat
from walrelay.destinations.urls import options_in, path_in
from walrelay.errors import ConfigError


class IcebergDestination(LakeDestination):
    """A local directory of Iceberg tables with a catalog in it, `catalog.db`; or with the catalog of your own whose
    properties are given, as Spark takes them (`type`, `uri`, `warehouse` …). Tables are `schema.table`, as Postgres
    calls them."""

    name = "iceberg"
    dialect = ICEBERG

    def __init__(
        self,
        path: str | Path,
        *,
        catalog: Mapping[str, str] | None = None,
        format_version: int = 3,
        table_properties: Mapping[str, str] | None = None,
    ) -> None:
        path = Path(path).absolute()
        super().__init__(path, needs_of(embedded_catalog(path) if catalog is None else catalog))
        if format_version not in (2, 3):
            raise ConfigError(f"Iceberg's format version {format_version} is not supported", hint="Use 2 or 3.")
        self._embedded = catalog is None
        self._options = TableOptions(format_version, dict(table_properties or {}))

    @classmethod
    def from_url(cls, url: str) -> Self:
        version = options_in(url, "format_version").get("format_version", "3")
        return cls(path_in(url, "Iceberg", "lake"), format_version=int(version) if version.isdigit() else 0)

    def _open(self, context: DestinationContext) -> LakeFormat:
        session, settings = context.spark().newSession(), self.capabilities.spark.settings
        # A session that somebody else has started need not know of this lake's catalog.
        for name, value in settings.items():
            session.conf.set(name, value)
        return IcebergFormat(Catalog(session), self._options, self.path if self._embedded else None, settings)
