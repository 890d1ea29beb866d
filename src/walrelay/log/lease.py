"""Who writes the log: one process at a time.

On a local file system the kernel holds the lock and frees it when the process dies, however it dies. On an object store
the lease is an object that expires: its holder has to come back in time, and has to stop when it could not. There a
writer that is frozen between `check` and its write for longer than `MARGIN` can still write after it was replaced;
pyarrow has no conditional put that would shut it out.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from walrelay.kernel_lock import KernelLock, LockedError
from walrelay.log.failures import LogDamagedError, LogInUseError, named_write
from walrelay.log.manifest import DATA, epoch_of
from walrelay.log.storage import Storage, make_directory

LEASE: Final = "writer.lease"
LIFE: Final = 30.0
"""Seconds an object store's lease lives after its last renewal; it is renewed at a third of that."""
MARGIN: Final = 5.0
"""Seconds before its end in which the holder no longer trusts it."""
SETTLE: Final = 0.5
"""Seconds after which a lease just written is read again: of two that wrote it at once, the later one has it."""

_LOCAL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, to be replaced in tests."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Lease(ABC):
    """The right to write the log, until `release`, the end of the `with` block or the death of the process."""

    epoch: int
    """Greater than that of every lease before."""

    @abstractmethod
    def check(self) -> None:
        """Raise LogInUseError unless the lease is still ours; call it before everything that changes the log."""

    @abstractmethod
    def release(self) -> None:
        """Let the next writer in. Idempotent."""

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(storage: Storage, owner: str, *, clock: Clock | None = None) -> Lease:
    """The lease, or LogInUseError with the name of who has it. `owner` is told to others: a pipeline's name, say."""
    clock = clock or Clock()
    return LocalLease(storage, owner, clock) if storage.local else ObjectLease(storage, owner, clock)


class LocalLease(Lease):
    """A lock of the kernel on a local file, which also keeps the epoch."""

    def __init__(self, storage: Storage, owner: str, clock: Clock) -> None:
        self._path = Path(storage.location(LEASE))
        with named_write(str(self._path)):
            make_directory(self._path.parent)
            try:
                self._lock = KernelLock(self._path, _LOCAL_BYTES)
            except LockedError as error:
                holder = _who(_parsed(error.card))
                raise LogInUseError(f"the log at {self._path.parent} is being written by {holder}") from None
        try:
            with named_write(str(self._path)):
                self.epoch = _next_epoch(storage, _parsed(self._lock.card()))
                self._lock.tell(json.dumps(_card(owner, self.epoch, clock)).encode(), durably=True)
            storage.sync("")
        except BaseException:
            self._lock.release()
            raise

    def check(self) -> None:
        if not self._lock.is_held:
            raise LogInUseError(f"the lease on {self._path} was released")
        if not self._lock.is_ours():
            raise LogInUseError(f"{self._path} was removed or replaced: the lease is lost")

    def release(self) -> None:
        self._lock.release()


class ObjectLease(Lease):
    """An object that names its holder and expires."""

    def __init__(self, storage: Storage, owner: str, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._where = storage.location(LEASE)
        self._lock = threading.Lock()
        self._held = False
        began = clock.monotonic()
        before = self._read()
        if before is not None and before["expires_at"] > clock.wall():
            left = before["expires_at"] - clock.wall()
            raise LogInUseError(
                f"the log at {storage.location('')} is being written by {_who(before)}; "
                f"its lease has {left:.0f} more seconds",
                hint="Stop the other writer. If it died, its lease ends by itself: run again after that time.",
            )
        self.epoch = _next_epoch(storage, before)
        self._card = {**_card(owner, self.epoch, clock), "token": uuid.uuid4().hex}
        self._renewed = self._write()
        # Somebody may have written between our look and our write. When that took longer than one settles, that one
        # may be at work already: leave it the time to come back and find that it was overruled.
        quick = self._renewed - began < SETTLE
        clock.sleep(SETTLE if quick else LIFE / 3 + SETTLE)
        self._must_be_ours()
        self._held = True

    def check(self) -> None:
        with self._lock:
            if not self._held:
                raise LogInUseError(f"the lease {self._where} was released or lost")
            age = self._clock.monotonic() - self._renewed
            if age < LIFE / 3:
                return
            self._must_be_ours()
            if age > LIFE - MARGIN:
                # Nobody took it, but somebody may be about to: only a lease that is alive may be prolonged.
                self._held = False
                raise LogInUseError(f"the lease {self._where} was not renewed for {age:.0f} seconds and has run out")
            self._renewed = self._write()

    def release(self) -> None:
        with self._lock:
            if not self._held:
                return
            self._held = False
            now = self._read()
            if now is not None and now["token"] == self._card["token"]:
                # It stays, expired, for the epoch in it.
                self._storage.put(LEASE, json.dumps({**self._card, "expires_at": 0.0}).encode())

    def _write(self) -> float:
        """Write the lease; the time from which its life counts, taken before, so that we err to our own cost."""
        now = self._clock.monotonic()
        self._storage.put(LEASE, json.dumps({**self._card, "expires_at": self._clock.wall() + LIFE}).encode())
        return now

    def _must_be_ours(self) -> None:
        now = self._read()
        if now is None or now["token"] != self._card["token"]:
            self._held = False
            raise LogInUseError(f"the lease {self._where} was lost to {_who(now)}")

    def _read(self) -> dict[str, Any] | None:
        try:
            card = _parsed(self._storage.read(LEASE))
        except FileNotFoundError:
            return None
        if card is None or type(card.get("expires_at")) is not float or "token" not in card:
            raise LogDamagedError(
                f"{self._where} is damaged", hint="Make sure that nobody writes this log, then delete that object."
            )
        return card


def _card(owner: str, epoch: int, clock: Clock) -> dict[str, Any]:
    return {
        "owner": owner[:200],
        "pid": os.getpid(),
        "host": socket.gethostname()[:100],
        "since": clock.wall(),
        "epoch": epoch,
    }


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        card = json.loads(body)
    except ValueError:
        return None
    return card if isinstance(card, dict) else None


def _who(card: dict[str, Any] | None) -> str:
    if card is None:
        return "somebody unknown"
    since = card.get("since")
    told = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since)) if isinstance(since, float) else "unknown"
    return f"{card.get('owner')} (process {card.get('pid')} on {card.get('host')}, since {told})"


def _next_epoch(storage: Storage, before: dict[str, Any] | None) -> int:
    """One more than any epoch yet, even when the lease was deleted: the names of the data files tell them too."""
    last = before.get("epoch") if before else None
    used = (epoch_of(name) or 0 for name in storage.list(DATA))
    return max(last if type(last) is int else 0, *used, 0) + 1
