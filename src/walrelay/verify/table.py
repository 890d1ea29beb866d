"""One table: the source's rows under a snapshot against the destination's at its position, exactly.

`source at the snapshot + what the log holds between = destination`, by sums over ranges of keys first; the rows of
those ranges that differ are then compared one by one. What nobody can tell at one moment (a row that the destination
has not got yet) is left out on both sides, and looked at again under a later snapshot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from walrelay.destinations.base import DestinationContext
from walrelay.destinations.row_text import can_write
from walrelay.destinations.verifying import Fingerprints, HoldsLess, KeyRanges, Look, RangeSum, Verifiable
from walrelay.errors import WalrelayError
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.phases import Errored, Ready, SyncDone
from walrelay.model.schema import Column
from walrelay.postgres.catalog import PublishedTable, read_schema, storage_of
from walrelay.postgres.slot import inserted_lsn
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.stores.base import PipelineStore
from walrelay.stores.facts import SHAPED
from walrelay.verify.coverage import log_reaches
from walrelay.verify.gap import Gap, read_gap
from walrelay.verify.report import Difference, TableResult
from walrelay.verify.rows import compare_rows
from walrelay.verify.source_table import SourceTable
from walrelay.workers.wishes import is_running

T = TypeVar("T")
ROUNDS = 6
"""How often what could not be told is looked at again."""
REPAIRS = 20
MOST_DIFFERENCES = 10_000
"""So many are told, and put right at a time."""
ROWS_AT_ONCE = 50_000
"""Of the ranges that differ, in one look."""
RANGE_ROWS, MOST_BITS = 32, 16
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Sides:
    """What is compared, and how patiently."""

    source: PostgresSource
    destination: Verifiable
    context: DestinationContext
    log: LogReader
    store: PipelineStore
    copies: dict[TableId, Lsn | None]
    """The copy of each table that a look has found, after which its phase was asked for: it has caught up."""
    leaves_out: tuple[str, ...] = ()
    """What the publication does not send: `updates`, …"""
    patience: float = 30.0
    """Seconds to wait for the destination to have what the snapshot sees."""
    log_patience: float = 60.0
    """The same for the log."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held while the destination is looked at: who writes to it gets in between two looks."""


