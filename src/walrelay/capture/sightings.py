"""The looks at the catalog that a log's writer has taken, each with its place in the WAL. Kept in the log: a message of
a backlog is older than anything the catalog says today."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from walrelay.log.failures import LogDamagedError
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId
from walrelay.model.sightings import LookTime, NamedColumn, Sighting
from walrelay.model.visibility import visible

SIGHTINGS: Final = "sightings"
MANY_FILES = 64
"""So many are written together as one."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A table looked so when it was first seen so, and still at the last look: nobody has altered it in between."""

    sighting: Sighting
    first: Lsn
    """Where the WAL ended after the first look."""
    last: LookTime


@dataclass(frozen=True, slots=True)
class Told:
    """What the DDL event trigger said: the table's columns from the commit `lsn` on."""

    table: TableId
    lsn: Lsn
    columns: tuple[tuple[int, NamedColumn], ...]
    xid: int = 0
    """The transaction's; 0 in what earlier versions have kept."""


class SightingBook:
    """All looks that may still be needed by a writer that goes on from `durable_lsn`. For one thread."""

    def __init__(self, storage: Storage, durable_lsn: Lsn) -> None:
        self._storage = storage
        self._stays: dict[TableId, list[Stay]] = {}
        self._told: dict[TableId, list[Told]] = {}
        self._files = sorted(name for name in storage.list(SIGHTINGS) if name.endswith(".json"))
        for name in self._files:
            self._load(f"{SIGHTINGS}/{name}")
        for table, told in self._told.items():
            # What was told after that is told again, in its place.
            self._told[table] = [one for one in told if one.lsn <= durable_lsn]

    def seen(self, sightings: Iterable[Sighting], time: LookTime) -> None:
        """Remember a look. Durable when it returns, as far as anything is new."""
        fresh = [one for one in sightings if self._add(one, time.ended, time)]
        if fresh:
            self._write({"seen": [_seen_to_json(Stay(one, time.ended, time)) for one in fresh]})

    def told(self, told: Told) -> None:
        """Remember what the trigger said."""
        self._told.setdefault(told.table, []).append(told)
        self._write({"told": [_told_to_json(told)]})

    def last_told(self, table: TableId) -> Told | None:
        told = self._told.get(table)
        return told[-1] if told else None

    def before(self, table: TableId, commit_lsn: Lsn) -> Stay | None:
        """The last look at the table that surely is older than what a transaction with this commit saw.

        It held a lock on the table from its first touch to its commit, so all that had been altered at a look whose
        position is before the commit had been altered before the touch.
        """
        stays = [one for one in self._stays.get(table, ()) if one.first < commit_lsn]
        return stays[-1] if stays else None

    def after(self, table: TableId, commit_lsn: Lsn, xid: int) -> Stay | None:
        """The first look at the table that surely is younger than what a transaction saw: it began after the commit was
        written, and saw what the transaction itself may have altered (a commit is written before it is visible)."""
        for one in self._stays.get(table, ()):
            if one.last.began >= commit_lsn and visible(xid, one.last.visible):
                return one
        return None

    def forget(self, durable_lsn: Lsn) -> None:
        """Nothing that commits up to here is asked for any more: of older looks the last one is enough."""
        for table, stays in self._stays.items():
            while len(stays) > 1 and stays[1].first <= durable_lsn:
                del self._stays[table][0]
        for told in self._told.values():
            while len(told) > 1 and told[1].lsn <= durable_lsn:
                del told[0]
        if len(self._files) >= MANY_FILES:
            self._rewrite()

    def _add(self, sighting: Sighting, first: Lsn, time: LookTime) -> bool:
        """Whether the table looks otherwise than before."""
        stays = self._stays.setdefault(sighting.table, [])
        if stays and stays[-1].sighting == sighting:
            stays[-1] = replace(stays[-1], last=time)
            return False
        stays.append(Stay(sighting, first, time))
        return True

    def _write(self, body: dict[str, object]) -> None:
        number = int(self._files[-1].removesuffix(".json")) + 1 if self._files else 1
        name = f"{number:020d}.json"
        self._storage.put(f"{SIGHTINGS}/{name}", json.dumps(body).encode())
        self._files.append(name)

    def _rewrite(self) -> None:
        """One file in the place of many. The new one is there before the old ones go, and says the same."""
        old = list(self._files)
        stays = [one for each in self._stays.values() for one in each]
        told = [one for each in self._told.values() for one in each]
        self._write(
            {"anew": True, "seen": [_seen_to_json(one) for one in stays], "told": [_told_to_json(one) for one in told]}
        )
        for name in old:
            self._storage.delete(f"{SIGHTINGS}/{name}")
        self._files = self._files[len(old) :]

    def _load(self, path: str) -> None:
        body = self._storage.read(path)
        try:
            fields = json.loads(body)
            if fields.get("anew"):
                self._stays.clear()
                self._told.clear()
            for one in fields.get("seen", ()):
                stay = _seen_from_json(one)
                self._add(stay.sighting, stay.first, stay.last)
            for one in fields.get("told", ()):
                told = _told_from_json(one)
                self._told.setdefault(told.table, []).append(told)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogDamagedError(f"{self._storage.location(path)} is damaged") from error


def _seen_to_json(stay: Stay) -> dict[str, object]:
    last = stay.last
    return {
        "first": str(stay.first),
        "last": [str(last.began), str(last.ended), last.visible],
        "sighting": stay.sighting.to_json(),
    }


def _seen_from_json(body: dict[str, Any]) -> Stay:
    began, ended, visible = body["last"]
    return Stay(
        Sighting.from_json(body["sighting"]),
        Lsn.parse(body["first"]),
        LookTime(Lsn.parse(began), Lsn.parse(ended), str(visible)),
    )


def _told_to_json(told: Told) -> dict[str, object]:
    columns = [[number, one.name, one.type, one.modifier] for number, one in told.columns]
    return {"table": told.table, "lsn": str(told.lsn), "columns": columns, "xid": told.xid}


def _told_from_json(body: dict[str, Any]) -> Told:
    columns = ((int(number), NamedColumn(name, type_, modifier)) for number, name, type_, modifier in body["columns"])
    return Told(int(body["table"]), Lsn.parse(body["lsn"]), tuple(columns), int(body.get("xid", 0)))
