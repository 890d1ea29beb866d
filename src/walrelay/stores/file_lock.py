"""A lock of the kernel on a file: it is gone when the process is, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from walrelay.stores.base import LOCK_GRACE
from walrelay.stores.failures import StoreInUseError, StoreNotWritableError

_CARD_BYTES = 1024


class FileLock:
    """Held from construction to `release`. The file's content only tells others who has it."""

    def __init__(self, path: Path, what: str, patience: float = LOCK_GRACE) -> None:
        self._path = path
        self._what = what
        try:
            self._handle: int | None = self._locked(patience)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise StoreNotWritableError(f"cannot lock {path}: {reason}") from error
        _forget_in_children(self)

    def check(self) -> None:
        try:
            held = self._handle is not None and os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            held = False
        if not held:
            raise StoreInUseError(f"the lock {self._path} was removed or replaced: {self._what} is no longer ours")

    def release(self) -> None:
        """Let the next one in. The file stays: removing it could take it from under somebody who just locked it."""
        if self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # also for a child that was forked this moment
            self.forget()

    def forget(self) -> None:
        """Close our handle without unlocking: in a forked child, where the lock is the parent's."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _locked(self, patience: float) -> int:
        deadline = time.monotonic() + patience
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    os.pwrite(handle, _card().ljust(_CARD_BYTES), 0)
                    return handle
            except BlockingIOError:
                holder = _told(os.pread(handle, _CARD_BYTES, 0))
                os.close(handle)
                if time.monotonic() >= deadline:
                    raise StoreInUseError(f"{self._what} is being run by {holder}") from None
                time.sleep(LOCK_GRACE / 20)
                continue
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # the file was replaced between our open and our lock: what we locked is nobody's


def _card() -> bytes:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname()[:100], "since": time.time()}).encode()


def _told(body: bytes) -> str:
    try:
        card: Any = json.loads(body)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(card["since"]))
        return f"process {card['pid']} on {card['host']}, since {since}"
    except (ValueError, KeyError, TypeError):
        return "a process unknown"


_in_this_process: weakref.WeakSet[FileLock] = weakref.WeakSet()
_watching_forks = threading.Event()


def _forget_in_children(lock: FileLock) -> None:
    """Close the handle in forked children: the kernel frees a lock only when its last handle is closed."""
    _in_this_process.add(lock)
    if not _watching_forks.is_set():
        _watching_forks.set()
        os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for lock in list(_in_this_process):
        lock.forget()
