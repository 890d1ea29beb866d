"""Puts rows into storage. What readers can see already gets them all at once; a table behind no view, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from walrelay.changes.refusals import unsent_values
from walrelay.config.settings import MiB
from walrelay.destinations.clickhouse.client import ONE_BLOCK, Server
from walrelay.destinations.clickhouse.facts import Facts
from walrelay.destinations.clickhouse.incoming import Incoming, structure
from walrelay.destinations.clickhouse.layout import DELETED, ROW, SIGN, VERSION, counted, names, row_hash, version
from walrelay.destinations.clickhouse.names import OwnNames
from walrelay.errors import CopyAgainError, DestinationError, MissingRowError, WalrelayError

BLOCK_BYTES = 256 * MiB
"""What a batch may come to, to be one block of an INSERT, which the server holds in memory."""


@dataclass(frozen=True)
class Load:
    """One table's part of a batch into one table behind a view. `visible`: readers see that table."""

    server: Server
    incoming: Incoming
    own: OwnNames
    visible: bool
    block_bytes: int = BLOCK_BYTES

    @property
    def _facts(self) -> Facts:
        return self.incoming.facts

    @property
    def _doing(self) -> str:
        return f"taking changes of {self.incoming.schema.name}"

    def run(self) -> None:
        collapsed, facts = self.incoming.collapsed, self._facts
        must_look = bool(collapsed.lacking) or (collapsed.takes_away and facts.copied is not None)
        if not must_look:
            self._into(lambda into: self._send(into, facts.key))
            return
        with self._stage() as stage:
            if facts.key:
                self._refuse_lacking(stage)
                self._into(lambda into: self._insert(into, self._filled(stage)))
            else:
                self._refuse_missing(stage)
                self._into(lambda into: self._insert(into, f"SELECT {self._columns(facts.key)} FROM {stage}"))

    # --------------------------------------------------------------------------------------------------- at once

    def _into(self, write: Callable[[str], None]) -> None:
        """Let `write` fill storage. As one block where that is small enough; else beside it, and then all of that in
        one step: parts of a table are attached to another together."""
        storage = self.server.place(self._facts.storage)
        if not self.visible or self.incoming.collapsed.bytes <= self.block_bytes:
            write(storage)
            return
        with dropped(self.server, self.own) as beside:
            self.server.command(f"CREATE TABLE {beside} AS {storage}", doing=self._doing)
            write(beside)
            self.server.command(f"ALTER TABLE {storage} ATTACH PARTITION tuple() FROM {beside}", doing=self._doing)

    @property
    def _settings(self) -> dict[str, object]:
        is_small = self.incoming.collapsed.bytes <= self.block_bytes
        return dict(ONE_BLOCK) if self.visible and is_small else {}

    def _columns(self, key: tuple[str, ...]) -> str:
        """What is inserted, of rows as they came."""
        listed = ", ".join(names(self._facts))
        place = version("lsn", "ordinal")
        return f"{listed}, {place}, {DELETED}" if key else f"{listed}, {row_hash(self._facts)}, {place}, {SIGN}"

    def _target(self, into: str) -> str:
        own = [VERSION, DELETED] if self._facts.key else [ROW, VERSION, SIGN]
        return f"{into} ({', '.join([*names(self._facts), *own])})"

    def _send(self, into: str, key: tuple[str, ...]) -> None:
        statement = f"{self._target(into)} SELECT {self._columns(key)} FROM {structure(*self.incoming.definitions())}"
        send(self.server, statement, self.incoming.batches(), self._settings, self._doing)

    def _insert(self, into: str, question: str) -> None:
        self.server.command(f"INSERT INTO {self._target(into)} {question}", self._settings, doing=self._doing)

    @contextmanager
    def _stage(self) -> Iterator[str]:
        """The changes as they came, in a table of their own."""
        with dropped(self.server, self.own) as stage:
            columns = self.incoming.definitions()
            self.server.command(
                f"CREATE TABLE {stage} ({', '.join(columns)}) ENGINE = MergeTree ORDER BY tuple()", doing=self._doing
            )
            listed = ", ".join(one.split(" ", 1)[0] for one in columns)
            send(self.server, f"{stage} ({listed})", self.incoming.batches(), {}, self._doing)
            yield stage

    # ------------------------------------------------------------------------------------- values that were not sent

    @property
    def _lacks(self) -> str:
        return f"({DELETED} = 0 AND ({' OR '.join(f'l{i}' for i in self.incoming.collapsed.lacking)}))"

    @property
    def _is_early(self) -> str:
        """What a copy does not have any more, a later change takes away again (SEMANTICS 8, standbys)."""
        copied = self._facts.copied
        return "false" if copied is None else f"(lsn <= {int(copied)})"

    def _joined(self, stage: str) -> str:
        """The changes, each that lacks values with the row that has them: `h` and the name of its column."""
        facts, incoming = self._facts, self.incoming
        key = [facts.stored(incoming.schema.columns[i].name).name for i in incoming.key]
        looked = [f"o{i}" for i in incoming.key]
        held = {name for i in incoming.collapsed.lacking for name in self._stored(i)}
        columns = ", ".join([*(f"{name} AS q{i}" for i, name in zip(incoming.key, key, strict=True)),
                             *(f"{name} AS h{name}" for name in sorted(held)), "1 AS found"])  # fmt: skip
        wanted = f"SELECT {', '.join(looked)} FROM {stage} WHERE {self._lacks} AND NOT came"
        there = f"SELECT {columns} FROM {self.server.place(facts.storage)} FINAL WHERE ({', '.join(key)}) IN ({wanted})"
        same = " AND ".join(f"s.o{i} = h.q{i}" for i in incoming.key)
        return f"{stage} AS s LEFT ANY JOIN ({there}) AS h ON {same}"

    def _stored(self, i: int) -> list[str]:
        one = self._facts.stored(self.incoming.schema.columns[i].name)
        return [one.name, one.mark] if one.marked else [one.name]

    def _refuse_lacking(self, stage: str) -> None:
        """A value that was not sent, and is nowhere else, is not NULL (SEMANTICS 14)."""
        schema, lacking = self.incoming.schema, self.incoming.collapsed.lacking
        unsent = [f"countIf({DELETED} = 0 AND came AND l{i} AND NOT {self._is_early})" for i in lacking]
        lost = f"countIf({self._lacks} AND NOT came AND found = 0 AND NOT {self._is_early})"
        (found,) = self.server.rows(
            f"SELECT {', '.join(f'{one} AS x{n}' for n, one in enumerate([lost, *unsent]))} FROM {self._joined(stage)}"
        )
        if names_ := [schema.columns[i].name for i, count in zip(lacking, found[1:], strict=True) if count]:
            raise unsent_values(schema, names_)
        if found[0] and self._facts.copied is not None:
            raise self._missing(found[0])

    def _missing(self, rows: int) -> WalrelayError:
        name = self.incoming.schema.name
        if any(one.held.added for one in self._facts.columns):
            return CopyAgainError(f"{name} has columns that came later, and rows in which their value is not known")
        return MissingRowError(f"{rows} rows that changes of {name} change or take away are not there")

    def _filled(self, stage: str) -> str:
        """The changes with what they lack taken from the rows that are there, all together."""
        facts = self._facts
        marks = {name: f"l{i}" for i in self.incoming.collapsed.lacking for name in self._stored(i)}
        columns = [
            f"if(s.{marks[name]} AND s.{DELETED} = 0, h.h{name}, s.{name}) AS {name}" if name in marks else f"s.{name}"
            for name in names(facts)
        ]
        unfounded = f"{self._lacks} AND found = 0 AND {self._is_early}"
        place = f"{version('s.lsn', 's.ordinal')}, s.{DELETED}"
        return f"SELECT {', '.join(columns)}, {place} FROM {self._joined(stage)} WHERE NOT ({unfounded})"

    # ----------------------------------------------------------------------------------------- tables without a key

    def _refuse_missing(self, stage: str) -> None:
        """Of a row that goes at least one must be there, with what this batch brings. What came before an attempt was
        interrupted is there already, and counts once."""
        facts = self._facts
        number = ROW if facts.hashed else row_hash(facts)
        columns = ", ".join([*names(facts), VERSION, SIGN])
        gone = f"SELECT {row_hash(facts)} FROM {stage} WHERE {SIGN} < 0"
        there = f"SELECT {columns} FROM {self.server.place(facts.storage)} FINAL WHERE {number} IN ({gone})"
        comes = f"SELECT {', '.join(names(facts))}, {version('lsn', 'ordinal')} AS {VERSION}, {SIGN} FROM {stage}"
        both = f"(SELECT DISTINCT {columns} FROM ({there} UNION ALL {comes} WHERE {row_hash(facts)} IN ({gone})))"
        rows = self.server.value(f"SELECT toInt64(-sum(_count)) FROM ({counted(facts, both)} HAVING _count < 0)")
        if rows:
            raise self._missing(rows)


def send(server: Server, into: str, batches: Iterable[pa.RecordBatch], settings: dict[str, object], doing: str) -> None:
    """What goes wrong while batches are made is told as it is."""
    failures: list[WalrelayError] = []
    held = iter(batches)

    def told() -> Iterator[pa.RecordBatch]:
        try:
            yield from held
        except WalrelayError as error:
            failures.append(error)
            raise

    first = next(held, None)
    if first is None:
        return

    def all_of_them() -> Iterator[pa.RecordBatch]:
        yield first
        yield from told()

    try:
        server.insert(into, all_of_them(), first.schema, settings, doing)
    except DestinationError as error:
        if failures:
            raise failures[0] from error
        raise


@contextmanager
def dropped(server: Server, own: OwnNames) -> Iterator[str]:
    """A name for a table that is gone afterwards."""
    name = server.place(own.stage())
    try:
        yield name
    finally:
        with suppress(WalrelayError):  # the next start sweeps
            server.command(f"DROP TABLE IF EXISTS {name}")
