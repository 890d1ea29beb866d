"""A batch of changes as the destination is to see it: with tables shaped, and without those that are left out."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from walrelay.changes.batch import EventBatch
from walrelay.destinations.staging import staging_failure
from walrelay.log.failures import LogDamagedError
from walrelay.log.manifest import Entry
from walrelay.log.reader import ATTEMPTS
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion
from walrelay.model.special import Special
from walrelay.shaping.changes import shaped_changes
from walrelay.shaping.function_log import functions_applied
from walrelay.shaping.plan import Plan
from walrelay.shaping.shaping import Shaping
from walrelay.shaping.small_log import SmallLog, files_of


@dataclass(frozen=True)
class ShapedBatch:
    """What the destination is given."""

    batch: EventBatch
    directory: Path | None = None
    """Where its files are, when it has files of its own: until the destination has what is in them."""
    names: Mapping[TableId, TableName] = field(default_factory=dict)
    """What the destination calls the tables in it."""
    treated: Mapping[TableId, Counter[Special]] = field(default_factory=dict)
    """Values that were treated by policy on the way."""

    def forget(self) -> None:
        """The destination has what it needs."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def shaped_batch(shaping: Shaping, batch: EventBatch, directory: Path) -> ShapedBatch:
    """The batch as the destination is to see it; the same one, where no table in it is shaped."""
    shown = tuple(replace(one, schema=shaping.shaped(one.schema)) for one in batch.shapes if _arrives(shaping, one))
    for attempt in range(ATTEMPTS):
        try:
            entries = batch.entries()
            if not _concerns(shaping, batch, entries) and shown == batch.shapes:
                return ShapedBatch(batch)
            names: dict[TableId, TableName] = {}
            made = _planned(shaping, batch, entries, directory / "planned", names)
            treated: dict[TableId, Counter[Special]] = {}
            if shaping.transforms:
                made = functions_applied(shaping, made, directory / "applied", treated)
            return ShapedBatch(replace(made, shapes=shown), directory, names, treated)
        except FileNotFoundError as error:
            # Compaction has replaced a file meanwhile.
            shutil.rmtree(directory, ignore_errors=True)
            if attempt == ATTEMPTS - 1:
                raise LogDamagedError("a file of the log is missing") from error
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise staging_failure(error, directory) from error
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    raise AssertionError("unreachable")


def _arrives(shaping: Shaping, version: SchemaVersion) -> bool:
    return shaping.includes(version.schema)


def _concerns(shaping: Shaping, batch: EventBatch, entries: list[Entry]) -> bool:
    versions = {(file.table, file.version) for file in files_of(batch, entries)}
    schemas = [batch.log.version(table, number).schema for table, number in versions if table is not None]
    return any(not shaping.includes(one) or shaping.alters(one) for one in schemas)


def _planned(
    shaping: Shaping, batch: EventBatch, entries: list[Entry], directory: Path, names: dict[TableId, TableName]
) -> EventBatch:
    """With the options applied. Changes of tables that have none are linked as they are, where they are local."""
    small, plans = SmallLog(batch, entries, directory, names), dict[tuple[TableId, int], Plan | None]()
    rewritten, linked = set[TableId](), []
    for file in small.files():
        assert file.table is not None
        version, key = batch.log.version(file.table, file.version), (file.table, file.version)
        if not shaping.includes(version.schema):
            continue
        if key not in plans:
            plan = plans[key] = shaping.plan(version.schema)
            small.knows(version if plan is None else replace(version, schema=plan.shaped))
        linked.append(file)
        if plans[key] is not None or not batch.log.storage.local:
            rewritten.add(file.table)
    for file in linked:
        if file.table not in rewritten:
            small.link(file)
    try:
        for one in small.part(rewritten).batches() if rewritten else ():
            plan = plans[one.version.schema.id, one.version.version]
            if plan is None:
                small.add(one.version, one.batch)
            else:
                small.add(replace(one.version, schema=plan.shaped), shaped_changes(plan, one.batch))
    except BaseException:
        small.abandon()
        raise
    return small.finish()
