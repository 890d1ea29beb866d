"""Tables in a directory of Delta tables: copies adopt the files that landed, changes are merged by Spark.

Each table's commit of changes carries the position reached, as Delta's own application transaction: a batch that comes
again makes no commit.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.changes.batch import EventBatch, TableEvents
from walrelay.changes.rows import TableRows
from walrelay.changes.spark_dialect import SPARK
from walrelay.changes.spark_values import Holding
from walrelay.decode.base import Target
from walrelay.destinations.base import DestinationContext, Identity, SimpleDestination, WriteResult
from walrelay.destinations.delta.apply import TableApplication, Taken
from walrelay.destinations.delta.needs import NEEDS
from walrelay.destinations.delta.shape import fresh
from walrelay.destinations.delta.table import DeltaTable, create, deltalake_module
from walrelay.destinations.delta.tables import Tables, metadata, note
from walrelay.destinations.lake.batching import LAKE_BATCHING
from walrelay.destinations.lake.failures import naming
from walrelay.destinations.lake.identity import lake_id
from walrelay.destinations.lake.names import refuse_twin_columns
from walrelay.destinations.lake.progress_file import ProgressFile
from walrelay.destinations.lake.sessions import Sessions
from walrelay.errors import DestinationError, OtherDestinationError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.schema import SchemaVersion, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = "_walrelay"
"""The lake's directory for what is ours."""
SIDE_BY_SIDE = 4
"""Tables that are written at the same time."""


class DeltaDestination(SimpleDestination):
    """A local directory of Delta tables, `schema/table` each, as Postgres calls them."""

    name = "delta"
    target: Target = SPARK
    lands_files = True
    takes_events = True
    materializes = True
    spark_needs = NEEDS
    batching = LAKE_BATCHING

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._started: _Started | None = None

    def startup(self, context: DestinationContext) -> None:
        deltalake_module()
        identity = lake_id(self.path / OWN)
        if context.expected is not None and context.expected.id != identity:
            raise OtherDestinationError(
                f"{self.path} is another lake than the one this pipeline writes to, {context.expected.place}",
                hint="Give that one; or a state of its own to this pipeline.",
            )
        self._started = _Started(self.path, identity, context)

    def shutdown(self) -> None:
        self._started = None

    @property
    def _run(self) -> _Started:
        assert self._started is not None, "startup() comes first"
        return self._started

    def identity(self) -> Identity | None:
        return None if self._started is None else Identity(self._started.id, str(self.path))

    def staging_root(self) -> Path | None:
        return self.path / OWN / "staging"

    def drop_table_for_copy(self, schema: TableSchema) -> None:
        """Forget what was applied; the copy replaces the table, and until then the old rows stay readable."""
        self._run.forget(schema)

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        """The landed files, in place of whatever was there, in one commit."""
        self._run.adopt(schema, rows)
        return WriteResult(durable=True, rows=rows.rows_total)

    def write_events(self, batch: EventBatch) -> WriteResult:
        """Each table's changes with the position reached, in one commit a table; several tables side by side."""
        run, parts = self._run, batch.tables()
        work: list[Callable[[], Taken]] = [partial(run.take, batch, part) for part in parts]
        work += [partial(run.show, shown) for shown in batch.shapes]
        done = _side_by_side(work)
        run.reached(batch)
        treated = {part.schema.id: one.treated for part, one in zip(parts, done, strict=False) if one.treated}
        return WriteResult(durable=True, rows=sum(one.changes for one in done), treated=treated)

    def applied_lsn(self, table: TableId | None) -> Lsn | None:
        """Up to where the table holds every change; None after a copy, until changes came. Of all tables together there
        is no word: each has its own."""
        return None if table is None else self._run.applied(table)


def _side_by_side(work: list[Callable[[], Taken]]) -> list[Taken]:
    """All of it, also when some fails; then what failed first is raised."""
    if len(work) == 1:
        return [work[0]()]
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="walrelay-delta") as pool:
        futures: list[Future[Taken]] = [pool.submit(one) for one in work]
    return [one.result() for one in futures]


