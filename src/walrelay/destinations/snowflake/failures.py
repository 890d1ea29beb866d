"""What Snowflake says when something goes wrong, in our words: a table of its error numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from walrelay.errors import (
    DestinationError,
    DestinationLoginError,
    DestinationPlaceMissingError,
    DestinationRightsError,
    DestinationThrottledError,
    DestinationUnreachableError,
)

NUMBERS: Mapping[int, type[DestinationError]] = {
    604: DestinationThrottledError,  # cancelled: by a timeout, or a person
    606: DestinationPlaceMissingError,  # no warehouse is chosen
    607: DestinationThrottledError,  # a timeout of the statement
    625: DestinationThrottledError,  # a lock was waited for too long
    630: DestinationThrottledError,  # the same, of the warehouse
    2003: DestinationPlaceMissingError,  # not there, or not for this role
    2043: DestinationPlaceMissingError,
    3001: DestinationRightsError,
    90073: DestinationThrottledError,  # the warehouse's quota of credits is used up
    90105: DestinationPlaceMissingError,  # no database is chosen
    250001: DestinationUnreachableError,
    250003: DestinationUnreachableError,
    251001: DestinationLoginError,  # no account
    251005: DestinationLoginError,  # no user
    251006: DestinationLoginError,  # no password
    390100: DestinationLoginError,
    390101: DestinationLoginError,
    390111: DestinationUnreachableError,  # the session is over: the next one is another
    390112: DestinationUnreachableError,
    390114: DestinationUnreachableError,
    390144: DestinationLoginError,  # the key is not the user's
    390189: DestinationLoginError,  # the role is not the user's
    390201: DestinationPlaceMissingError,
}
"""Which of them time heals says each error itself."""


@contextmanager
def snowflake_failures(doing: str) -> Iterator[None]:
    """Exceptions of Snowflake's connector inside become ours. Its text may quote a value, and is not shown."""
    from snowflake.connector import errors

    lost = (
        errors.OperationalError,
        errors.InterfaceError,
        errors.InternalServerError,
        errors.ServiceUnavailableError,
        errors.GatewayTimeoutError,
        errors.BadGatewayError,
        errors.RequestTimeoutError,
        errors.TooManyRequests,
    )
    try:
        yield
    except errors.Error as error:
        number = int(error.errno or 0)
        kind = NUMBERS.get(number) or (DestinationUnreachableError if isinstance(error, lost) else DestinationError)
        raise kind(f"Snowflake failed while {doing} (error {number})") from error
    except (ConnectionError, TimeoutError) as error:
        raise DestinationUnreachableError(f"Snowflake does not answer, while {doing}") from error
