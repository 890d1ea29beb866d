"""Which log this is: the format it is written in and the slot lineage it belongs to (SEMANTICS 4)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from walrelay.log.failures import LogDamagedError, LogLineageError, LogNewerFormatError
from walrelay.log.manifest import MANIFEST
from walrelay.log.storage import Storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn

IDENTITY: Final = "log.json"
FORMAT: Final = 1


def read_lineage(storage: Storage) -> Lineage | None:
    """The lineage of the log, or None where there is no log yet. Refuses a format it does not know."""
    try:
        body = storage.read(IDENTITY)
    except FileNotFoundError:
        return None
    where = storage.location(IDENTITY)
    try:
        fields = json.loads(body)
        written = fields["format"]
        if type(written) is not int or written < 1:
            raise ValueError("the format version is no number")
        if written > FORMAT:
            raise LogNewerFormatError(f"{where} is of format {written}; this version reads formats up to {FORMAT}")
        lineage = fields["lineage"]
        slot, system, timeline = lineage["slot"], lineage["system_identifier"], lineage["timeline"]
        if not isinstance(slot, str) or not isinstance(system, str) or type(timeline) is not int:
            raise ValueError("the lineage is of a wrong type")
        return Lineage(slot, system, timeline, Lsn.parse(lineage["created_lsn"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogDamagedError(f"{where} is damaged") from error


def write_lineage(storage: Storage, lineage: Lineage) -> None:
    """Begin a log, durably."""
    body = {"format": FORMAT, "lineage": {**asdict(lineage), "created_lsn": str(lineage.created_lsn)}}
    storage.put(IDENTITY, json.dumps(body, indent=2).encode())


def claim(storage: Storage, lineage: Lineage) -> None:
    """Make sure that the log belongs to `lineage`, beginning it when there is none; for the holder of the lease."""
    found = read_lineage(storage)
    if found is None:
        if storage.list(MANIFEST):
            raise LogDamagedError(f"{storage.location(IDENTITY)} is missing, but there are entries")
        write_lineage(storage, lineage)
    elif found != lineage:
        raise LogLineageError(f"the log at {storage.location('')} belongs to {found}; this is {lineage}")
