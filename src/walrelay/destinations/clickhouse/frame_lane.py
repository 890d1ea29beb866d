"""The frame lane: Spark collapses a table's changes and lands what they come to, which is then sent to ClickHouse."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from walrelay.changes.frame_latest import latest
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows, unsent_values
from walrelay.changes.spark_dialect import DIALECT
from walrelay.changes.spark_values import Holding, literal
from walrelay.changes.table_changes import TableChanges
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.collapsed import Collapsed
from walrelay.destinations.clickhouse.dialect import CLICKHOUSE
from walrelay.destinations.lake.failures import naming
from walrelay.destinations.lake.sessions import Sessions
from walrelay.log.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW = 200_000
"""So many changes are left in one file."""
READ_ROWS = 65_536


class FrameLane:
    """Of one run of a pipeline."""

    def __init__(self, context: DestinationContext, root: Path | None = None) -> None:
        self._context = context
        self._root = root
        self._sessions = Sessions(context, {})

    @contextmanager
    def collapsed(self, storage: Storage, part: TableChanges) -> Iterator[Collapsed]:
        """For as long as the files are there."""
        schema, special_values = part.schema, self._context.settings.special_values
        doing = f"collapsing changes up to {part.to} of"
        with tempfile.TemporaryDirectory(dir=self._root, prefix="walrelay-clickhouse-") as directory:
            place = Path(directory) / "changes"
            with self._sessions.session(f"{doing} {schema.name}") as spark, naming(schema.id, schema.name, doing):
                frames = TableFrames(spark, storage, part, Holding(CLICKHOUSE, special_values))
                survey = frames.survey
                if not survey.changes:
                    yield Collapsed()  # the files' changes are not of this batch
                    return
                if survey.unnamed:
                    raise unnamed_rows(schema, survey.unnamed)
                refuse_unheld(schema, survey.specials, special_values)
                found = _of_keys(frames) if frames.key else _of_rows(frames)
                if survey.changes <= FEW:
                    found = found.coalesce(1)
                found.write.parquet(str(place))
            files = sorted(place.glob("*.parquet"))
            yield Collapsed(
                survey.changes,
                survey.truncated_at is not None,
                takes_away=not frames.key and bool(survey.updates or survey.deletes),
                lacking=tuple(sorted(survey.unchanged)) if frames.key else (),
                treated=survey.treated,
                bytes=sum(_size(file) for file in files),
                batches=partial(_read, files),
            )


def _size(file: Path) -> int:
    """Of what is in it, when it is read."""
    metadata = pq.read_metadata(file)
    return sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))


def _read(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(READ_ROWS)


def _ordinal(frames: TableFrames, place: str) -> str:
    """A change's ordinal, from its place in the order of the batch (`FrameSurvey.place`)."""
    return f"CAST(({place} - 1) % {frames.survey.last_ordinal + 1} AS BIGINT) AS ordinal"


def _of_keys(frames: TableFrames) -> DataFrame:
    lacking = sorted(frames.survey.unchanged)
    # A row that comes or goes is at 2q + 1 or 2q; a BIGINT divided as a fraction would lose its last digits.
    half = "floor(s / 2)" if "DECIMAL" in frames.survey.place else "(s div 2)"
    columns = ["is_put", "lsn", _ordinal(frames, half)]
    columns += [f"k{i}" for i in frames.key] + [f"n{i}" for i in frames.width]
    if lacking:
        columns += [f"l{i}" for i in lacking] + ["came"]
        columns += [f"coalesce(origin.k{i}, k{i}) AS o{i}" for i in frames.key]
    return latest(frames).selectExpr(*columns)


def _of_rows(frames: TableFrames) -> DataFrame:
    survey, width = frames.survey, frames.width
    events = frames.events(width, width if survey.olds else ())
    _refuse_unsent(frames)
    place = ["commit_lsn AS lsn", _ordinal(frames, "q")]
    comes = events.where("op IN ('insert', 'update')")
    found = comes.selectExpr("CAST(1 AS TINYINT) AS sign", *place, *(f"n{i}" for i in width))
    if survey.olds:
        goes = events.where("op IN ('update', 'delete')")
        left = goes.selectExpr("CAST(-1 AS TINYINT) AS sign", *place, *(f"o{i} AS n{i}" for i in width))
        found = found.unionByName(left)
    return found


def _refuse_unsent(frames: TableFrames) -> None:
    """Without a key there is no looking for a value elsewhere than in the row as it was. A column that a shape did not
    have yet is none that was left out."""
    names = [frames.schema.columns[i].name for i in sorted(frames.survey.unchanged)]
    left_out = " OR ".join(
        f"(array_contains(`unchanged`, {literal(name)}) AND `old`.{DIALECT.quoted(name)} IS NULL)" for name in names
    )
    if not names:
        return
    unsent = f"coalesce(old_kind <> 'row', true) AND ({left_out})"
    if frames.changes().where(f"op IN ('insert', 'update') AND {unsent}").limit(1).count():
        raise unsent_values(frames.schema, names)
