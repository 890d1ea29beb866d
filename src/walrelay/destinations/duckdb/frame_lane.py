"""The frame lane into DuckDB: Spark collapses a table's changes and lands what is left to do, in the log's own form."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from walrelay.changes.frame_events import left_to_do
from walrelay.changes.frames import TableFrames
from walrelay.changes.refusals import refuse_unheld, unnamed_rows
from walrelay.changes.shapes import match_held
from walrelay.changes.spark_values import Holding
from walrelay.changes.table_changes import TableChanges
from walrelay.decode.base import Target
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.dialect import DIALECT, DUCKDB
from walrelay.destinations.duckdb.landed import FRAME_SETTINGS, Landed
from walrelay.destinations.holdings import Shape
from walrelay.destinations.lake.failures import naming
from walrelay.destinations.lake.sessions import Sessions
from walrelay.log.storage import Storage
from walrelay.model.names import TableId
from walrelay.model.schema import TableSchema

FRAMES = Target("duckdb frames", DUCKDB.holds, uuid_as_text=True, time_as_text=True)
"""What Spark is asked for: uuid and time as text, which DuckDB casts; ±infinity as it is."""


class FrameLane:
    """Of one run of a pipeline; `root` is where files land."""

    def __init__(self, context: DestinationContext, root: Path) -> None:
        self._context = context
        self._root = root
        self._sessions = Sessions(context, FRAME_SETTINGS)

    @contextmanager
    def landed(self, storage: Storage, parts: list[TableChanges], shapes: Mapping[TableId, Shape]) -> Iterator[Landed]:
        """For as long as the files are there."""
        self._root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._root, prefix="frames-") as directory:
            made = Landed()
            for part in parts:
                self._land(storage, part, shapes.get(part.schema.id), Path(directory), made)
            yield made

    def _land(self, storage: Storage, part: TableChanges, shape: Shape | None, directory: Path, made: Landed) -> None:
        for number, files in groupby(part.files, key=lambda pair: pair[0].version):
            chosen = tuple(files)
            schema = chosen[0][0].schema
            if not schema.columns or _holds_more(shape, schema):
                continue  # DuckDB's own SQL knows what to do
            doing = f"collapsing changes up to {part.to} of"
            with self._sessions.session(f"{doing} {schema.name}") as spark, naming(schema.id, schema.name, doing):
                run = replace(part, schema=schema, files=chosen)
                frames = TableFrames(spark, storage, run, Holding(FRAMES, self._context.settings.special_values))
                survey = frames.survey
                if survey.moved_lacking:
                    continue  # rows are followed through keys that others have meanwhile: by DuckDB, in their order
                if survey.unnamed:
                    raise unnamed_rows(schema, survey.unnamed)
                refuse_unheld(schema, survey.specials, self._context.settings.special_values)
                place = directory / f"{schema.id}-{number}"
                left_to_do(frames).write.parquet(str(place))
            made.runs[schema.id, number] = place
            made.changes[schema.id, number] = survey.changes
            if survey.treated:
                made.treated.setdefault(schema.id, Counter()).update(survey.treated)


def _holds_more(shape: Shape | None, schema: TableSchema) -> bool:
    """Whether the table has columns that these changes do not know: their updates leave those alone."""
    if shape is None:
        return False
    known = {one.held.name for one in match_held(schema.columns, shape.columns, DIALECT) if one.held is not None}
    return any(one.name not in known for one in shape.columns)
