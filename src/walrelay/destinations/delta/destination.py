"""Tables in a directory of Delta tables."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.delta.format import DeltaFormat
from walrelay.destinations.delta.needs import NEEDS
from walrelay.destinations.delta.table import deltalake_module
from walrelay.destinations.lake.destination import LakeDestination
from walrelay.destinations.lake.format import LakeFormat
from walrelay.destinations.urls import options_in, path_in


class DeltaDestination(LakeDestination):
    """A local directory of Delta tables, `schema/table` each, as Postgres calls them."""

    name = "delta"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, NEEDS)

    @classmethod
    def from_url(cls, url: str) -> Self:
        options_in(url)
        return cls(path_in(url, "Delta", "lake"))

    def _open(self, context: DestinationContext) -> LakeFormat:
        deltalake_module()
        return DeltaFormat(self.path)
