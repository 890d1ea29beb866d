"""Delta tables as a lake's format. The position reached is Delta's own application transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.changes.rows import LandedFile
from walrelay.changes.spark_dialect import DIALECT
from walrelay.config.settings import MiB
from walrelay.destinations.delta.actions import added, metadata, note, transaction
from walrelay.destinations.delta.shape import altered, fresh, widened
from walrelay.destinations.delta.table import USER_METADATA, DeltaFacts, DeltaTable, create, read_facts
from walrelay.destinations.lake.files import moved_into
from walrelay.destinations.lake.format import COPIED, KEY, SHAPE_LSN, Facts, Held, LakeFormat, Place, Reached
from walrelay.destinations.lake.names import directory_name
from walrelay.destinations.lake.sessions import set_for
from walrelay.model.names import TableName
from walrelay.model.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_WIDENING = "'delta.enableTypeWidening' = 'true'"
_MAINTAINED = {
    # As large as a copy's, and not a gigabyte: a MERGE that touches a row writes its whole file anew.
    "spark.databricks.delta.optimize.minFileSize": str(256 * MiB),
    "spark.databricks.delta.optimize.maxFileSize": str(256 * MiB),
    # The default is ten thousand tasks, each time, which take minutes to look at one directory.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # A key need not be among the columns for which files say bounds.
    "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled": "false",
}


class DeltaFormat(LakeFormat):
    """A directory for each schema, and one for each table in it. `properties` are given to those that are copied."""

    title = "Delta"
    dialect = DIALECT

    def __init__(self, root: Path, properties: Mapping[str, str] | None = None, *, cluster: bool = False) -> None:
        self._root = root
        self._cluster = cluster
        self._properties = dict(properties or {})

    def place(self, name: TableName) -> Place:
        return Place(directory_name(name.schema), directory_name(name.name))

    def places(self) -> Iterable[Place]:
        found = sorted(log.parent for log in self._root.glob("*/*/_delta_log"))
        return [Place(path.parent.name, path.name) for path in found]

    def shown(self, place: Place) -> str:
        return str(self._path(place))

    def sql_name(self, place: Place) -> str:
        return "delta." + DIALECT.quoted(str(self._path(place)))

    def _path(self, place: Place) -> Path:
        return self._root / place.schema / place.name

    def read(self, place: Place, app: str) -> DeltaFacts | None:
        return read_facts(self._path(place), app)

    def create(self, place: Place, schema: TableSchema, app: str, marks: Mapping[str, str]) -> None:
        fields, mapping = fresh(schema, None)
        self._first(
            place, metadata(None, fields, {**self._properties, **mapping, **marks}), [note("created", marks[SHAPE_LSN])]
        )

    def _first(self, place: Place, described: dict[str, Any], actions: Iterable[Mapping[str, Any]]) -> None:
        create(self._path(place), described, actions)

    def replace(
        self,
        spark: SparkSession,
        place: Place,
        schema: TableSchema,
        app: str,
        marks: Mapping[str, str],
        files: Iterable[LandedFile],
    ) -> None:
        path, facts = self._path(place), self.read(place, app)
        path.mkdir(parents=True, exist_ok=True)
        fields, mapping = fresh(schema, facts)
        described = metadata(facts, fields, {**self._properties, **mapping, **marks})
        actions = [added(moved_into(path, file)) for file in files]
        actions.append(transaction(app, 0))
        if facts is None:
            self._first(place, described, [*actions, note("copy", marks[COPIED])])
        else:
            DeltaTable(spark, path).commit(actions, metadata=described, replacing=True)

    def alter(self, spark: SparkSession, held: Held, schema: TableSchema, app: str, marks: Mapping[str, str]) -> None:
        table, name, facts = DeltaTable(spark, self._path(held.place)), self.sql_name(held.place), _delta(held.facts)
        for one in list(widened(schema, facts)):
            assert one.held is not None
            # Only now: from then on a reader must know of it.
            spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_WIDENING})")
            spark.sql(f"ALTER TABLE {name} ALTER COLUMN {DIALECT.quoted(one.held.name)} TYPE {one.type}")
            facts = _delta(self.read(held.place, app))
        fields, mapping = altered(schema, facts)
        table.commit([], metadata=metadata(facts, fields, {**facts.properties, **mapping, **marks}))

    def move(self, spark: SparkSession, old: Place, new: Place) -> None:
        source, target = self._path(old), self._path(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        for path in (source, target):
            self._told(spark, path)

    def _told(self, spark: SparkSession, path: Path) -> None:
        DeltaTable(spark, path).forget()

    def commit(self, spark: SparkSession, held: Held, reached: Reached, write: Callable[[], None]) -> None:
        """A replay makes no commit."""
        said = {"walrelay": "changes", "lsn": str(reached.lsn), "committed_at": reached.committed_at}
        settings = {_APP: reached.app, _VERSION: str(int(reached.lsn)), USER_METADATA: json.dumps(said)}
        with set_for(spark, settings):
            write()

    def maintain(self, spark: SparkSession, held: Held) -> None:
        """`VACUUM` keeps what the table says, by default a week: so long may a query read an old version."""
        name = self.sql_name(held.place)
        with set_for(spark, _MAINTAINED):
            spark.sql(f"OPTIMIZE {name}{self._order(held.facts)}")
            spark.sql(f"VACUUM {name}")

    def _order(self, facts: Facts) -> str:
        """Z-order is by the columns' names of now, and leaves nothing in the table that a rename would have to follow;
        Delta's own clustering would."""
        key = json.loads(facts.properties.get(KEY, "[]")) if self._cluster else []
        return f" ZORDER BY ({', '.join(DIALECT.quoted(name) for name in key)})" if key else ""

    def forget(self, spark: SparkSession, held: Held, app: str) -> None:
        DeltaTable(spark, self._path(held.place)).commit([transaction(app, 0)])


def _delta(facts: Facts | None) -> DeltaFacts:
    assert isinstance(facts, DeltaFacts), "it was there a moment ago"
    return facts
