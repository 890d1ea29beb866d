"""A lock of the kernel on a file: it is gone when the process is, however that ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from walrelay.stores.base import LOCK_GRACE
from walrelay.stores.failures import StoreDiskFullError, StoreInUseError, StoreNotWritableError

_CARD_BYTES = 1024


class HeldError(Exception):
    """Another process has the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class FileLock:
    """Held from construction to `release`. The file's content only tells others who has it, and `what` for."""

    def __init__(
        self, path: Path, what: str, patience: float = LOCK_GRACE, waiting: Callable[[str], None] | None = None
    ) -> None:
        """Waits up to `patience` seconds, and tells `waiting` again and again for whom; then `HeldError`. OSError where
        no file can be made."""
        self._path = path
        self._what = what
        self._handle: int | None = self._locked(patience, waiting)
        _forget_in_children(self)

    def check(self) -> None:
        try:
            held = self._handle is not None and os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            held = False
        if not held:
            raise StoreInUseError(f"the lock {self._path} was removed or replaced: {self._what} is no longer ours")

    def release(self, *, remove: bool = False) -> None:
        """Let the next one in. Who waits for the file looks whether it is still the one that it locked, so that it may
        be removed."""
        if self._handle is not None:
            if remove:
                self._path.unlink(missing_ok=True)
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # also for a child that was forked this moment
            self.forget()

    def forget(self) -> None:
        """Close our handle without unlocking: in a forked child, where the lock is the parent's."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _locked(self, patience: float, waiting: Callable[[str], None] | None) -> int:
        deadline = time.monotonic() + patience
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    os.pwrite(handle, _card(self._what).ljust(_CARD_BYTES), 0)
                    return handle
            except BlockingIOError:
                holder = _told(os.pread(handle, _CARD_BYTES, 0))
                os.close(handle)
                if time.monotonic() >= deadline:
                    raise HeldError(holder) from None
                if waiting is not None:
                    waiting(holder)
                time.sleep(LOCK_GRACE / 20)
                continue
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # the file was replaced between our open and our lock: what we locked is nobody's


def pipeline_lock(path: Path, pipeline: str, patience: float = LOCK_GRACE) -> FileLock:
    """The right to run a pipeline."""
    what = f"the pipeline {pipeline}"
    try:
        return FileLock(path, what, patience)
    except HeldError as error:
        raise StoreInUseError(f"{what} is being run by {error.holder}") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreDiskFullError(f"the disk is full: {path.parent}") from error
        raise StoreNotWritableError(f"cannot lock {path}: {os.strerror(error.errno or 0).lower()}") from error


def _card(what: str) -> bytes:
    card = {"pid": os.getpid(), "host": socket.gethostname()[:100], "since": time.time(), "what": what[:100]}
    return json.dumps(card).encode()[:_CARD_BYTES]


def _told(body: bytes) -> str:
    try:
        card: Any = json.loads(body)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(card["since"]))
        return f"process {card['pid']} on {card['host']}, since {since} ({card.get('what', 'unknown')})"
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
