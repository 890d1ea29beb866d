"""Many small segments → few larger ones, while others read (docs/decisions/0005).

Size-tiered: a segment is of tier 0, sixteen entries of tier k make one of tier k + 1, so a change is rewritten once per
tier and an hour of ten segments a second ends as some dozens of files. A merged entry is published first and what it
replaces is deleted a while later; in between both are there, and hold the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from walrelay.failpoints import hit
from walrelay.log.concatenation import UnlikeSchemaError, concatenate
from walrelay.log.failures import LogDamagedError, LogError
from walrelay.log.manifest import DATA, MANIFEST, DataFile, Entry, Manifest, data_path, epoch_of
from walrelay.log.storage import Storage

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    fan_in: int = 16
    """Entries of a tier that become one of the next."""
    max_bytes: int = 128 * MIB
    """No merged entry is larger: it is what a reader takes at once."""
    big_bytes: int = 32 * MIB
    """An entry of this size is good as it is."""
    grace_seconds: float = 10.0
    """How long replaced entries stay for those who have just listed them."""

    def __post_init__(self) -> None:
        if self.fan_in < 2 or 2 * self.big_bytes > self.max_bytes:
            raise ValueError("two entries that are not big must fit into a merged one")


class Concatenate(Protocol):
    def __call__(self, storage: Storage, paths: Sequence[str], target: str) -> tuple[int, int]:
        """Write the rows of `paths`, in order, to `target`, durably but for its name; its rows and bytes."""


def _always() -> None:
    pass


class Compactor:
    """Merges and cleans up; for the holder of the lease, from one thread. `check` is the lease's."""

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        epoch: int,
        settings: CompactionSettings | None = None,
        *,
        check: Callable[[], None] = _always,
        clock: Callable[[], float] = time.monotonic,
        join: Concatenate = concatenate,
    ) -> None:
        self._storage = storage
        self._manifest = manifest
        self._epoch = epoch
        self._settings = settings or CompactionSettings()
        self._check = check
        self._clock = clock
        self._join = join
        self._replaced_since: dict[str, float] = {}
        self._doomed: list[str] = []
        """Data files whose entries are gone."""
        self._walls: set[int] = set()
        """Sequence numbers at which the columns' types changed within a schema version: nothing is merged across."""

    def run_once(self) -> int:
        """Merge what can be merged and delete what was replaced long enough ago; the number of merges."""
        merges = 0
        chain = self._clean_up()
        while group := self._next_group(chain):
            try:
                merged = self._merge(group)
            except UnlikeSchemaError as error:
                if error.index == 0:
                    raise  # unlike within one entry: no wall would help
                self._walls.add(group[error.index].first)
                continue
            except FileNotFoundError as error:
                if set(group) <= set(self._manifest.entries()):
                    raise LogDamagedError("a data file that an entry of the log names is missing") from error
                break  # retention removed some of these entries meanwhile
            merges += 1
            place = chain.index(group[0])
            chain[place : place + len(group)] = [merged]
        return merges

    def sweep_orphans(self) -> int:
        """Delete data files that no entry names and that an earlier writer left; call it at start. Their number.

        Our own files that no entry names may be about to be published: the epoch in the name tells them apart.
        """
        names = self._storage.list(DATA)
        chain, replaced = self._manifest.look()
        named = {file.path for entry in (*chain, *replaced) for file in entry.files}
        orphans = [path for name in names if (path := f"{DATA}/{name}") not in named and self._is_older(name)]
        if orphans:
            self._check()
        for path in orphans:
            self._storage.delete(path)
        return len(orphans)

    def _is_older(self, name: str) -> bool:
        epoch = epoch_of(name)
        return epoch is not None and epoch < self._epoch

    # ------------------------------------------------------------------------------------------- what to merge

    def _next_group(self, chain: Sequence[Entry]) -> list[Entry]:
        """The oldest entries to become one, or none."""
        run: list[Entry] = []
        small: list[Entry] = []
        for entry in chain:
            if entry.first in self._walls:
                run, small = [], []
            if entry.bytes >= self._settings.big_bytes:
                # The small ones before a big one get no more company: without this they would stay for ever.
                if len(group := self._fitting(small)) > 1:
                    return group
                run, small = [], []
                continue
            small.append(entry)
            if run and self._tier(run[-1]) != self._tier(entry):
                run = []
            run.append(entry)
            if len(run) == self._settings.fan_in:
                return self._fitting(run)
        return []

    def _fitting(self, entries: Sequence[Entry]) -> list[Entry]:
        """As many of the first ones as one entry may hold; none is big, so these are several when `entries` are."""
        taken: list[Entry] = []
        size = 0
        for entry in entries:
            size += entry.bytes
            if size > self._settings.max_bytes:
                break
            taken.append(entry)
        return taken

    def _tier(self, entry: Entry) -> int:
        segments, tier = entry.last - entry.first + 1, 0
        while segments >= self._settings.fan_in:
            segments //= self._settings.fan_in
            tier += 1
        return tier

    # ---------------------------------------------------------------------------------------------------- merging

    def _merge(self, group: Sequence[Entry]) -> Entry:
        """Publish one entry for all of `group`. Raises UnlikeSchemaError with the index of the entry that differs."""
        written: list[DataFile] = []
        try:
            for files in _by_table(group):
                written.append(self._merge_files(group, files))
            self._storage.sync(DATA)
            self._check()
        except BaseException:
            # At once and not later: the same merge, tried again, gives its files the same names.
            for file in written:
                with suppress(LogError):
                    self._storage.delete(file.path)
            raise
        entry = _merged(group, written)
        hit("compaction.before_publish")
        # From here on the files stay, whatever happens: a put that seems to fail may have succeeded.
        self._manifest.publish(entry)
        hit("compaction.after_publish")
        self._replaced_since.update(dict.fromkeys((part.name for part in group), self._clock()))
        return entry

    def _merge_files(self, group: Sequence[Entry], files: Sequence[DataFile]) -> DataFile:
        first = files[0]
        target = data_path(group[0].first, group[-1].last, self._epoch, first.table, first.version, first.kind)
        try:
            rows, size = self._join(self._storage, [file.path for file in files], target)
        except UnlikeSchemaError as error:
            error.index = next(i for i, entry in enumerate(group) if files[error.index] in entry.files)
            raise
        file = DataFile(
            path=target,
            table=first.table,
            name=files[-1].name,
            version=first.version,
            rows=sum(file.rows for file in files),
            bytes=size,
            first_lsn=first.first_lsn,
            last_lsn=files[-1].last_lsn,
            kind=first.kind,
        )
        if rows != file.rows:
            self._storage.delete(target)
            raise LogDamagedError(
                f"the files from {first.path} to {files[-1].path} hold {rows} rows, but their entries say {file.rows}"
            )
        return file

    # --------------------------------------------------------------------------------------------------- cleaning

    def _clean_up(self) -> list[Entry]:
        """Delete what was replaced long enough ago; the chain."""
        now = self._clock()
        chain, replaced = self._manifest.look()
        needed = {file.path for entry in chain for file in entry.files}
        self._replaced_since = {entry.name: self._replaced_since.get(entry.name, now) for entry in replaced}
        gone = [entry for entry in replaced if now - self._replaced_since[entry.name] >= self._settings.grace_seconds]
        if not gone and not self._doomed:
            return list(chain)
        self._check()
        for entry in gone:
            self._storage.delete(entry.path)
            self._doomed += [file.path for file in entry.files if file.path not in needed]
        # Entries first, durably: an entry whose files are gone would be a damaged log.
        self._storage.sync(MANIFEST)
        while self._doomed:
            self._storage.delete(self._doomed[-1])
            self._doomed.pop()
        return list(chain)


def _by_table(group: Sequence[Entry]) -> list[list[DataFile]]:
    """The files of all entries, in order, by table and schema version; messages, and the quarantine, apart."""
    found: dict[tuple[int | None, int, str], list[DataFile]] = {}
    for entry in group:
        for file in entry.files:
            found.setdefault((file.table, file.version, file.kind), []).append(file)
    return list(found.values())


def _merged(group: Sequence[Entry], files: Sequence[DataFile]) -> Entry:
    return Entry(
        first=group[0].first,
        last=group[-1].last,
        start_lsn=group[0].start_lsn,
        end_lsn=group[-1].end_lsn,
        transactions=sum(entry.transactions for entry in group),
        rows=sum(entry.rows for entry in group),
        bytes=sum(file.bytes for file in files),
        commit_time=max(entry.commit_time for entry in group),
        created_at=max(entry.created_at for entry in group),
        files=tuple(files),
        treated=group[-1].treated,
        parts=tuple(dict.fromkeys(part for entry in group for part in entry.parts)),
    )
