"""What a log holds, and up to where: all that can be known without opening a data file.

Small on purpose: Spark asks it many times a second, in a process that should start at once.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from walrelay.errors import TableMissingError
from walrelay.log.failures import LogDamagedError, LogNotFoundError
from walrelay.log.identity import read_lineage
from walrelay.log.manifest import Entry, Manifest, Treated
from walrelay.log.schemas import SCHEMAS, read_version, read_versions
from walrelay.log.storage import Storage, open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.schema import SchemaVersion

HEAD: Final = "head.json"
_VERSION_FILE: Final = re.compile(r"(\d+)-(\d+)\.json")


def read_head(storage: Storage) -> Lsn | None:
    """Up to where the log is known to hold everything, apart from its entries; None when it never said."""
    try:
        return Lsn.parse(json.loads(storage.read(HEAD))["lsn"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LogDamagedError(f"{storage.location(HEAD)} is damaged") from error


class LogView:
    """A log from outside: its ends, segments, tables and their shapes."""

    def __init__(self, log: str | Path | Storage) -> None:
        self.storage: Storage = open_storage(log) if isinstance(log, str | Path) else log
        self._manifest = Manifest(self.storage)
        self._versions: dict[tuple[TableId, int], SchemaVersion] = {}

    def lineage(self) -> Lineage:
        """Where the log comes from. Raises when there is no log."""
        lineage = read_lineage(self.storage)
        if lineage is None:
            raise LogNotFoundError(f"there is no change log at {self.storage.location('')}")
        return lineage

    def start(self) -> Lsn:
        """Changes after this are there."""
        entries = self._manifest.entries()
        return entries[0].start_lsn if entries else self.lineage().created_lsn

    def end(self) -> Lsn:
        """The end of the last transaction that can be read."""
        entries = self._manifest.entries()
        return entries[-1].end_lsn if entries else self.lineage().created_lsn

    def head(self) -> Lsn:
        """Up to here the log holds all there is: its end, or later, when the source was idle."""
        return max(self.end(), read_head(self.storage) or Lsn(0))

    def treated(self) -> Treated:
        """Values treated by policy since the log began, by table and kind."""
        entries = self._manifest.entries()
        return entries[-1].treated if entries else {}

    def entries(self, after: Lsn | None = None, to: Lsn | None = None) -> list[Entry]:
        """The segments with changes after `after` and up to `to`."""
        lineage = self.lineage()
        return self._manifest.between(
            after if after is not None else max(self.start(), lineage.created_lsn), to if to is not None else self.end()
        )

    def tables(self) -> dict[TableName, SchemaVersion]:
        """Every table the log knows, in its latest shape; of those that had a name one after the other, the last."""
        latest: dict[TableId, SchemaVersion] = {}
        head = self.head()
        for version, _ in read_versions(self.storage):
            if version.from_lsn < head:
                latest[version.schema.id] = version
        return {version.schema.name: version for version in sorted(latest.values(), key=lambda one: one.from_lsn)}

    def versions(self, to: Lsn, table: TableId | None = None) -> dict[TableId, list[SchemaVersion]]:
        """The shapes of all tables, or of one, from the first to the one that holds at `to`, the end of a transaction.

        What was made for a segment that is not there yet does not count: after a crash it is made again.
        """
        end = self.end()
        found: dict[TableId, list[SchemaVersion]] = {}
        for id_, number in self._listed_versions():
            version = self._durable_version(id_, number, end) if table in (None, id_) else None
            if version is not None and version.from_lsn < to:
                found.setdefault(id_, []).append(version)
        return found

    def _listed_versions(self) -> list[tuple[TableId, int]]:
        names = (_VERSION_FILE.fullmatch(name) for name in self.storage.list(SCHEMAS))
        return sorted((int(match[1]), int(match[2])) for match in names if match is not None)

    def _durable_version(self, table: TableId, number: int, end: Lsn) -> SchemaVersion | None:
        """A version that will never be another; None of one that may."""
        if (table, number) not in self._versions:
            try:
                version = read_version(self.storage, table, number)
            except FileNotFoundError:
                return None
            if version.from_lsn >= end:
                return None
            self._versions[table, number] = version
        return self._versions[table, number]

    def table(self, name: TableName) -> SchemaVersion:
        found = self.tables().get(name)
        if found is None:
            raise TableMissingError(
                f"the log knows no table {name}",
                hint="A table is known from its first change on. Check the name (schema.table).",
            )
        return found

    def version(self, table: TableId, version: int) -> SchemaVersion:
        key = (table, version)
        if key not in self._versions:
            try:
                self._versions[key] = read_version(self.storage, table, version)
            except FileNotFoundError as error:
                raise LogDamagedError(f"the log lacks version {version} of table {table}") from error
        return self._versions[key]
