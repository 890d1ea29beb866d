"""What can go wrong with a Postgres database that is written to, and which of our errors says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from walrelay.errors import (
    AuthenticationError,
    DatabaseMissingError,
    DestinationBusyError,
    DestinationError,
    DestinationNotWritableError,
    OtherSourceError,
    SourceError,
    StoppedError,
    TlsError,
    WalrelayError,
)
from walrelay.model.schema import TableSchema
from walrelay.postgres.silence import Stalled


class TargetLostError(DestinationError):
    """The database that is written to does not answer, or the connection to it was lost."""

    code = "destination.postgres_unreachable"
    default_hint = "Check that the server runs and can be reached; what was not confirmed is sent again."
    retryable = True


class TargetLoginError(DestinationError):
    """The database that is written to refused the user, the password or the encryption, or does not exist."""

    code = "destination.postgres_login"
    may_pass = True
    default_hint = "Check user, password, database and sslmode in the destination's URL, and the server's pg_hba.conf."


class TargetRightsError(DestinationNotWritableError):
    """The user lacks a right in the database that is written to."""

    code = "destination.postgres_rights"
    may_pass = True
    default_hint = (
        "GRANT CREATE, TEMPORARY ON DATABASE … TO …; and of schemas that are there: GRANT ALL ON SCHEMA … TO …;"
    )


class TargetReadOnlyError(DestinationNotWritableError):
    """The database that is written to takes no writes: it is a standby, or read-only by a setting."""

    code = "destination.postgres_read_only"
    may_pass = True
    default_hint = "Give the primary's address, or a URL with target_session_attrs=read-write that names all servers."


class TargetLockedError(DestinationBusyError):
    """Others hold a lock on a table that is to be altered or replaced."""

    code = "destination.postgres_locked"
    retryable = True
    default_hint = (
        "It is tried again. Who holds the lock: SELECT pid, query FROM pg_stat_activity WHERE pid = ANY"
        " (SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity);"
    )


class TargetTypeError(DestinationError):
    """The database that is written to lacks a type that a column has, and walrelay cannot make it."""

    code = "destination.postgres_type"
    may_pass = True


class TargetFullError(DestinationError):
    """The server that is written to has no space or memory left, or no connection."""

    code = "destination.postgres_full"
    retryable = True
    default_hint = "Free some space there, or raise the limit that its log names; what was not confirmed is sent again."


class OwnSourceError(OtherSourceError):
    """The destination is the database that the rows come from."""

    code = "destination.own_source"
    default_hint = "Give another database: its tables would be replaced by copies of themselves."


_BY_STATE: tuple[tuple[str, type[DestinationError]], ...] = (
    ("28", TargetLoginError),
    ("3D000", TargetLoginError),
    ("42501", TargetRightsError),
    ("25006", TargetReadOnlyError),
    ("55P03", TargetLockedError),
    ("40", TargetLockedError),
    ("57014", TargetLostError),
    ("57P0", TargetLostError),
    ("08", TargetLostError),
    ("53", TargetFullError),
    ("54", DestinationError),
)
"""First match wins: SQLSTATE (or its class) → our error."""
_OF_TABLE = ("21", "22", "23", "42")
"""Classes of SQLSTATE that one table's rows or columns are the reason of; the others can go on."""


def failure(error: psycopg.Error, *, doing: str) -> WalrelayError:
    """Postgres's error as ours. Only its code is told, or words that hold no value: others may quote a row."""
    if isinstance(error, Stalled) and error.stopping:
        return StoppedError(f"stopped while {doing}")
    state = error.sqlstate
    if state is None:
        return TargetLostError(f"the connection to the destination was lost while {doing}")
    kind = next((kind for prefix, kind in _BY_STATE if state.startswith(prefix)), DestinationError)
    said = f": {error.diag.message_primary}" if kind in (TargetRightsError, TargetLockedError) else ""
    hint = None if kind is not DestinationError else "Run again with --debug for its own words."
    return kind(f"the destination failed ({state}) while {doing}{said}", hint=hint, context={"sqlstate": state})


@contextmanager
def writing(doing: str) -> Iterator[None]:
    """Turn psycopg's errors raised inside into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise failure(error, doing=doing) from error


@contextmanager
def naming(schema: TableSchema) -> Iterator[None]:
    """Say of a failure which table it is about, when it is not about the whole database."""
    context = {"table": str(schema.name), "table_id": schema.id}
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is not None and error.sqlstate != "42501" and error.sqlstate.startswith(_OF_TABLE):
            raise DestinationError(
                f"the destination could not take {schema.name} (SQLSTATE {error.sqlstate})",
                hint="Copy the table again with `walrelay resync`; with --debug the server's own words are shown.",
                context={**context, "sqlstate": error.sqlstate},
            ) from error
        raise
    except WalrelayError as error:
        if not error.retryable:
            error.context.setdefault("table", str(schema.name))
            error.context["table_id"] = schema.id
        raise


def login_failure(error: SourceError, where: str) -> DestinationError:
    """What connecting failed with, said of the destination."""
    said = error.message.replace("the source said", "it said")
    if isinstance(error, AuthenticationError | DatabaseMissingError | TlsError):
        return TargetLoginError(f"the destination {said}", hint=error.hint)
    return TargetLostError(f"the destination {said}" if where in said else f"the destination {where}: {said}")
