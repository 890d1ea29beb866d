"""Where copies land before a destination takes them: one directory a run, locked while the run lives.

The lock is the kernel's (flock), so a killed run leaves none behind: whoever comes next sees that the directory is
nobody's and removes it. There is no lock file to delete by hand.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from walrelay.errors import DestinationBusyError, DiskFullError, StagingError, StagingUnwritableError

_LOCK = "lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


def staging_failure(error: OSError, path: str | Path) -> StagingError:
    """Our error for a failed write at `path`."""
    where = Path(path).parent if Path(path).suffix else path
    if error.errno in _FULL or "No space left" in str(error):
        return DiskFullError(f"the disk is full: {where}")
    if error.errno == errno.ENOENT:
        return StagingUnwritableError(f"{where} does not exist, or not on this Spark worker")
    if error.errno in _FORBIDDEN:
        return StagingUnwritableError(f"cannot write to {where}: {os.strerror(error.errno or 0).lower()}")
    return StagingError(
        f"writing to {where} failed: {os.strerror(error.errno) if error.errno else type(error).__name__}"
    )


class RunLock:
    """An exclusive lock on a directory, held by this process until `release` or death."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _LOCK
        self._handle: int | None = None

    def acquire(self) -> int | None:
        """None when the lock is ours now, else the process id of its holder (0 when unknown)."""
        while True:
            self._path.parent.mkdir(exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(handle, 32).decode("ascii", "replace").strip()
                os.close(handle)
                return int(holder) if holder.isdigit() else 0
            if self._still_there(handle):
                os.truncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
                self._handle = handle
                return None
            # The last holder removed the file between our open and our lock: what we locked is nobody's.
            os.close(handle)

    def _still_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Remove the directory with all that is in it, then let go."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        directory = self._path.parent
        for entry in directory.iterdir():
            if entry != self._path:
                _remove(entry)
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            directory.rmdir()
        os.close(handle)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


@contextmanager
def staging_area(root: Path, *, timeout: timedelta, notify: Callable[[str], None]) -> Iterator[Path]:
    """`root` for this run alone, empty; waits for another run that has it, up to `timeout`. Gone afterwards."""
    lock = RunLock(root)
    deadline = time.monotonic() + timeout.total_seconds()
    told = False
    try:
        while (holder := lock.acquire()) is not None:
            if time.monotonic() >= deadline:
                raise DestinationBusyError(
                    f"another walrelay run (process {holder or 'unknown'}) has been using {root} for too long",
                    hint="Wait until it has ended, or stop it; or choose another destination or --staging DIR.",
                )
            if not told:
                notify(f"waiting for another walrelay run (process {holder or 'unknown'}) to finish with {root}")
                told = True
            time.sleep(0.2)
        for entry in root.iterdir():
            if entry.name != _LOCK:
                _remove(entry)
    except OSError as error:
        lock.release()
        raise staging_failure(error, root) from error
    try:
        yield root
    finally:
        lock.release()


def sweep(parent: Path) -> None:
    """Remove run directories under `parent` whose runs are dead."""
    for directory in parent.glob("run-*"):
        lock = RunLock(directory)
        with suppress(OSError):
            if lock.acquire() is None:
                lock.release()
