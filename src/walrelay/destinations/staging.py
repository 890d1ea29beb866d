"""Where copies land before a destination takes them: one directory a run, locked while the run lives.

The lock is the kernel's (flock), so a killed run leaves none behind: whoever comes next sees that the directory is
nobody's and removes it. There is no lock file to delete by hand.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from walrelay.destinations.notices import waits_for_holder
from walrelay.errors import DestinationBusyError, DiskFullError, StagingError, StagingUnwritableError
from walrelay.stores.file_lock import FileLock, HeldError

SHARED_MEMORY = Path("/dev/shm")
"""For what nobody reads again, where there is some."""
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


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


@contextmanager
def staging_area(root: Path, *, timeout: timedelta, notify: Callable[[str], None]) -> Iterator[Path]:
    """`root` for this run alone, empty; waits for another run that has it, up to `timeout`. Gone afterwards."""
    told: list[str] = []

    def waiting(holder: str) -> None:
        if not told:
            notify(waits_for_holder(root, holder))
        told.append(holder)

    try:
        lock = _lock(root, timeout.total_seconds(), waiting)
    except HeldError as error:
        raise DestinationBusyError(
            f"another walrelay run has been using {root} for too long: {error.holder}",
            hint="Wait until it has ended, or stop it; or let this one land its copies elsewhere with --staging DIR.",
        ) from None
    except OSError as error:
        raise staging_failure(error, root) from error
    try:
        _empty(root)
        yield root
    finally:
        _leave(root, lock)


def temporary_root(base: Path | None = None) -> Path:
    """Where this user's runs have their temporary directories, by default below the system's."""
    parent = (base or Path(tempfile.gettempdir())) / f"walrelay-{os.getuid()}"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return parent


class RunDirectory:
    """A new directory below `parent`, ours until `remove`; those of dead runs are swept first. OSError where none can
    be made."""

    def __init__(self, parent: Path) -> None:
        sweep(parent)
        self.path = parent / f"run-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._lock = _lock(self.path, 0.0)

    def remove(self) -> None:
        """With all that is in it. Whoever still writes there, a process that is about to end, only loses files."""
        _leave(self.path, self._lock)


def sweep_leftovers() -> None:
    """Remove what runs of this user have left in temporary places that are dead by now."""
    for base in (None, SHARED_MEMORY if SHARED_MEMORY.is_dir() else None):
        with suppress(OSError):
            sweep(temporary_root(base))


def sweep(parent: Path) -> None:
    """Remove run directories under `parent` whose runs are dead."""
    for directory in parent.glob("run-*"):
        with suppress(OSError, HeldError):
            _leave(directory, _lock(directory, 0.0))


def _lock(directory: Path, patience: float, waiting: Callable[[str], None] | None = None) -> FileLock:
    while True:
        directory.mkdir(mode=0o700, exist_ok=True)
        try:
            return FileLock(directory / _LOCK, f"a walrelay run that lands copies in {directory}", patience, waiting)
        except FileNotFoundError:
            continue  # the last holder has removed the directory this moment


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.name != _LOCK:
            _remove(entry)


def _leave(directory: Path, lock: FileLock) -> None:
    """Remove the directory with all that is in it, then let go."""
    _empty(directory)
    (directory / _LOCK).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()
    lock.release()
