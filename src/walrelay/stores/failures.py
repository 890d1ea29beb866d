"""What can go wrong with a store, by name.

What a database says about a failure may quote a value or a connection string, so its text never reaches a message: only
its code, or words of our own, do (SEMANTICS 22).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from walrelay.errors import WalrelayError


class StoreError(WalrelayError):
    """Something about the store, where a pipeline keeps what it must remember."""

    code = "store"
    default_hint = (
        "Nothing was lost. Look at the store's disk or its server's log, then run again; with --debug more is shown."
    )


class StoreUnreachableError(StoreError):
    """The store's server does not answer, or has no connection left."""

    code = "store.unreachable"
    default_hint = "Check that the store's server runs and can be reached; it is tried again, and nothing was lost."
    retryable = True


class StoreBusyError(StoreUnreachableError):
    """Another program holds the store's file locked."""

    code = "store.busy"
    default_hint = "Another program holds the store's file for too long: end it, or wait; it is tried again."


class StoreAuthenticationError(StoreError):
    """The store's server refused the user or the password."""

    code = "store.authentication"
    default_hint = "Check user and password of the store's URL (or PGPASSWORD, ~/.pgpass) and the server's pg_hba.conf."


class StoreNotFoundError(StoreError):
    """There is no store, no directory or no database in this place."""

    code = "store.not_found"
    default_hint = "Check the store's path, or the database name at the end of its URL."


class StoreNotWritableError(StoreError):
    """The store cannot be written to."""

    code = "store.not_writable"
    default_hint = (
        "Check that you may write there: a file in a directory of yours, or a role with CREATE on the database or, once"
        " the schema walrelay exists, all rights on its tables."
    )


class StoreDiskFullError(StoreError):
    """The disk is full where the store is."""

    code = "store.disk_full"
    default_hint = "Free some space where the store lives; nothing was lost."


class StoreInUseError(StoreError):
    """Another process runs this pipeline, or has taken it over."""

    code = "store.in_use"
    default_hint = "A pipeline runs once. Stop the other process, or give this pipeline another id."


class StoreDamagedError(StoreError):
    """The store does not hold what was written, or belongs to another program."""

    code = "store.damaged"
    default_hint = (
        "Restore the store from a backup; or move it away and run again, which makes a new one and copies the tables."
    )


class StoreNewerSchemaError(StoreError):
    """A newer walrelay has written the store."""

    code = "store.newer_schema"
    default_hint = "Use the version of walrelay that wrote the store, or a newer one."


class StoreLineageError(StoreError):
    """What the store remembers was reached through another slot or server."""

    code = "store.lineage"
    default_hint = (
        "The slot was made anew, or belongs to another server: what was reached before says nothing about it. Delete"
        " the old progress and copy the tables again."
    )


class NoEarlierPhaseError(StoreError):
    """The table stands at its first phase: there is none to go back to."""

    code = "store.no_earlier_phase"
    default_hint = "The table stands at its first phase; `walrelay resync` copies it again."


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """What was stored and cannot be understood inside the block is damage, of `what`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreDamagedError(f"{what} is damaged") from error
