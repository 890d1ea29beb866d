"""What can go wrong with the log's storage, by name.

What an object store answers may quote the request, so its text never reaches a message: only the code it names does
(SEMANTICS 22).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from walrelay.errors import BEGIN_ANEW, WalrelayError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_STORE_CODE: Final = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))?")
_STORE_REFUSES: Final = frozenset(
    {
        "ACCESS_DENIED",
        "INVALID_ACCESS_KEY_ID",
        "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN",
        "NO_SUCH_BUCKET",
        "SIGNATURE_DOES_NOT_MATCH",
        "UNRECOGNIZED_CLIENT",
    }
)
_STATUS_REFUSES: Final = ("401", "403", "404")

# The AWS SDK inside pyarrow sends trailing checksums, which needs an encoding that some other stores do not know.
_CHECKSUM_HINT: Final = (
    "The store knows no trailing checksums: set AWS_REQUEST_CHECKSUM_CALCULATION=when_required in the environment."
)


class LogError(WalrelayError):
    """Something about the change log."""

    code = "log"


class LogDiskFullError(LogError):
    """The disk is full where the change log is."""

    code = "log.disk_full"
    default_hint = "Free some space, shorten the log's retention, or move the log to a larger disk; nothing was lost."


class LogNotWritableError(LogError):
    """The change log cannot be written to: a right, a directory or a bucket is missing."""

    code = "log.not_writable"
    default_hint = "Check that the log's directory or bucket exists and that these credentials may write there."


class LogUnreachableError(LogError):
    """The object store that holds the change log does not answer."""

    code = "log.unreachable"
    default_hint = "Check the log's address and the network; it is tried again, and nothing was lost."
    retryable = True


class LogInUseError(LogError):
    """Another process writes the change log, or has taken it over."""

    code = "log.in_use"
    default_hint = "One process writes a log. Stop the other one, or choose another log directory."


class LogDamagedError(LogError):
    """A file of the change log is missing or is not what was written."""

    code = "log.damaged"
    begins_anew = True
    default_hint = f"Restore the named file from a backup. Where there is none: {BEGIN_ANEW}"


class LogNewerFormatError(LogError):
    """A newer walrelay has written the change log."""

    code = "log.newer_format"
    default_hint = "Use the version of walrelay that wrote the log, or a newer one."


class LogGoneError(LogError):
    """What is to be read was removed from the change log."""

    code = "log.gone"
    default_hint = (
        "A pipeline copies its tables again: `walrelay resync --all`. Another reader starts from a later LSN. Before"
        " the next time give the log a longer retention (--retain-age)."
    )


class LogNotFoundError(LogError):
    """There is no change log in this place."""

    code = "log.not_found"
    default_hint = "Give the directory that `walrelay capture --log` writes to."


class LogNotFedError(LogError):
    """A pipeline that only follows a change log waits for somebody who writes to it."""

    code = "log.not_fed"
    default_hint = (
        "Run `walrelay capture` with the same --log, or let the pipeline capture by itself: leave out --follow, with"
        " the slot of that capture (--slot)."
    )


class LogSchemaChangedError(LogError):
    """The table's columns change within the range that is read as one table."""

    code = "log.schema_changed"
    default_hint = "Read this range without the option `table`, or start the query from a later LSN (option `from`)."


class LogLineageError(LogError):
    """The change log belongs to another slot or server."""

    code = "log.other_lineage"
    default_hint = "Choose another log directory for this slot; this one belongs to another slot or server."


def log_failure(error: OSError, where: str) -> LogError:
    """Our error for what the operating system or an object store said about `where`."""
    if error.errno in _FULL or "No space left" in str(error):
        return LogDiskFullError(f"the disk is full: {where}")
    if error.errno == errno.ENOENT or isinstance(error, FileNotFoundError):
        return LogNotWritableError(f"{where} does not exist")
    if error.errno in _FORBIDDEN:
        return LogNotWritableError(f"cannot use {where}: {os.strerror(error.errno or 0).lower()}")
    said = _STORE_CODE.search(str(error))
    if said is not None and said[2] == "411":
        return LogNotWritableError(f"the object store refuses {where}: {_spoken(said)}", hint=_CHECKSUM_HINT)
    if said is not None and (said[1] in _STORE_REFUSES or said[2] in _STATUS_REFUSES):
        return LogNotWritableError(f"the object store refuses {where}: {_spoken(said)}")
    if said is not None:
        return LogUnreachableError(f"cannot reach {where}: {_spoken(said)}")
    reason = os.strerror(error.errno).lower() if error.errno else type(error).__name__
    return LogUnreachableError(f"cannot reach {where}: {reason}")


def _spoken(said: re.Match[str]) -> str:
    return said[1].lower().replace("_", " ") + (f" (HTTP status {said[2]})" if said[2] else "")


@contextmanager
def named(where: str) -> Iterator[None]:
    """Failures of the storage inside the block become ours; a missing file stays FileNotFoundError.

    Also for writes through `Sink.file` and reads through `Storage.open`, which are pyarrow's own.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise log_failure(error, where) from error


@contextmanager
def named_write(where: str) -> Iterator[None]:
    """Like `named`, but a missing directory or bucket is a failure too: what is written need not be there yet."""
    try:
        yield
    except OSError as error:
        raise log_failure(error, where) from error
