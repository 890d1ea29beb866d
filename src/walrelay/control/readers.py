"""The readers of a change log: which there are, whose they are, and how one is forgotten.

What a reader has not read is kept, in the log and, with `ack: destination`, by Postgres: one that is gone for good
would be waited for until the disk is full.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from walrelay.control.commands import is_running
from walrelay.control.stores import LOG_DIRECTORY, STATE_FILE, pipelines_in
from walrelay.errors import ReaderInUseError, ReaderMissingError, StateMissingError
from walrelay.log.readers import ReaderPositions
from walrelay.log.storage import open_storage
from walrelay.stores.names import known_name
from walrelay.stores.sqlite import SqliteStore

LATELY_SECONDS = 60.0
"""A reader that has moved within this is running, wherever its state is."""


@dataclass(frozen=True)
class Forgotten:
    """What was done."""

    reader: str
    lsn: str
    left: tuple[str, ...]
    """The readers that the log still has."""


def forget_reader(state: Path, reader: str, log: str | None = None) -> Forgotten:
    """Remove the reader, named in full or by a pipeline's id in `state`; refuses one that runs."""
    if not (state / STATE_FILE).exists():
        raise StateMissingError(f"there is no pipeline's state in {state}")
    location = log or str(state / LOG_DIRECTORY)
    positions = ReaderPositions(open_storage(location))
    pipelines = _pipelines(state / STATE_FILE)
    known = positions.all()
    if reader not in known:
        names = [name for id_, (name, _) in pipelines.items() if id_ == reader and name in known]
        reader = names[0] if names else reader
    if reader not in known:
        raise ReaderMissingError(
            f"the log at {location} has no reader {reader}", hint=f"It has: {', '.join(sorted(known)) or 'none'}."
        )
    running = {name for name, runs in pipelines.values() if runs}
    moved = time.time() - known[reader].at
    if reader in running:
        raise ReaderInUseError(f"the pipeline that reads as {reader} is running")
    if reader not in {name for name, _ in pipelines.values()} and 0 <= moved < LATELY_SECONDS:
        raise ReaderInUseError(
            f"{reader} has read from the log {moved:.0f} s ago, and its state is not in {state}",
            hint=f"Stop that pipeline, and give its --state; or wait for {LATELY_SECONDS:.0f} s.",
        )
    positions.remove(reader)
    return Forgotten(reader, str(known[reader].lsn), tuple(sorted(known.keys() - {reader})))


def _pipelines(file: Path) -> dict[str, tuple[str, bool]]:
    """What each pipeline of the state is called as a reader, and whether it runs."""
    found = {}
    for id_ in pipelines_in(file):
        store = SqliteStore(file, id_)
        try:
            found[id_] = (known_name(store) or id_, is_running(store))
        finally:
            with suppress(Exception):
                store.close()
    return found
