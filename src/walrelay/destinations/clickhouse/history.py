"""Every change of a table, kept: an option. A view `<table>_history` shows op, position, time of commit and the row.

A change is told apart by its position, so that one which comes again is kept once. Columns are never dropped from it,
and one that has another type now is another column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import Tally
from walrelay.decode.registry import arrow_type
from walrelay.decode.retarget import retarget_struct
from walrelay.destinations.clickhouse.client import ONE_BLOCK, Server
from walrelay.destinations.clickhouse.dialect import CLICKHOUSE, DIALECT, is_marked, literal, quoted
from walrelay.destinations.clickhouse.incoming import structure
from walrelay.destinations.clickhouse.load import BLOCK_BYTES, dropped, send
from walrelay.destinations.clickhouse.names import IS_NULL, OwnNames, view_name
from walrelay.destinations.clickhouse.values import Fit, Years, mark
from walrelay.errors import NameClashError
from walrelay.log.reader import TableBatch
from walrelay.model.lsn import Lsn
from walrelay.model.schema import Column, TableSchema
from walrelay.model.special import SpecialValues

BEHIND = "_history"
"""A history's name is the table's, and this."""
_MARK = '{"walrelay_history":'
_OWN = (
    "_op LowCardinality(String)", "_lsn UInt64", "_ordinal UInt64", "_committed_at DateTime64(6, 'UTC')",
    "_unchanged Array(String)",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kept:
    """A column as the history has it: found again by its number and its type."""

    column: Column

    @property
    def name(self) -> str:
        kind = _digest(DIALECT.column_type(self.column))
        known = f"a{self.column.attnum}" if self.column.attnum else f"n{_digest(self.column.name)}"
        return f"{known}_{kind}"

    @property
    def mark(self) -> str:
        return f"{self.name}_null"

    def definitions(self) -> list[str]:
        made = [f"{self.name} {DIALECT.declared(self.column, of_key=False)}"]
        return [*made, f"{self.mark} Bool"] if is_marked(self.column) else made


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


class History:
    """Of one pipeline's tables."""

    def __init__(
        self,
        server: Server,
        own: OwnNames,
        years: Years,
        special_values: SpecialValues,
        block_bytes: int = BLOCK_BYTES,
        *,
        marks: bool = True,
    ) -> None:
        self._server = server
        self._own = own
        self._years = years
        self._special_values: SpecialValues = special_values
        self._block_bytes = block_bytes
        self._marks = marks
        self._made: dict[int, TableSchema] = {}
        """The shapes for which it was made ready in this run."""

    def _place(self, schema: TableSchema) -> str:
        return self._server.place(self._own.history(schema.id))

    def copied(self, schema: TableSchema, lsn: Lsn) -> None:
        """The table was copied: what has happened up to there is not told, or was told before."""
        self._ready(schema)
        self._server.command(
            f"INSERT INTO {self._place(schema)} (_op, _lsn, _ordinal, _committed_at, _unchanged)"
            f" VALUES ('copy', {int(lsn)}, 0, now64(6), [])",
            doing=f"keeping the history of {schema.name}",
        )

    def take(self, part: TableChanges) -> None:
        """All changes of the part, seen at once."""
        schema = part.schema
        self._ready(schema)
        kept = [_Kept(column) for column in schema.columns]
        given = [*_OWN, *(x for one in kept for x in one.definitions())]
        listed = ", ".join(one.split(" ", 1)[0] for one in given)
        doing = f"keeping the history of {schema.name}"
        size = sum(file.rows for _, file in part.files) * 100  # about
        into = f"({listed}) SELECT {listed} FROM {structure(*given)}"
        if size <= self._block_bytes:
            send(self._server, f"{self._place(schema)} {into}", self._batches(part, kept), dict(ONE_BLOCK), doing)
            return
        with dropped(self._server, self._own) as beside:
            self._server.command(f"CREATE TABLE {beside} AS {self._place(schema)}", doing=doing)
            send(self._server, f"{beside} {into}", self._batches(part, kept), {}, doing)
            self._server.command(
                f"ALTER TABLE {self._place(schema)} ATTACH PARTITION tuple() FROM {beside}", doing=doing
            )

    # ------------------------------------------------------------------------------------------------------- shapes

    def _ready(self, schema: TableSchema) -> None:
        if self._made.get(schema.id) == schema:
            return
        doing = f"making the history of {schema.name} ready"
        name = view_name(schema.name) + BEHIND
        self._refuse_taken(schema, name)
        columns = ", ".join(_OWN)
        self._server.command(
            f"CREATE TABLE IF NOT EXISTS {self._place(schema)} ({columns}) ENGINE = ReplacingMergeTree"
            " ORDER BY (_lsn, _ordinal)",
            doing=doing,
        )
        kept = [_Kept(column) for column in schema.columns]
        for definition in (x for one in kept for x in one.definitions()):
            self._server.command(
                f"ALTER TABLE {self._place(schema)} ADD COLUMN IF NOT EXISTS {definition}", doing=doing
            )
        shown = [one.split(" ", 1)[0] for one in _OWN]
        for one in kept:
            shown.append(f"{one.name} AS {quoted(one.column.name)}")
            if is_marked(one.column) and self._marks:
                shown.append(f"{one.mark} AS {quoted(one.column.name + IS_NULL)}")
        self._server.command(
            f"CREATE OR REPLACE VIEW {self._server.place(name)} AS SELECT {', '.join(shown)}"
            f" FROM {self._place(schema)} FINAL COMMENT {literal(self._comment(schema))}",
            doing=doing,
        )
        self._forget_old_names(schema, name)
        self._made[schema.id] = schema

    def _comment(self, schema: TableSchema) -> str:
        return f'{_MARK}"{self._own.tag} {schema.id}"}}'

    def _refuse_taken(self, schema: TableSchema, name: str) -> None:
        found = self._server.rows(
            f"SELECT comment FROM system.tables WHERE database = {literal(self._server.address.database)}"
            f" AND name = {literal(name)}"
        )
        if found and not found[0][0].decode().startswith(_MARK):
            raise NameClashError(
                f"{name}, the name of a history, is taken in {self._server.address}",
                hint="Rename that table, or do without histories.",
                context={"table": str(schema.name), "table_id": schema.id},
            )

    def _forget_old_names(self, schema: TableSchema, name: str) -> None:
        """The table had another name before."""
        found = self._server.rows(
            f"SELECT name FROM system.tables WHERE database = {literal(self._server.address.database)}"
            f" AND comment = {literal(self._comment(schema))} AND name != {literal(name)}"
        )
        for (old,) in found:
            self._server.command(f"DROP VIEW IF EXISTS {self._server.place(old.decode())}")

    # --------------------------------------------------------------------------------------------------------- rows

    def _batches(self, part: TableChanges, kept: list[_Kept]) -> Iterator[pa.RecordBatch]:
        # Values were counted where the current rows are written; here they are treated alike.
        fit = Fit(self._years, self._special_values, Counter())
        for one in part.arrow():
            if one.batch.num_rows:
                yield self._made_of(one, part.schema, kept, fit)

    def _made_of(self, one: TableBatch, schema: TableSchema, kept: list[_Kept], fit: Fit) -> pa.RecordBatch:
        batch, then = one.batch, one.version.schema
        sides = {
            side: retarget_struct(
                batch.column(side), then, Tally(CLICKHOUSE, self._special_values), keys=then.key_columns
            ).flatten()
            for side in ("row", "old")
        }
        is_delete = pc.equal(batch.column("op"), "delete")
        made: dict[str, pa.Array] = {
            "_op": batch.column("op"),
            "_lsn": batch.column("commit_lsn").cast(pa.uint64()),
            "_ordinal": batch.column("ordinal").cast(pa.uint64()),
            "_committed_at": batch.column("commit_time"),
            "_unchanged": pc.coalesce(batch.column("unchanged"), pa.scalar([], pa.list_(pa.string()))),
        }
        places = {(column.attnum or column.name): i for i, column in enumerate(then.columns)}
        for column in kept:
            i = places.get(column.column.attnum or column.column.name)
            array = self._value(sides, is_delete, i, then, column) if i is not None else None
            if array is None:
                kind = pa.string() if column.column.as_text else arrow_type(column.column.type, CLICKHOUSE)
                array = pa.nulls(batch.num_rows, kind)
            made[column.name] = fit.column(array, column.column, schema)
            if is_marked(column.column):
                made[column.mark] = mark(made[column.name])
        return pa.RecordBatch.from_pydict(made)

    def _value(
        self, sides: dict[str, list[pa.Array]], is_delete: pa.Array, i: int, then: TableSchema, column: _Kept
    ) -> pa.Array | None:
        """A row that goes is told by what it was; None where the type was another one then."""
        if DIALECT.column_type(then.columns[i]) != DIALECT.column_type(column.column):
            return None
        return pc.if_else(is_delete, sides["old"][i], sides["row"][i])
