"""Where a copy that was read from a standby ends, and its changes begin (SEMANTICS 8)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from walrelay.errors import UncertainCutError
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.schema import TableSchema
from walrelay.postgres.slot import PAGE_HEADER
from walrelay.postgres.snapshot import Replayed, Snapshot, settled_lsn


@dataclass(frozen=True, slots=True)
class StandbyCut:
    """What a copy from a standby has seen."""

    schema: TableSchema
    replayed: Replayed
    settled: Lsn | None
    """All that it may have seen ends at or before this; None when that could not be told."""


def standby_cut(schema: TableSchema, snapshot: Snapshot) -> StandbyCut | None:
    """Asked at the end of the copy, while the snapshot is held; None on a primary."""
    return None if snapshot.replayed is None else StandbyCut(schema, snapshot.replayed, settled_lsn(snapshot))


def position_of(cut: StandbyCut, log: LogReader, *, upserts: bool) -> Lsn:
    """Behind this position every change belongs to the table. The log must have come as far as `settled`.

    In doubt is what ends behind `after` with a commit record that starts at or before `upto`: whether the copy has it,
    nobody knows. Mostly this table has no change there, and the cut is exact. If it has, rows that are found by their
    key end up right when they are written again; others would be there twice. Values that a change leaves out may have
    to be taken from a row that the copy no longer has, so such changes cannot be repeated either.
    """
    doubtful = _doubtful(cut, log)
    repeatable = upserts and _is_keyed(cut.schema)
    if cut.settled is None and not repeatable:
        raise _uncertain(cut, "what the standby replayed while the copy began is not known")
    if doubtful and not (repeatable and all(one.column("unchanged").null_count == len(one) for one in doubtful)):
        raise _uncertain(cut, "a transaction that changes it was replayed while its copy began")
    return cut.replayed.after


def _doubtful(cut: StandbyCut, log: LogReader) -> list[pa.RecordBatch]:
    # The next record may start behind the header of a page.
    last = int(cut.replayed.upto) + PAGE_HEADER
    found = []
    for one in log.batches(cut.replayed.after, None, {cut.schema.id}):
        batch = one.batch.filter(pc.less_equal(one.batch.column("commit_lsn"), last))
        if batch.num_rows:
            found.append(batch)
        if batch.num_rows < one.batch.num_rows:
            break  # they come in order
    return found


def _is_keyed(schema: TableSchema) -> bool:
    """Whether rows are told apart by a key, which updates and deletes name."""
    if schema.identity in ("default", "index"):
        return bool(schema.identity_columns)
    return schema.identity == "full" and bool(schema.primary_key)


def _uncertain(cut: StandbyCut, why: str) -> UncertainCutError:
    name = str(cut.schema.name)
    return UncertainCutError(f"the copy of {name} cannot be joined with its changes: {why}", context={"table": name})
