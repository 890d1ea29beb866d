"""One Delta table: what it says of itself, and commits of ours to its log.

A copy adopts files that are there already, and a change of columns is one commit with all that changes: neither has a
statement in SQL. Both are made of the actions of Delta's protocol. A table's first commit is a file that nobody else
can have written; all later ones are made by Delta's own library in Spark, which knows what may not be committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walrelay.destinations.delta.shape import held_fields
from walrelay.destinations.lake.format import Facts
from walrelay.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE = "org.apache.spark.sql.delta"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
DELETION_VECTORS = "delta.enableDeletionVectors"
FILES_KEPT, LOG_KEPT = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_LOG = "_delta_log"
_FIRST = f"{0:020}.json"
Action = Mapping[str, Any]


@dataclass(frozen=True)
class DeltaFacts(Facts):
    """What a table's log says. `applied` is the version of our application transaction."""

    id: str
    schema: dict[str, Any]
    """As Spark writes a schema in JSON."""


def read_facts(path: Path, app: str) -> DeltaFacts | None:
    """None when there is no table. `app` is the application whose transaction is asked for."""
    if not (path / _LOG).is_dir():
        return None
    deltalake = deltalake_module()
    try:
        table = deltalake.DeltaTable(str(path))
    except deltalake.exceptions.TableNotFoundError:
        return None  # an attempt to make one has left an empty log
    metadata, schema = table.metadata(), json.loads(table.schema().to_json())
    return DeltaFacts(
        metadata.configuration,
        held_fields(schema["fields"]),
        table.transaction_version(app),
        bool(table.file_uris()),
        metadata.id,
        schema,
    )


def deltalake_module() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise MissingExtraError(
            "the Delta destination needs a package", hint="pip install 'walrelay[delta]'"
        ) from error
    return deltalake


def create(path: Path, metadata: Action, actions: Iterable[Action]) -> None:
    """A table's first commit. Raises FileExistsError where there is a table."""
    lines = [{"protocol": _protocol(metadata)}, {"metaData": metadata}, *actions]
    log = path / _LOG
    log.mkdir(parents=True, exist_ok=True)
    body = "\n".join(json.dumps(line) for line in lines) + "\n"
    new = log / f".{os.getpid()}.{_FIRST}.tmp"
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, log / _FIRST)
    finally:
        new.unlink(missing_ok=True)
    _sync(log)


def _protocol(metadata: Action) -> dict[str, Any]:
    """What a reader must know: that columns may have other names in the files, and, where there are some, local
    timestamps and rows that are only marked as deleted. By name and not by number: some readers take the older form, a
    number, and then look for the columns under the names that they have now."""
    features = ["columnMapping"]
    if '"timestamp_ntz"' in metadata["schemaString"]:
        features.append("timestampNtz")
    if metadata["configuration"].get(DELETION_VECTORS) == "true":
        features.append("deletionVectors")
    writing = [*features, "appendOnly", "invariants"]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": writing}


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class DeltaTable:
    """At a path, seen by a Spark session."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        self.path = path

    def forget(self) -> None:
        """What Spark knew of the path holds no more: a table was moved from there, or to there."""
        self._jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(
            self._spark._jsparkSession, self._jvm.org.apache.hadoop.fs.Path(str(self.path))
        )

    def commit(self, actions: Iterable[Action], *, metadata: Action | None = None, replacing: bool = False) -> None:
        """Make a version of these actions. `replacing`: every file that is there now is removed, and the columns have
        nothing to do with those before."""
        delta = self._jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(self._spark._jsparkSession, str(self.path))
        nothing = self._jvm.scala.Option.empty()
        transaction = log.startTransaction(nothing, nothing)
        made = self._jvm.java.util.ArrayList()
        if replacing:
            files = transaction.filterFiles().iterator()
            while files.hasNext():
                made.add(files.next().remove())
        if metadata is not None:
            described = delta.actions.Action.fromJson(json.dumps({"metaData": metadata}))
            if replacing:
                transaction.updateMetadataForTableOverwrite(described)
            else:
                transaction.updateMetadata(described, False)
        for action in actions:
            made.add(delta.actions.Action.fromJson(json.dumps(action)))
        sequence = self._jvm.scala.jdk.CollectionConverters.ListHasAsScala(made).asScala().toSeq()
        operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        transaction.commit(sequence, operation)
