"""How far each reader of the log has come: what retention must not remove."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from walrelay.log.failures import LogDamagedError
from walrelay.log.storage import Storage
from walrelay.model.lsn import Lsn

READERS: Final = "readers"


@dataclass(frozen=True, slots=True)
class ReaderPosition:
    """A reader needs nothing up to `lsn` any more; it came there at `at`, in seconds since 1970."""

    lsn: Lsn
    at: float


class ReaderPositions:
    """The positions of all readers. A position is what a reader has durably applied, and never goes back."""

    def __init__(self, storage: Storage, *, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._clock = clock
        self._lock = threading.Lock()

    def record(self, name: str, lsn: Lsn) -> None:
        """Remember, durably, that `name` needs nothing up to `lsn` any more; an older position changes nothing.

        A new reader records where it starts before it reads: from then on retention waits for it.
        """
        path = _path(name)
        with self._lock:
            before = self._read(path)
            if before is None or lsn > before:
                self._storage.put(path, json.dumps({"lsn": str(lsn), "at": self._clock()}).encode())

    def take_over(self, before: str, name: str, reached: Lsn) -> None:
        """Go on as `name` for the reader that was called `before`, unless that one is ahead of what was reached: then
        it is somebody else. Once: not when `name` is there."""
        position = self._read(_path(before))
        if before != name and position is not None and position <= reached and self._read(_path(name)) is None:
            self.record(name, position)
            self.remove(before)

    def all(self) -> dict[str, ReaderPosition]:
        """Every reader by name: where it is, and since when."""
        found = {name: self._look(f"{READERS}/{name}") for name in self._storage.list(READERS)}
        return {_reader(name): one for name, one in found.items() if one is not None and name.endswith(".json")}

    def positions(self) -> dict[str, Lsn]:
        """The position of each reader by name."""
        return {name: one.lsn for name, one in self.all().items()}

    def slowest(self) -> Lsn | None:
        """The least position, or None when nobody is registered."""
        return min(self.positions().values(), default=None)

    def remove(self, name: str) -> None:
        """Forget a reader: retention no longer waits for it."""
        self._storage.delete(_path(name))
        self._storage.sync(READERS)

    def _read(self, path: str) -> Lsn | None:
        found = self._look(path)
        return None if found is None else found.lsn

    def _look(self, path: str) -> ReaderPosition | None:
        try:
            body = self._storage.read(path)
        except FileNotFoundError:
            return None
        try:
            fields = json.loads(body)
            return ReaderPosition(Lsn.parse(fields["lsn"]), float(fields.get("at", 0.0)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogDamagedError(
                f"{self._storage.location(path)} is damaged",
                hint="Delete that file; the reader writes it anew, but must not be behind the log's start then.",
            ) from error


def _path(name: str) -> str:
    if not name:
        raise ValueError("a reader needs a name")
    quoted = urllib.parse.quote(name, safe=" ")
    # A leading dot would hide the file.
    return f"{READERS}/{'%2E' + quoted[1:] if quoted.startswith('.') else quoted}.json"


def _reader(file_name: str) -> str:
    return urllib.parse.unquote(file_name.removesuffix(".json"))
