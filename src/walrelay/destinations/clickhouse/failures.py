"""What ClickHouse or the network says when something went wrong, in our words.

Its own words may hold values of rows, so only the error's name and number are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from walrelay.errors import (
    DestinationError,
    DestinationLoginError,
    DestinationNotWritableError,
    DestinationRightsError,
    DestinationUnreachableError,
    SpecialValueError,
    WalrelayError,
)
from walrelay.model.names import TableId

_NO_ENTRY = {
    192: "UNKNOWN_USER", 193: "WRONG_PASSWORD", 194: "REQUIRED_PASSWORD", 516: "AUTHENTICATION_FAILED",
}  # fmt: skip
_NO_RIGHT = {164: "READONLY", 291: "DATABASE_ACCESS_DENIED", 497: "ACCESS_DENIED"}
_PASSING = {
    159: "TIMEOUT_EXCEEDED", 160: "TOO_SLOW", 201: "QUOTA_EXCEEDED", 202: "TOO_MANY_SIMULTANEOUS_QUERIES",
    203: "NO_FREE_CONNECTION", 209: "SOCKET_TIMEOUT", 210: "NETWORK_ERROR", 236: "ABORTED",
    241: "MEMORY_LIMIT_EXCEEDED", 242: "TABLE_IS_READ_ONLY", 252: "TOO_MANY_PARTS", 285: "TOO_FEW_LIVE_REPLICAS",
    286: "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", 289: "REPLICA_IS_NOT_IN_QUORUM", 319: "UNKNOWN_STATUS_OF_INSERT",
    394: "QUERY_WAS_CANCELLED", 425: "SYSTEM_ERROR", 439: "CANNOT_SCHEDULE_TASK", 473: "DEADLOCK_AVOIDED",
    517: "CANNOT_ASSIGN_ALTER", 574: "SERVER_OVERLOADED", 745: "SERVER_OVERLOADED", 999: "KEEPER_EXCEPTION",
}  # fmt: skip
"""Of which time heals: what was sent may be sent again."""
_FULL = {243: "NOT_ENOUGH_SPACE"}


@contextmanager
def telling(doing: str) -> Iterator[None]:
    """Raise the client's errors as ours; `doing` says what was done when it failed."""
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        yield
    except ClickHouseError as error:
        raise _in_our_words(error, doing) from error
    except (ConnectionError, TimeoutError) as error:
        raise _unavailable(f"ClickHouse was lost while {doing}") from error


def _in_our_words(error: Exception, doing: str) -> WalrelayError:
    code, name = getattr(error, "code", None), getattr(error, "name", None)
    if code is None:
        return _unavailable(f"ClickHouse cannot be reached, or was lost, while {doing}")
    said = f"{name or 'an error'}, code {code}"
    if code in _NO_ENTRY:
        return DestinationLoginError(f"ClickHouse does not let this user in, while {doing} ({said})")
    if code in _NO_RIGHT:
        return DestinationRightsError(f"the user of ClickHouse may not do this: {doing} ({said})")
    if code in _PASSING:
        return DestinationUnreachableError(f"ClickHouse asks to wait, while {doing} ({said})")
    if code in _FULL:
        return DestinationNotWritableError(f"ClickHouse's disk is full, while {doing}", hint="Make room on its disk.")
    return DestinationError(
        f"ClickHouse failed while {doing} ({said})",
        hint="With --debug its own words are shown, which may hold values of rows. Copy the table again.",
        context={"clickhouse_code": code},
    )


def _unavailable(message: str) -> DestinationUnreachableError:
    return DestinationUnreachableError(message)


@contextmanager
def naming(table: TableId, name: object) -> Iterator[None]:
    """Failures inside are this table's: the others go on without it. Not so where the server is gone."""
    try:
        yield
    except DestinationUnreachableError:
        raise
    except (DestinationError, SpecialValueError) as error:
        error.context.setdefault("table", str(name))
        error.context["table_id"] = table
        raise
