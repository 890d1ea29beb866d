"""Which table a name means in a range of the log, and what it looks like there. A name may pass from table to table."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from walrelay.errors import TableMissingError
from walrelay.log.manifest import DataFile, Entry
from walrelay.log.view import LogView
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion

History = list[SchemaVersion]


def version_at(log: LogView, table: TableId, to: Lsn) -> SchemaVersion:
    """The shape that the table has at `to`, the end of a transaction."""
    versions = log.versions(to, table).get(table)
    if not versions:
        raise TableMissingError(
            f"the log knows no table with id {table} up to {to}", hint="A table is known from its first change on."
        )
    return versions[-1]


def table_named(
    log: LogView, name: TableName, after: Lsn, to: Lsn, among: Collection[TableId] | None = None
) -> SchemaVersion:
    """The table that has the name at `to`, in the shape it has there; if none has, the last that had it after `after`.

    `among` are asked first. The same range always gives the same answer, whatever the log brings later.
    """
    histories = list(log.versions(to).values())
    chosen = [one for one in histories if among is not None and one[-1].schema.id in among]
    for candidates in (chosen, histories):
        found = _holder(log, candidates, name, after, to) or _former(candidates, name, after)
        if found is not None:
            return found
    raise TableMissingError(
        f"the log knows no table {name}" + (f" between {after} and {to}" if _known(log, name) else ""),
        hint="A table is known from its first change on, by the name that it has at the end of the range, or had in it."
        " Check the name (schema.table).",
    )


def _holder(log: LogView, histories: list[History], name: TableName, after: Lsn, to: Lsn) -> SchemaVersion | None:
    found = [versions[-1] for versions in histories if versions[-1].schema.name == name]
    if len(found) < 2:
        return found[0] if found else None
    # Nothing tells that a table was dropped or lost its name. Who was last seen with it has it.
    return max(found, key=lambda version: (_last_seen(log, version, after, to), version.from_lsn))


def _former(histories: list[History], name: TableName, after: Lsn) -> SchemaVersion | None:
    had = [
        (version.from_lsn, versions[-1].schema.id, versions[-1])
        for versions in histories
        for version, following in pairwise(versions)
        if version.schema.name == name and following.from_lsn >= after
    ]
    return max(had, key=lambda one: one[:2])[2] if had else None


def _known(log: LogView, name: TableName) -> bool:
    return any(version.schema.name == name for versions in log.versions(log.end()).values() for version in versions)


def _last_seen(log: LogView, version: SchemaVersion, after: Lsn, to: Lsn) -> Lsn:
    """The commit of the last change within the range that has this version."""
    low, high = max(after, log.start()), min(to, log.end())
    last = version.from_lsn
    for entry in log.entries(low, high) if low < high else []:
        for file in entry.files:
            if (file.table, file.version) == (version.schema.id, version.version):
                is_whole = low <= entry.start_lsn and entry.end_lsn <= high
                last = max(last, file.last_lsn if is_whole else _last_in(log, entry, file, low, high))
    return last


def _last_in(log: LogView, entry: Entry, file: DataFile, low: Lsn, high: Lsn) -> Lsn:
    """Of a segment that the range cuts, which only its file knows: merging segments must not change the answer."""
    import pyarrow.compute as pc

    from walrelay.log.reader import LogReader

    assert file.table is not None
    cut = LogReader(log.storage).batches(max(low, entry.start_lsn), min(high, entry.end_lsn), {file.table})
    commits = [pc.max(one.batch.column("commit_lsn")).as_py() for one in cut if one.version.version == file.version]
    return Lsn(max(commits, default=0))
