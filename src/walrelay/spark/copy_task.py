"""What one Spark task does: read one range under the table's snapshot, decode it, land it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from walrelay.changes.rows import LandedFile
from walrelay.decode.base import Tally, Target
from walrelay.decode.table import TableDecoder
from walrelay.destinations.landing import Landing, landable
from walrelay.destinations.relaying import Relay
from walrelay.errors import SourceError
from walrelay.model.lsn import Lsn
from walrelay.model.ranges import CtidRange
from walrelay.model.schema import TableSchema
from walrelay.model.special import SpecialValues
from walrelay.postgres.connection import connect
from walrelay.postgres.copy import SentBytes, copy_rows
from walrelay.postgres.snapshot import import_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.shaping.plan import Plan
from walrelay.shaping.rows import ShapingDecoder


@dataclass(frozen=True)
class CopyTask:
    """All that the tasks of one table share. It travels pickled, never as an option: it holds the password."""

    source: PostgresSource
    schema: TableSchema
    snapshot: str
    target: Target
    special_values: SpecialValues
    chunk_bytes: int
    file_bytes: int
    application: str
    directory: str | None = None
    """Where files land; None to decode and drop."""
    keeps_files: bool = False
    """Whether they stay (`Capabilities.keeps_files`)."""
    relay: Relay | None = None
    """Takes the rows as the source sends them; then nothing lands."""
    plan: Plan | None = field(default=None, repr=False)
    """What is done to the rows before they land."""
    snapshot_lsn: Lsn | None = None


@dataclass
class RangeResult:
    """What became of one range."""

    files: list[LandedFile] = field(default_factory=list)
    rows: int = 0
    treated: dict[str, int] = field(default_factory=dict)
    """Special values treated by policy, by name."""


def range_batches(
    task: CopyTask, part: CtidRange, tally: Tally, *, keys: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The range as Arrow; each batch is good until the next is asked for. `keys` names the columns whose values no
    policy may treat."""
    connection = connect(task.source, application=task.application)
    try:
        import_snapshot(connection, task.snapshot)
        decoder: TableDecoder | ShapingDecoder
        if task.plan is None:
            asked, decoder = task.schema, TableDecoder(task.schema, tally, keys=keys)
        else:
            asked = task.plan.read
            decoder = ShapingDecoder(task.plan, tally, keys=keys, snapshot_lsn=task.snapshot_lsn)
        for rows in copy_rows(connection, asked, part, chunk_bytes=task.chunk_bytes):
            yield decoder.decode(rows)
    finally:
        connection.close()


def pass_range(task: CopyTask, part: CtidRange, relay: Relay) -> RangeResult:
    """Pass one range on to the destination, undecoded."""
    connection = connect(task.source, application=task.application)
    try:
        import_snapshot(connection, task.snapshot)
        sent = SentBytes(connection, task.schema, part, chunk_bytes=task.chunk_bytes)
        taken = relay.take(f"{part.leaf.id}:{part.first or 0}", sent)
    finally:
        connection.close()
    if taken != sent.rows:
        raise SourceError(
            f"{task.schema.name}: the source sent {sent.rows} rows of a range, the destination took {taken}",
            hint="Nothing of this copy was kept. `walrelay resync` copies the table again.",
        )
    return RangeResult(rows=taken)


def land_range(task: CopyTask, part: CtidRange) -> RangeResult:
    """Read, decode and land one range, or pass it on; leaves no file behind when it fails."""
    if task.relay is not None:
        assert task.plan is None, "bytes that are passed on cannot be shaped"
        return pass_range(task, part, task.relay)
    result = RangeResult()
    tally = Tally(task.target, task.special_values)
    landing: Landing | None = None
    try:
        for batch in range_batches(task, part, tally, keys=task.schema.key_columns):
            result.rows += batch.num_rows
            if task.directory is not None:
                rows = landable(batch)
                landing = landing or Landing(
                    task.directory, rows.schema, file_bytes=task.file_bytes, kept=task.keeps_files
                )
                landing.write(rows)
        if landing is not None:
            result.files = list(landing.files())
    except BaseException:
        if landing is not None:
            landing.abandon()
        raise
    result.treated = {special.name: count for special, count in tally.counts.items()}
    return result