class _Started:
    """A lake while it is written to. A table is written by one thread at a time."""

    def __init__(self, path: Path, id_: str, context: DestinationContext) -> None:
        self.id = id_
        self._context = context
        self._sessions = Sessions(context.spark)
        self._tables = Tables(path, context)
        self._progress = ProgressFile(path / OWN / f"progress-{context.pipeline_name or context.pipeline_id}.json")
        self._alone: dict[TableId, threading.Lock] = {}

    @contextmanager
    def _writing(self, schema: TableSchema, doing: str) -> Iterator[SparkSession]:
        description = f"walrelay {self._context.pipeline_id}: {doing} {schema.name}"
        with (
            self._alone.setdefault(schema.id, threading.Lock()),
            naming(schema, doing),
            self._sessions.session(description) as spark,
        ):
            yield spark

    def forget(self, schema: TableSchema) -> None:
        refuse_twin_columns(schema)
        self._tables.place(schema)
        self._tables.refuse_stranger(schema, copying=True)
        self._progress.forget(schema.id)
        held = self._tables.held(schema.id)
        if held is not None and held.facts.applied:
            with self._writing(schema, "preparing the copy of") as spark:
                DeltaTable(spark, held.path).commit([self._tables.transaction(schema.id, 0)])
                self._tables.reread(schema.id)

    def adopt(self, schema: TableSchema, rows: TableRows) -> None:
        refuse_twin_columns(schema)
        if not schema.columns:
            raise DestinationError(
                f"a Delta table has columns, and {schema.name} has none", hint="Leave it out of the publication."
            )
        with self._writing(schema, "copying") as spark:
            for path in self._tables.follow_name(schema):
                DeltaTable(spark, path).forget()
            self._tables.refuse_stranger(schema, copying=True)
            held, path = self._tables.held(schema.id), self._tables.place(schema)
            path.mkdir(parents=True, exist_ok=True)
            fields, mapping = fresh(schema, held.facts if held else None)
            copied = rows.snapshot_lsn or Lsn(0)
            properties = {**mapping, **self._tables.marks(schema, (copied, 0), copied)}
            described = metadata(held.facts if held else None, fields, properties)
            actions = [_add(path, file.path, file.rows) for file in rows.files]
            actions.append(self._tables.transaction(schema.id, 0))
            hit("destination.before_commit")
            if held is None:
                create(path, described, [*actions, note("copy", copied)])
            else:
                DeltaTable(spark, path).commit(actions, metadata=described, replacing=True)
            self._tables.made(schema.id, path)

    def take(self, batch: EventBatch, part: TableEvents) -> Taken:
        holding = Holding(SPARK, self._context.settings.special_values)
        with self._writing(part.schema, f"applying changes up to {part.to} to") as spark:
            return TableApplication(spark, self._tables).take(batch.log.storage, part, holding)

    def show(self, version: SchemaVersion) -> Taken:
        """A shape that no change has shown."""
        with self._writing(version.schema, "altering") as spark:
            TableApplication(spark, self._tables).follow([version])
        return Taken()

    def reached(self, batch: EventBatch) -> None:
        """Tables that took part and had no changes are as far."""
        own = {one.table: said for one in batch.ranges or () if (said := self._own_word(one.table)) is not None}
        self._progress.record({table: said for table, said in own.items() if said < batch.to}, batch.to)

    def applied(self, table: TableId) -> Lsn | None:
        own = self._own_word(table)
        return None if own is None else self._progress.reached(table, own)

    def _own_word(self, table: TableId) -> Lsn | None:
        """What the table itself says; 0 after a copy, None when it is not there."""
        held = self._tables.held(table)
        return None if held is None else Lsn(held.facts.applied or 0)


def _add(directory: Path, landed: str, rows: int) -> dict[str, Any]:
    """The landed file, moved into the table's directory, as the protocol names it."""
    target = directory / f"copy-{Path(landed).name}"
    try:
        Path(landed).replace(target)
    except OSError:
        shutil.copyfile(landed, target)  # another file system
    target.chmod(0o644)  # others may read the table; while it was landing, they might not
    found = target.stat()
    return {
        "add": {
            "path": target.name,
            "partitionValues": {},
            "size": found.st_size,
            "modificationTime": int(found.st_mtime * 1000),
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
        }
    }
