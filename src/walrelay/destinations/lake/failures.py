"""What Spark says when it could not write a table, in our words, with the table's name: the others go on without it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from walrelay.errors import DestinationError, DiskFullError, SparkLostError, SpecialValueError, WalrelayError, from_text
from walrelay.model.names import TableId

_RAISED = re.compile(r"USER_RAISED_EXCEPTION\][^\n]*?(walrelay-error:[^\n]*)")
"""What a statement of ours has raised. Without the first word Spark only shows the text of a statement."""
_FULL = "No space left on device"


@contextmanager
def naming(table: TableId, name: object, doing: str) -> Iterator[None]:
    """Failures inside are this table's: `name` is for people, `doing` says what was done to it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _named(_in_our_words(error, name, doing), table, name) from error
    except (Py4JError, ConnectionError) as error:
        raise SparkLostError(f"Spark was lost while {doing} {name}") from error
    except (DestinationError, SpecialValueError) as error:
        raise _named(error, table, name) from error.__cause__
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(f"the disk is full: {error.filename}") from error
        raise _named(DestinationError(f"could not write {name}: {error.strerror}"), table, name) from error


def _in_our_words(error: Exception, name: object, doing: str) -> WalrelayError:
    said = str(error)
    raised = _RAISED.search(said)
    own = None if raised is None else from_text(raised[1])
    if own is not None:
        return own
    if _FULL in said:
        return DiskFullError(f"the disk is full while {doing} {name}")
    return DestinationError(
        f"Spark failed while {doing} {name} ({type(error).__name__})",
        hint="Copy the table again; with --debug Spark's own words are shown.",
    )


def _named(error: WalrelayError, table: TableId, name: object) -> WalrelayError:
    error.context.setdefault("table", str(name))
    error.context["table_id"] = table
    return error
