"""Iceberg's own library in Spark's JVM: the catalog, and commits to its tables that no statement in SQL makes.

A copy adopts files that are there already together with a new schema; a change of columns renames, drops and adds at
once; a batch of changes becomes visible together with the position it reaches. Each is one of Iceberg's transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from walrelay.destinations.iceberg.needs import CATALOG
from walrelay.destinations.lake.format import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Catalog:
    """Of one Spark session, which is only used for this."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._gateway: Any = context._gateway
        spark.sql(f"SHOW NAMESPACES IN {CATALOG}")  # a statement loads the catalog with the session's own settings
        state: Any = spark._jsparkSession.sessionState()
        self._parser = state.sqlParser()
        self._catalog: Any = state.catalogManager().catalog(CATALOG).icebergCatalog()

    @property
    def iceberg(self) -> Any:
        """Its package of classes."""
        return self._jvm.org.apache.iceberg

    def strings(self, values: Mapping[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for name, value in values.items():
            made.put(name, value)
        return made

    def _identifier(self, place: Place) -> Any:
        names = self._gateway.new_array(self._jvm.java.lang.String, 2)
        names[0], names[1] = place.schema, place.name
        return self.iceberg.catalog.TableIdentifier.of(names)

    def _namespace(self, schema: str) -> Any:
        levels = self._gateway.new_array(self._jvm.java.lang.String, 1)
        levels[0] = schema
        return self.iceberg.catalog.Namespace.of(levels)

    def places(self) -> Iterable[Place]:
        for namespace in self._catalog.listNamespaces():
            if namespace.length() == 1:
                for found in self._catalog.listTables(namespace):
                    yield Place(namespace.level(0), found.name())

    def _ensure(self, schema: str) -> None:
        """That there is a namespace for it."""
        namespace = self._namespace(schema)
        if self._catalog.namespaceExists(namespace):
            return
        try:
            self._catalog.createNamespace(namespace, self.strings({}))
        except Py4JJavaError:
            # Another table's copy may have been quicker, of which each kind of catalog complains in its own way.
            if not self._catalog.namespaceExists(namespace):
                raise

    def load(self, place: Place) -> Any | None:
        """The table as it is now; None when there is none."""
        try:
            return self._catalog.loadTable(self._identifier(place))
        except Py4JJavaError as error:
            if _is(error, "NoSuchTableException"):
                return None
            raise

    def schema(self, ddl: str) -> Any:
        """Columns in Spark's words, as Iceberg has them."""
        return self.iceberg.spark.SparkSchemaUtil.convert(self._parser.parseTableSchema(ddl))

    def make(self, place: Place, schema: Any, properties: Mapping[str, str], location: str | None) -> Any:
        """A transaction that makes the table, or gives one that is there this schema and no rows."""
        self._ensure(place.schema)
        builder = self._catalog.buildTable(self._identifier(place), schema).withProperties(self.strings(properties))
        if location is not None:
            builder = builder.withLocation(location)
        return builder.createOrReplaceTransaction()

    def rename(self, old: Place, new: Place) -> None:
        self._ensure(new.schema)
        self._catalog.renameTable(self._identifier(old), self._identifier(new))


def _is(error: Py4JJavaError, name: str) -> bool:
    """Whether Iceberg has raised this."""
    return bool(error.java_exception.getClass().getName() == f"org.apache.iceberg.exceptions.{name}")
