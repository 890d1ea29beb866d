"""Iceberg tables as a lake's format. The position reached is a property of the table, set by the very commit that makes
the changes visible: Spark's statement stages them, and a transaction of ours publishes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from walrelay.changes.rows import LandedFile
from walrelay.destinations.iceberg.catalog import Catalog
from walrelay.destinations.iceberg.maintenance import KEEP_SNAPSHOTS, maintain
from walrelay.destinations.iceberg.needs import CATALOG, address
from walrelay.destinations.iceberg.shape import COLUMNS, ICEBERG, NAMES, alter, columns_ddl, fresh, held_of
from walrelay.destinations.lake.files import moved_into
from walrelay.destinations.lake.format import COPIED, Facts, Held, LakeFormat, Place, Reached
from walrelay.destinations.lake.names import directory_name
from walrelay.destinations.lake.sessions import set_for
from walrelay.errors import DestinationError
from walrelay.failpoints import hit
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP, LSN = "walrelay.app", "walrelay.lsn"
"""Whose progress it is, and how far; the latter also stands in the summary of each snapshot."""
_WAP, _SNAPSHOT_PROPERTY = "spark.wap.id", "spark.sql.iceberg.snapshot-property"
_TRIES = 5
"""To publish changes: who rewrites the table meanwhile, e.g. compacts it, makes them be staged again."""


@dataclass(frozen=True)
class TableOptions:
    """How tables are made and kept."""

    format_version: int
    properties: Mapping[str, str]
    keep_snapshots: timedelta = KEEP_SNAPSHOTS

    def all(self) -> dict[str, str]:
        mode = "merge-on-read"
        return {
            "format-version": str(self.format_version),
            "write.merge.mode": mode,
            "write.update.mode": mode,
            "write.delete.mode": mode,
            "write.wap.enabled": "true",
            # Each batch makes two; only the last ones are of use.
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "20",
            **self.properties,
        }


class IcebergFormat(LakeFormat):
    """A namespace for each schema. `root` is the directory of a catalog that is ours, None where a catalog decides."""

    title = "Iceberg"
    dialect = ICEBERG

    def __init__(
        self, catalog: Catalog, options: TableOptions, root: Path | None, session_settings: Mapping[str, str]
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._root = root
        self.session_settings = session_settings

    def place(self, name: TableName) -> Place:
        # A catalog would take a dot for the beginning of another namespace.
        return Place(directory_name(name.schema).replace(".", "~2E"), directory_name(name.name))

    def places(self) -> Iterable[Place]:
        return list(self._catalog.places())

    def shown(self, place: Place) -> str:
        return f"{place.schema}.{place.name}"

    def sql_name(self, place: Place) -> str:
        return ".".join(ICEBERG.quoted(one) for one in (CATALOG, place.schema, place.name))

    def read(self, place: Place, app: str) -> Facts | None:
        table = self._catalog.load(place)
        if table is None:
            return None
        properties = dict(table.properties())
        fields = [(field.fieldId(), field.name()) for field in table.schema().columns()]
        current = table.currentSnapshot()
        has_rows = current is not None and current.summary().get("total-records") != "0"
        said = properties.get(LSN) if properties.get(APP) == app else None
        applied = int(Lsn.parse(said)) if said else None
        return Facts(properties, held_of(fields, properties.get(COLUMNS)), applied, has_rows)

    def create(self, place: Place, schema: TableSchema, app: str, marks: Mapping[str, str]) -> None:
        transaction = self._made(place, schema)
        _set(transaction, {**fresh(self._catalog, transaction, schema), **marks, APP: app, LSN: ""})
        transaction.commitTransaction()

    def _made(self, place: Place, schema: TableSchema) -> Any:
        there = self._catalog.load(place)
        location = None if there is None else there.location()
        if there is None and self._root is not None:
            wanted = self._root / place.schema / place.name
            # A table that was renamed has left its files where they were.
            free = wanted.with_name(f"{place.name}-{uuid4().hex[:8]}") if wanted.exists() else wanted
            location = address(free)
        described = self._catalog.schema(columns_ddl(schema.columns))
        return self._catalog.make(place, described, self._options.all(), location)

    def replace(
        self,
        spark: SparkSession,
        place: Place,
        schema: TableSchema,
        app: str,
        marks: Mapping[str, str],
        files: Iterable[LandedFile],
    ) -> None:
        transaction = self._made(place, schema)
        said = fresh(self._catalog, transaction, schema)
        _set(transaction, {**said, **marks, APP: app, LSN: ""})
        table, iceberg = transaction.table(), self._catalog.iceberg
        names = iceberg.mapping.NameMappingParser.fromJson(said[NAMES])
        metrics = iceberg.MetricsConfig.forTable(table)
        append = transaction.newAppend()
        append.set("walrelay", "copy")
        append.set(LSN, marks[COPIED])
        for file in files:
            landed = table.io().newInputFile(self._own(table, file))
            counted = iceberg.parquet.ParquetUtil.fileMetrics(landed, metrics, names)
            builder = iceberg.DataFiles.builder(table.spec()).withInputFile(landed).withFormat("parquet")
            append.appendFile(builder.withMetrics(counted).build())
        append.commit()
        transaction.commitTransaction()

    def _own(self, table: Any, file: LandedFile) -> str:
        """The landed file, among the table's own; its address there."""
        place = urlsplit(table.locationProvider().newDataLocation(Path(file.path).name))
        if place.scheme not in ("", "file"):
            raise DestinationError(
                f"the catalog keeps its tables in {place.scheme}://, and copies into those are not there yet",
                hint="Give the catalog a warehouse in a local directory.",
            )
        directory = Path(place.path).parent
        directory.mkdir(parents=True, exist_ok=True)
        return address(moved_into(directory, file))

    def alter(self, spark: SparkSession, held: Held, schema: TableSchema, app: str, marks: Mapping[str, str]) -> None:
        transaction = self._loaded(held.place).newTransaction()
        columns = alter(self._catalog, transaction, schema, held.facts.columns)
        # Iceberg would let the mapping follow the names of the columns, and then look for older files' under new ones.
        _set(transaction, {**columns, **marks, NAMES: held.facts.properties[NAMES]})
        transaction.commitTransaction()

    def move(self, spark: SparkSession, old: Place, new: Place) -> None:
        self._catalog.rename(old, new)

    def commit(self, spark: SparkSession, held: Held, reached: Reached, write: Callable[[], None]) -> None:
        """A statement that was staged and not published is seen by nobody; the next one is made of what was there."""
        for attempt in range(_TRIES):
            staged = self._staged(spark, held, reached, write)
            hit("destination.staged")
            table = self._loaded(held.place)
            transaction = table.newTransaction()
            if staged is not None:
                if not _follows(table, staged) and attempt < _TRIES - 1:
                    continue
                transaction.manageSnapshots().cherrypick(staged.snapshotId()).commit()
            _set(transaction, {APP: reached.app, LSN: str(reached.lsn)})
            transaction.commitTransaction()
            return

    def _staged(self, spark: SparkSession, held: Held, reached: Reached, write: Callable[[], None]) -> Any | None:
        wap = uuid4().hex
        settings = {
            _WAP: wap,
            f"{_SNAPSHOT_PROPERTY}.{LSN}": str(reached.lsn),
            f"{_SNAPSHOT_PROPERTY}.walrelay.committed_at": reached.committed_at,
        }
        with set_for(spark, settings):
            write()
        snapshots = self._loaded(held.place).snapshots()
        return next((one for one in snapshots if one.summary().get("wap.id") == wap), None)

    def maintain(self, spark: SparkSession, held: Held) -> None:
        name = ".".join(ICEBERG.quoted(one) for one in (held.place.schema, held.place.name))
        maintain(spark, name, self._options.keep_snapshots)

    def forget(self, spark: SparkSession, held: Held, app: str) -> None:
        transaction = self._loaded(held.place).newTransaction()
        _set(transaction, {APP: app, LSN: ""})
        transaction.commitTransaction()

    def _loaded(self, place: Place) -> Any:
        table = self._catalog.load(place)
        if table is None:
            raise DestinationError(f"the table {self.shown(place)} has gone from the catalog")
        return table


def _set(transaction: Any, properties: Mapping[str, str]) -> None:
    update = transaction.updateProperties()
    for name, value in properties.items():
        update.set(name, value)
    update.commit()


def _follows(table: Any, snapshot: Any) -> bool:
    """Whether the snapshot was made from what the table is now."""
    current = table.currentSnapshot()
    return bool(snapshot.parentId() == (None if current is None else current.snapshotId()))