class UntoldError(Exception):
    """Nothing of the table can be told; `now` when it may be otherwise in a moment."""

    def __init__(self, reason: str, *, now: bool = False, differs: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.now = now
        self.differs = differs


@dataclass
class _Findings:
    """What the rounds have found."""

    rows: int = 0
    ranges: int = 0
    differing_ranges: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    more: bool = False
    treated: int = 0
    not_compared: tuple[str, ...] = ()
    snapshot_lsn: Lsn | None = None
    applied: Lsn | None = None
    repaired: int = 0
    is_covered: bool = True
    left: frozenset[int] | None = None
    """Keys that could not be told yet; None is the whole table."""


def verify_table(sides: Sides, table: PublishedTable, *, repair: bool) -> TableResult:
    """Compare, and with `repair` bring what differs and compare again."""
    begun = time.monotonic()
    result = _verified(sides, table, repair)
    first, repaired = result, result.repaired
    for _ in range(REPAIRS):
        if not (repair and result.status == "different" and result.repaired):
            break
        result = _verified(sides, table, repair)
        repaired += result.repaired
    if first is not result:
        result = replace(
            result,
            differing_ranges=first.differing_ranges,
            differences=first.differences if result.status == "equal" else result.differences,
            more=first.more,
            repaired=repaired,
        )
    return replace(result, seconds=time.monotonic() - begun)


def _verified(sides: Sides, table: PublishedTable, repair: bool) -> TableResult:
    found = _Findings()
    reason, differs = None, False
    for last in (*[False] * (ROUNDS - 1), True):
        try:
            _Round(sides, table, found, last).run(repair)
            reason = None
        except UntoldError as untold:
            reason, differs = untold.reason, untold.differs
            if not untold.now:
                break
            time.sleep(POLL_SECONDS)
        except WalrelayError as error:
            reason = error.message
            break
        if reason is None and not found.left:
            break
    if reason is None and found.left:
        reason = f"{len(found.left):,} rows changed too often, or are not in the destination yet"
    return _result(table, found, reason, differs, sides)


def _result(table: PublishedTable, found: _Findings, reason: str | None, differs: bool, sides: Sides) -> TableResult:
    status = "different" if differs or found.differences else "unknown" if reason is not None else "equal"
    if found.differences and not found.is_covered:
        status, reason = "unknown", "rows differ, but the log does not hold all that the source does: run the pipeline"
    elif found.differences and sides.leaves_out:
        status = "unknown"
        reason = f"rows differ, and the publication does not send {', '.join(sides.leaves_out)}"
    return TableResult(
        table.name,
        status,  # type: ignore[arg-type]
        reason,
        found.rows,
        found.ranges,
        tuple(found.differing_ranges),
        tuple(found.differences),
        found.more,
        found.treated,
        found.not_compared,
        None if found.snapshot_lsn is None else str(found.snapshot_lsn),
        None if found.applied is None else str(found.applied),
        found.repaired,
    )


class _Round:
    """One snapshot of the source."""

    def __init__(self, sides: Sides, table: PublishedTable, found: _Findings, is_last: bool) -> None:
        self._sides = sides
        self._table = table
        self._found = found
        self._is_last = is_last
        self._visible = ""

    def run(self, repair: bool) -> None:
        sides, table, found = self._sides, self._table, self._found
        self._check_shaped()
        self._check_phase()
        with exported_snapshot(sides.source, application="walrelay verify", table=table.name) as snapshot:
            if snapshot.replayed is not None:
                raise UntoldError("the source is a standby, whose snapshots do not name the transactions they see")
            connection = snapshot.connection
            connection.execute("SET LOCAL jit = off")
            settings = sides.context.settings
            schema = read_schema(connection, table, settings.unknown_types, publication=sides.source.publication)
            unheld = sides.destination.unheld if isinstance(sides.destination, HoldsLess) else _nothing
            self._source = SourceTable(connection, schema, unheld)
            self._visible = snapshot.visible
            found.snapshot_lsn = snapshot.lsn
            found.not_compared = tuple(c.name for c in schema.columns if not (c.as_text or can_write(c.type)))
            wanted = inserted_lsn(connection)
            found.is_covered = log_reaches(
                sides.log, sides.source, wanted, sides.log_patience, lambda: is_running(sides.store)
            )
            bits = _bits(storage_of(connection, [table.id])[table.id].rows_estimate)
            before = len(found.differences)
            self._compare(KeyRanges(bits, keys=found.left))
            fresh = found.differences[before:]
            if repair and fresh and found.is_covered and not sides.leaves_out:
                self._repair({one.key_hash for one in fresh})

    # ------------------------------------------------------------------------------------------------------ comparing

    def _compare(self, ranges: KeyRanges) -> None:
        found, source = self._found, self._source
        with ThreadPoolExecutor(1, thread_name_prefix="walrelay-verify-source") as beside:

            def ask(look: Look, gap: Gap) -> tuple[Gap, Fingerprints, Future[tuple[Fingerprints, int]]]:
                asked = beside.submit(source.fingerprint, _there(ranges, gap))  # both sides at the same time
                return gap, look.fingerprint(source.schema, source.key, _here(ranges, gap)), asked

            gap, here, asked = self._looked(ask)
            there, treated = asked.result()
        there = _with_told(there, gap, ranges)
        left = {key for key in gap.pending if ranges.keys is None or key in ranges.keys}
        if ranges.keys is None:
            found.rows, found.ranges, found.treated = sum(one.rows for one in there.values()), 1 << ranges.bits, treated
        nothing = RangeSum()
        differing = sorted(
            one for one in there.keys() | here.keys() if there.get(one, nothing) != here.get(one, nothing)
        )
        for chosen in _groups(differing, there, here):
            if len(found.differences) >= MOST_DIFFERENCES:
                found.more = True
                break
            left |= self._compare_rows(replace(ranges, chosen=chosen))
        found.left = frozenset(left)

    def _compare_rows(self, ranges: KeyRanges) -> set[int]:
        """Those of the ranges that differ, row by row; the keys that could not be told."""
        found, source = self._found, self._source
        schema, key = source.schema, source.key
        gap, here = self._looked(lambda look, gap: (gap, look.rows(schema, key, _here(ranges, gap))))
        there = source.rows(_there(ranges, gap))
        asked = _here(ranges, gap)
        compared = compare_rows(schema.columns, key if source.has_key else (), there, here, gap, asked, self._is_last)
        if ranges.keys is not None:  # else the source has counted all of them already
            found.treated += compared.treated
        hashes = {ranges.range_of(one.key_hash) for one in compared.differences}
        found.differing_ranges += [f"{one:0{ranges.bits // 4 + 1}x} of {1 << ranges.bits}" for one in sorted(hashes)]
        found.differences += compared.differences
        inside = {one for one in gap.pending if replace(ranges, leaving_out=frozenset()).asks_for(one)}
        return compared.suspects | inside

    def _looked(self, ask: Callable[[Look, Gap], T], *, writing: bool = False) -> T:
        """Ask the destination at a moment at which it has all that the snapshot sees, or when patience is over.

        A copy counts once the table's phase was asked for after it was seen: while it catches up, its position says
        nothing about what it holds.
        """
        copies, table = self._sides.copies, self._table.id
        deadline = time.monotonic() + self._sides.patience
        while True:
            with self._sides.turn, self._sides.destination.looking(self._sides.context, writing=writing) as look:
                copied, applied = self._position(look)
                is_known = table in copies and copies[table] == copied
                if is_known:
                    gap = self._gap(applied)
                    if not gap.behind or time.monotonic() > deadline:
                        if gap.trouble is not None:
                            raise UntoldError(gap.trouble, now=True)
                        self._found.applied = applied
                        return ask(look, gap)
            self._check_phase()
            copies[table] = copied
            if is_known:
                time.sleep(POLL_SECONDS)

    def _position(self, look: Look) -> tuple[Lsn | None, Lsn]:
        held = look.held(self._source.schema)
        if held is None or held.applied is None:
            raise UntoldError("the destination is being given a copy of it", now=True)
        if not held.is_there:
            raise UntoldError("the destination has lost it: `walrelay resync` copies it again", differs=True)
        if held.odd_columns:
            raise UntoldError(f"the destination has not followed yet in: {', '.join(held.odd_columns)}", now=True)
        return held.copied, held.applied

    def _gap(self, applied: Lsn) -> Gap:
        source, log = self._source, self._sides.log
        if applied < log.start():
            raise UntoldError(f"the destination is at {applied}, but the log begins at {log.start()}")
        key = source.key if source.has_key else ()
        return read_gap(log, source.schema, key, self._visible, applied, max(log.end(), applied))

    def _check_shaped(self) -> None:
        """A table whose rows are other ones at the destination is not compared, and above all not repaired."""
        shaped = self._sides.store.get_facts(SHAPED).get(self._table.id)
        if shaped is not None and shaped["fingerprint"]:
            options = ", ".join(shaped["options"])
            raise UntoldError(f"it could not be compared: by its options ({options}) the destination holds other rows")

    def _check_phase(self) -> None:
        store = self._sides.store
        store.load_table_replication_states()
        phase = store.get_table_replication_state(self._table.id)
        if isinstance(phase, Errored):
            raise UntoldError(f"it is in error: {phase.reason}")
        if not isinstance(phase, Ready | SyncDone):
            raise UntoldError("it is not copied yet" if phase is None else "its copy has not caught up yet")

    # ------------------------------------------------------------------------------------------------------ repairing

    def _repair(self, keys: set[int]) -> None:
        """Bring the source's rows, of keys that nothing between the snapshot and the destination touches: then they are
        what the destination must hold at its own position, which stays as it is."""
        source = self._source
        target = self._sides.destination.dialect.target
        rows = source.copied(keys, self._sides.context.settings.special_values, target)

        def put(look: Look, gap: Gap) -> int:
            touched = gap.told | gap.pending | {key for (key, _), count in gap.rows.items() if count}
            chosen = keys - touched
            look.replace_rows(source.schema, source.key, chosen, rows)
            return len(chosen)

        self._found.repaired += self._looked(put, writing=True)


def _nothing(_: Column) -> None:
    return None


def _bits(rows: int) -> int:
    """So that a range has some rows: to look at one then costs little."""
    return min(max(rows // RANGE_ROWS, 1).bit_length(), MOST_BITS)


def _here(ranges: KeyRanges, gap: Gap) -> KeyRanges:
    return replace(ranges, leaving_out=frozenset(gap.pending))


def _there(ranges: KeyRanges, gap: Gap) -> KeyRanges:
    return replace(ranges, leaving_out=frozenset(gap.pending | gap.told))


def _with_told(sums: Fingerprints, gap: Gap, ranges: KeyRanges) -> dict[int, RangeSum]:
    """The source's sums with what the log tells."""
    made, asked = dict(sums), _here(ranges, gap)
    for (key, row), count in gap.rows.items():
        if asked.asks_for(key):
            made[ranges.range_of(key)] = made.get(ranges.range_of(key), RangeSum()).plus(count, row)
    return made


def _groups(differing: list[int], there: Fingerprints, here: Fingerprints) -> Iterator[tuple[int, ...]]:
    """The ranges in groups of bounded size."""
    group: list[int] = []
    size, nothing = 0, RangeSum()
    for one in differing:
        rows = max(there.get(one, nothing).rows, here.get(one, nothing).rows)
        if group and size + rows > ROWS_AT_ONCE:
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += rows
    if group:
        yield tuple(group)
