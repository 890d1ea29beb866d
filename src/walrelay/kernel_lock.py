"""A lock of the kernel on a file: it is gone when the process is, however that ends. The one place for it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.05


class LockedError(Exception):
    """Another process has the lock; `card` is what it has written there."""

    def __init__(self, card: bytes) -> None:
        super().__init__("another process has the lock")
        self.card = card


class KernelLock:
    """Held from construction to `release`. What the file holds only tells others who has it: one card of `size` bytes,
    written at once, so that a crash leaves the old one or the new."""

    def __init__(
        self, path: Path, size: int, patience: float = 0.0, waiting: Callable[[bytes], None] | None = None
    ) -> None:
        """Waits up to `patience` seconds, and tells `waiting` again and again what the holder's card says; then
        `LockedError`. OSError where no file can be made."""
        self._path = path
        self._size = size
        self._handle: int | None = self._locked(patience, waiting)
        _forget_in_children(self)

    def is_ours(self) -> bool:
        """False when it was released, and when somebody has removed or replaced the file."""
        try:
            return self._handle is not None and os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            return False

    @property
    def is_held(self) -> bool:
        return self._handle is not None

    def card(self) -> bytes:
        """What the file holds."""
        return os.pread(self._open, self._size, 0)

    def tell(self, card: bytes, *, durably: bool = False) -> None:
        """Write what others are to read."""
        os.pwrite(self._open, card[: self._size].ljust(self._size), 0)
        if durably:
            os.fsync(self._open)

    @property
    def _open(self) -> int:
        assert self._handle is not None, "the lock was released"
        return self._handle

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

    def _locked(self, patience: float, waiting: Callable[[bytes], None] | None) -> int:
        deadline = time.monotonic() + patience
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    return handle
            except BlockingIOError:
                card = os.pread(handle, self._size, 0)
                os.close(handle)
                if time.monotonic() >= deadline:
                    raise LockedError(card) from None
                if waiting is not None:
                    waiting(card)
                time.sleep(POLL_SECONDS)
                continue
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # the file was replaced between our open and our lock: what we locked is nobody's


_in_this_process: weakref.WeakSet[KernelLock] = weakref.WeakSet()
_watching_forks = threading.Event()


def _forget_in_children(lock: KernelLock) -> None:
    """Close the handle in forked children: the kernel frees a lock only when its last handle is closed."""
    _in_this_process.add(lock)
    if not _watching_forks.is_set():
        _watching_forks.set()
        os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for lock in list(_in_this_process):
        lock.forget()
