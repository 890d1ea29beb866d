"""Rows on their way into a table: Arrow batches with the table's own columns, in the form in which it takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.destinations.clickhouse.collapsed import Collapsed
from walrelay.destinations.clickhouse.dialect import literal
from walrelay.destinations.clickhouse.facts import Facts, Stored
from walrelay.destinations.clickhouse.layout import DELETED, SIGN, definitions
from walrelay.destinations.clickhouse.values import Fit, mark
from walrelay.model.schema import TableSchema

PLACE = ("lsn Int64", "ordinal Int64")


def structure(*columns: str) -> str:
    """What `input()` is told of the columns that come."""
    return f"input({literal(', '.join(columns))})"


@dataclass(frozen=True)
class Incoming:
    """The changes of one table, for storage with these columns."""

    schema: TableSchema
    facts: Facts
    collapsed: Collapsed
    fit: Fit

    @property
    def key(self) -> list[int]:
        """Places of the key's columns."""
        return [i for i, one in enumerate(self._stored) if one.name in self.facts.key]

    @property
    def _stored(self) -> list[Stored]:
        return [self.facts.stored(column.name) for column in self.schema.columns]

    def definitions(self) -> list[str]:
        """Of what comes."""
        if not self.facts.key:
            return [*definitions(self.facts), *PLACE, f"{SIGN} Int8"]
        marks = [f"l{i} Bool" for i in self.collapsed.lacking]
        types = dict(one.split(" ", 1) for one in definitions(self.facts))
        if marks:
            marks += ["came Bool", *(f"o{i} {types[self._stored[i].name]}" for i in self.key)]
        return [*definitions(self.facts), *PLACE, f"{DELETED} UInt8", *marks]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self.collapsed.batches():
            if batch.num_rows:
                yield self._made(batch)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {}
        key = set(self.key)
        for i, (column, stored) in enumerate(zip(self.schema.columns, self._stored, strict=True)):
            side = "k" if i in key else "n"
            made[stored.name] = self.fit.column(batch.column(f"{side}{i}"), column, self.schema)
            if stored.marked:
                made[stored.mark] = mark(made[stored.name])
        made |= {name: batch.column(name).cast(pa.int64()) for name in ("lsn", "ordinal")}
        if not self.facts.key:
            made[SIGN] = batch.column("sign")
            return pa.RecordBatch.from_pydict(made)
        made[DELETED] = pc.invert(batch.column("is_put")).cast(pa.uint8())
        for i in self.collapsed.lacking:
            made[f"l{i}"] = batch.column(f"l{i}")
        if self.collapsed.lacking:
            made["came"] = batch.column("came")
            for i in self.key:
                made[f"o{i}"] = self.fit.column(batch.column(f"o{i}"), self.schema.columns[i], self.schema)
        return pa.RecordBatch.from_pydict(made)
