"""A ClickHouse database's rows, hashed and summed up by ClickHouse itself, for `verify`; and rows put right.

A table is looked at through a clone of its parts (hard links, no copies), which stays as it is while a pipeline goes
on writing. It is one state of the table if nothing in it is later than what the pipeline has recorded, and that was the
same before and after.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa

from walrelay.changes.shapes import match_held
from walrelay.decode.base import Tally
from walrelay.decode.retarget import retarget
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.client import ONE_BLOCK, Server
from walrelay.destinations.clickhouse.dialect import CLICKHOUSE, DIALECT, literal
from walrelay.destinations.clickhouse.facts import NOWHERE, Facts, Stored
from walrelay.destinations.clickhouse.identity import known_id
from walrelay.destinations.clickhouse.layout import DELETED, ROW, SIGN, VERSION, current, definitions, names, version
from walrelay.destinations.clickhouse.layout import row_hash as equal_rows
from walrelay.destinations.clickhouse.load import send
from walrelay.destinations.clickhouse.names import OWN, OwnNames
from walrelay.destinations.clickhouse.places import Held, Places
from walrelay.destinations.clickhouse.progress import Progress
from walrelay.destinations.clickhouse.row_text import printed, row_hash, text_of
from walrelay.destinations.clickhouse.values import Fit, Years, mark
from walrelay.destinations.verifying import Fingerprints, HashedRow, HeldTable, KeyRanges, RangeSum
from walrelay.errors import DestinationBusyError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.retyping import source_type
from walrelay.model.schema import Column, TableSchema

LOOK = f"{OWN}look_"
PATIENCE_SECONDS, POLL_SECONDS = 60.0, 0.05
_KEY, _HASH = "_key_hash", "_row_hash"
_REPAIRING = "putting rows right"
_LEFT_SECONDS = 3600
"""After which a clone was left by somebody who was killed."""


@dataclass(frozen=True, slots=True)
class _Clone:
    """A table at one moment."""

    facts: Facts
    """In which `storage` is the clone."""
    storage: str
    """What it is a clone of."""
    applied: Lsn | None
    latest: int
    """The greatest version in it."""


class ClickHouseLook:
    """Of one source's tables; `close` drops the clones."""

    def __init__(
        self, server: Server, context: DestinationContext, years: Years, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._server = server
        self._context = context
        self._years = years
        self._patience = patience
        self._clones: dict[TableId, _Clone] = {}

    def close(self) -> None:
        for clone in self._clones.values():
            self._drop(clone.facts.storage)
        self._clones.clear()
        database = literal(self._server.address.database)
        left = self._server.rows(
            f"SELECT name FROM system.tables WHERE database = {database} AND startsWith(name, {literal(LOOK)})"
            f" AND metadata_modification_time < now() - {_LEFT_SECONDS}"
        )
        for (name,) in left:
            self._drop(name.decode())

    def _drop(self, name: str) -> None:
        self._server.command(f"DROP TABLE IF EXISTS {self._server.place(name)} SYNC", doing="ending a look")

    def identity(self) -> str | None:
        return known_id(self._server)

    def copies(self) -> dict[TableId, Lsn | None]:
        places = self._places()
        found = {table: places.held(table) for table in places.ids()}
        return {table: held.facts.copied for table, held in found.items() if held is not None}

    def _places(self) -> Places:
        return Places(self._server, self._context, marks=True)

    def _progress(self) -> Progress:
        progress = Progress(self._server)
        progress.read()
        return progress

    # -------------------------------------------------------------------------------------------------- one state

    def held(self, schema: TableSchema) -> HeldTable | None:
        held = self._places().held(schema.id)
        if held is None:
            return HeldTable(NOWHERE, None, (), is_there=False) if self._is_left(schema.id) else None
        if not self._server.rows(f"EXISTS TABLE {self._server.place(held.facts.storage)}")[0][0]:
            return HeldTable(NOWHERE, held.facts.copied, (), is_there=False)
        clone = self._cloned(schema)
        return None if clone is None else HeldTable(clone.applied, clone.facts.copied, _odd(schema, clone.facts))

    def _is_left(self, table: TableId) -> bool:
        """Whether there is what is behind the table's view."""
        context = self._context
        own = OwnNames.of(context.pipeline_name or context.pipeline_id, context.source_id or "")
        database, begins = literal(self._server.address.database), literal(f"{own.prefix}{table}_")
        asked = f"SELECT 1 AS one FROM system.tables WHERE database = {database} AND startsWith(name, {begins}) LIMIT 1"
        return bool(self._server.rows(asked))

    def _cloned(self, schema: TableSchema) -> _Clone | None:
        begun, seen = time.monotonic(), set[Lsn | None]()
        while schema.id not in self._clones:
            held = self._places().held(schema.id)
            if held is None:
                return None
            before = self._progress().reached(held.facts.epoch)
            seen.add(before)
            found = self._try(held, before, schema)
            if found is not None:
                self._clones[schema.id] = found
            elif time.monotonic() > begun + self._patience:
                raise _untold(schema, self._patience, is_still=len(seen) == 1)
            else:
                time.sleep(POLL_SECONDS)
        return self._clones[schema.id]

    def _try(self, held: Held, before: Lsn | None, schema: TableSchema) -> _Clone | None:
        """A clone of the table as it is; None when somebody writes to it this moment."""
        server, facts = self._server, held.facts
        clone = replace(facts, storage=f"{LOOK}{uuid4().hex[:12]}")
        place, storage = server.place(clone.storage), server.place(facts.storage)
        doing = f"looking at {schema.name}"
        server.command(f"CREATE TABLE {place} AS {storage}", doing=doing)
        server.command(f"ALTER TABLE {place} ATTACH PARTITION tuple() FROM {storage}", doing=doing)
        (latest,) = server.rows(
            f"SELECT toUInt64(bitShiftRight(max({VERSION}), 64)) AS lsn, toString(max({VERSION})) FROM {place}"
        )
        again = self._places().held(schema.id)
        after = self._progress().reached(facts.epoch)
        # The position is an end; what is in it was committed before.
        is_still = before == after and again is not None and again.facts == facts
        if is_still and latest[0] < (before or Lsn(1)) and facts.since <= (before or Lsn(0)):
            return _Clone(clone, facts.storage, before, int(latest[1]))
        self._drop(clone.storage)
        return None

    # ------------------------------------------------------------------------------------------------------ hashing

    def fingerprint(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> Fingerprints:
        question = (
            f"SELECT bitShiftRight({_KEY}, {ranges.shift}) AS part, count() AS many, toString(sum(toInt128({_HASH})))"
            f" AS hashes FROM ({self._hashed(schema, key)}){_where(ranges)} GROUP BY part"
        )
        found = self._server.rows(question, doing=f"comparing {schema.name}")
        return {int(part): RangeSum(int(many), int(hashes)) for part, many, hashes in found}

    def rows(self, schema: TableSchema, key: tuple[Column, ...], ranges: KeyRanges) -> list[HashedRow]:
        pairs = self._pairs(schema, schema.columns)
        width = len(pairs)
        texts = [text_of(*pair) for pair in pairs] + [printed(*pair) for pair in pairs]
        wanted = [_KEY, _HASH, *(f"CAST({text}, 'Nullable(String)') AS t{n}" for n, text in enumerate(texts))]
        question = f"SELECT {', '.join(wanted)} FROM ({self._hashed(schema, key)}){_where(ranges)}"
        return [
            HashedRow(
                int(row[0]), int(row[1]), tuple(map(_text, row[2 : 2 + width])), tuple(map(_text, row[2 + width :]))
            )
            for row in self._server.rows(question, doing=f"comparing {schema.name}")
        ]

    def _hashed(self, schema: TableSchema, key: Sequence[Column]) -> str:
        facts = self._clones[schema.id].facts
        hashes = {_KEY: self._pairs(schema, key), _HASH: self._pairs(schema, schema.columns)}
        made = ", ".join(f"{row_hash(pairs)} AS {name}" for name, pairs in hashes.items())
        return f"SELECT {', '.join(names(facts))}, {made} FROM {current(self._server, facts)}"

    def _pairs(self, schema: TableSchema, columns: Sequence[Column]) -> list[tuple[Column, Stored]]:
        """The columns with those that they are here."""
        facts = self._clones[schema.id].facts
        held = {one.column.name: one.held.name for one in match_held(schema.columns, facts.held, DIALECT) if one.held}
        return [(column, facts.stored(held[column.name])) for column in columns]

    # ---------------------------------------------------------------------------------------------------- repairing

    def replace_rows(self, schema: TableSchema, key: tuple[Column, ...], keys: Collection[int], rows: pa.Table) -> int:
        """As changes after all that is in the table, and before all that comes: its next transaction is a later one."""
        found = self._clones[schema.id]
        clone, columns = found.facts, ", ".join(names(found.facts))
        with self._staged(schema, clone, rows) as stage:
            hashed = f"SELECT {columns}, {row_hash(self._pairs(schema, key))} AS {_KEY} FROM {stage}"
            come = f"({hashed}){_where(KeyRanges(0, keys=frozenset(keys)))}"
            came = self._server.rows(f"SELECT {_KEY} FROM {come}", doing=_REPAIRING)
            if clone.key:
                # What comes hides what was there.
                others = KeyRanges(0, keys=frozenset(keys) - {one for (one,) in came})
                place, own = f"toUInt128('{found.latest + 1}')", [VERSION, DELETED]
                gone = f"SELECT {columns}, {place}, 1 FROM ({self._hashed(schema, key)}){_where(others)}"
                put = f"SELECT {columns}, {place}, 0 FROM {come}"
            else:
                own, place = [ROW, VERSION, SIGN], self._place(found)
                gone = self._taken_back(schema, key, keys)
                put = f"SELECT {columns}, {equal_rows(clone)}, {place}, 1 FROM {come}"
            # Not where the view looks now: if that is elsewhere since, this is of no matter there.
            into = f"{self._server.place(found.storage)} ({', '.join([*names(clone), *own])})"
            self._server.command(f"INSERT INTO {into} {gone} UNION ALL {put}", ONE_BLOCK, doing=_REPAIRING)
        return len(came)

    def _taken_back(self, schema: TableSchema, key: tuple[Column, ...], keys: Collection[int]) -> str:
        """SQL for what takes all rows with these keys away from a table without one: by the number by which each is
        found, which is wrong in rows that somebody else has written."""
        found = self._clones[schema.id]
        columns, place = ", ".join([*names(found.facts), ROW]), self._server.place(found.facts.storage)
        counted = f"SELECT {columns}, sum({SIGN}) AS _count FROM {place} FINAL GROUP BY {columns} HAVING _count != 0"
        hashed = f"SELECT *, {row_hash(self._pairs(schema, key))} AS {_KEY} FROM ({counted})"
        each = f"SELECT * FROM ({hashed}) ARRAY JOIN range(toUInt64(abs(_count))) AS _nth"
        chosen = f"({each}){_where(KeyRanges(0, keys=frozenset(keys)))}"
        return f"SELECT {columns}, {self._place(found)}, -sign(_count) FROM {chosen}"

    def _place(self, found: _Clone) -> str:
        """SQL for a place of its own for each row, in the last transaction that is there."""
        drawn = (1 << 63) + random.getrandbits(62)
        return f"{version(str(int(found.applied or Lsn(1)) - 1), str(drawn))} + rowNumberInAllBlocks()"

    @contextmanager
    def _staged(self, schema: TableSchema, facts: Facts, rows: pa.Table) -> Iterator[str]:
        """Rows of the source, in a table of their own."""
        name = f"{LOOK}{uuid4().hex[:12]}"
        place, made = self._server.place(name), self._arrived(schema, facts, rows).combine_chunks()
        listed = ", ".join(definitions(facts))
        self._server.command(f"CREATE TABLE {place} ({listed}) ENGINE = MergeTree ORDER BY tuple()", doing=_REPAIRING)
        try:
            send(self._server, f"{place} ({', '.join(made.column_names)})", made.to_batches(), {}, _REPAIRING)
            yield place
        finally:
            self._drop(name)

    def _arrived(self, schema: TableSchema, facts: Facts, rows: pa.Table) -> pa.Table:
        """Rows of the source in the form in which the table takes them."""
        fit, made = Fit(self._years, self._context.settings.special_values), {}
        tally = Tally(CLICKHOUSE, self._context.settings.special_values)
        for (column, stored), array in zip(self._pairs(schema, schema.columns), rows.columns, strict=True):
            given = array.combine_chunks()
            given = given if isinstance(given, pa.Array) else pa.concat_arrays(given.chunks)
            given = given if column.as_text else retarget(given, column.type, tally)
            made[stored.name] = fit.column(given, column, schema)
            if stored.marked:
                made[stored.mark] = mark(made[stored.name])
        return pa.table({name: made[name] for name in names(facts)})


def _untold(schema: TableSchema, seconds: float, *, is_still: bool) -> DestinationBusyError:
    if is_still:
        return DestinationBusyError(
            f"{schema.name} has rows that are later than the pipeline has recorded, for {seconds:g} seconds: run the"
            " pipeline, which records them, or copy the table again, with `walrelay resync`",
            hint="Run the pipeline, which records them, and verify again; or `walrelay resync` the table.",
        )
    return DestinationBusyError(
        f"{schema.name} was written to without a pause for {seconds:g} seconds",
        hint="Run verify again, or while the pipeline is paused.",
    )


def _odd(schema: TableSchema, facts: Facts) -> tuple[str, ...]:
    found = []
    for one in match_held(schema.columns, facts.held, DIALECT):
        is_same = one.held is not None and one.held.type == one.type
        if not is_same or (one.held is not None and one.held.source_type not in ("", source_type(one.column.type))):
            found.append(one.column.name)
    return tuple(found)


def _where(ranges: KeyRanges) -> str:
    tests = []
    if ranges.chosen is not None:
        tests.append(f"bitShiftRight({_KEY}, {ranges.shift}) IN ({_numbers(ranges.chosen)})")
    if ranges.keys is not None:
        tests.append(f"{_KEY} IN ({_numbers(ranges.keys)})")
    if ranges.leaving_out:
        tests.append(f"{_KEY} NOT IN ({_numbers(ranges.leaving_out)})")
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _numbers(found: Collection[int]) -> str:
    return ", ".join(map(str, sorted(found))) or "NULL"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
