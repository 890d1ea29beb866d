"""A lock on a file, with the name of who has it."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from walrelay.kernel_lock import KernelLock, LockedError
from walrelay.stores.base import LOCK_GRACE
from walrelay.stores.failures import StoreDiskFullError, StoreInUseError, StoreNotWritableError

_CARD_BYTES = 1024


class HeldError(Exception):
    """Another process has the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class FileLock:
    """Held from construction to `release`; others are told who has it, and `what` for."""

    def __init__(
        self, path: Path, what: str, patience: float = LOCK_GRACE, waiting: Callable[[str], None] | None = None
    ) -> None:
        """Waits up to `patience` seconds, and tells `waiting` again and again for whom; then `HeldError`. OSError where
        no file can be made."""
        self._path = path
        self._what = what
        told = None if waiting is None else lambda card: waiting(_told(card))
        try:
            self._lock = KernelLock(path, _CARD_BYTES, patience, told)
        except LockedError as error:
            raise HeldError(_told(error.card)) from None
        try:
            self._lock.tell(_card(what))
        except BaseException:
            self._lock.release()
            raise

    def check(self) -> None:
        if not self._lock.is_ours():
            raise StoreInUseError(f"the lock {self._path} was removed or replaced: {self._what} is no longer ours")

    def release(self, *, remove: bool = False) -> None:
        """Let the next one in; also without the file, for which nobody waits then."""
        self._lock.release(remove=remove)


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
