"""What is done when a table's columns or key were altered, and its options say something else than to follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from walrelay.changes.batch import EventBatch
from walrelay.errors import CopyAgainError
from walrelay.log.manifest import Entry
from walrelay.model.retyping import source_type
from walrelay.model.schema import SchemaVersion, TableSchema
from walrelay.shaping.failures import SchemaChangedError
from walrelay.shaping.shaping import Shaping
from walrelay.stores.base import SchemaStore


def check_schema_changes(shaping: Shaping, store: SchemaStore, batch: EventBatch, entries: Iterable[Entry]) -> None:
    """Raises for a table of the batch that was altered since its rows came, where that is not to be followed. Before
    the store learns the batch's shapes."""
    if not shaping:
        return
    for version in _versions(batch, entries):
        schema = version.schema
        policy = shaping.options(schema.name).on_schema_change
        if policy in (None, "follow") or not shaping.includes(schema):
            continue
        known = store.get_table_schema(schema.id, batch.to)
        if known is None or version.from_lsn <= known.snapshot_lsn or version.from_lsn >= batch.to:
            continue
        if _shape(shaping.shaped(known.schema)) == _shape(shaping.shaped(schema)):
            continue
        context = {"table": str(schema.name), "table_id": schema.id}
        if policy == "copy":
            raise CopyAgainError(f"{schema.name} was altered, and on_schema_change is copy", context=context)
        raise SchemaChangedError(f"{schema.name} was altered, and on_schema_change is error", context=context)


def _versions(batch: EventBatch, entries: Iterable[Entry]) -> Iterator[SchemaVersion]:
    taking = None if batch.ranges is None else {one.table for one in batch.ranges}
    files = (file for entry in entries for file in entry.files)
    found = {(file.table, file.version) for file in files if file.table is not None}
    for table, number in sorted(found):
        if taking is None or table in taking:
            yield batch.log.version(table, number)


def _shape(schema: TableSchema) -> tuple[object, ...]:
    return (tuple((one.name, source_type(one.type)) for one in schema.columns), schema.key_columns)
