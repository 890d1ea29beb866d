"""What a destination offers that takes a copy's bytes as the source sends them, so that nobody decodes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from walrelay.model.schema import TableSchema


class Relay(Protocol):
    """Passes ranges of one table on, within tasks; travels pickled.

    A range may come more than once, also from a task that everybody thought dead, and is kept once.
    """

    def take(self, part: str, chunks: Iterable[memoryview | bytes]) -> int:
        """Keep the range of this name, whose bytes are those of COPY's binary format; how many rows it has."""


@runtime_checkable
class Relaying(Protocol):
    """A destination that can take bytes of some tables."""

    def relay(self, schema: TableSchema, version: int) -> Relay | None:
        """Prepare to be given the table by bytes, from a server of this version (`server_version_num`), after
        `drop_table_for_copy`; None when it is to be decoded. `write_table_rows` comes next, with rows that are
        `relayed`."""
