"""What can go wrong with a store, by name.

What a database says about a failure may quote a value or a connection string, so its text never reaches a message: only
its code, or words of our own, do (SEMANTICS 22).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from walrelay.errors import WalrelayError


class StoreError(WalrelayError):
    code = "store"


class StoreUnreachableError(StoreError):
    code = "store.unreachable"
    default_hint = "Check that the store's server runs and can be reached; it is tried again, and nothing was lost."
    retryable = True


class StoreBusyError(StoreUnreachableError):
    code = "store.busy"
    default_hint = "Another program holds the store's file for too long: end it, or wait; it is tried again."


class StoreAuthenticationError(StoreError):
    code = "store.authentication"
    default_hint = "Check user and password of the store's URL (or PGPASSWORD, ~/.pgpass) and the server's pg_hba.conf."


class StoreNotFoundError(StoreError):
    code = "store.not_found"
    default_hint = "Check the store's path, or the database name at the end of its URL."


class StoreNotWritableError(StoreError):
    code = "store.not_writable"
    default_hint = (
        "Check that you may write there: a file in a directory of yours, or a role with CREATE on the database or, once"
        " the schema walrelay exists, all rights on its tables."
    )


class StoreDiskFullError(StoreError):
    code = "store.disk_full"
    default_hint = "Free some space where the store lives; nothing was lost."


class StoreInUseError(StoreError):
    code = "store.in_use"
    default_hint = "A pipeline runs once. Stop the other process, or give this pipeline another id."


class StoreDamagedError(StoreError):
    code = "store.damaged"
    default_hint = "Restore the store from a backup, or begin with a new one and copy the tables again."


class StoreNewerSchemaError(StoreError):
    code = "store.newer_schema"
    default_hint = "Use the version of walrelay that wrote the store, or a newer one."


class StoreLineageError(StoreError):
    code = "store.lineage"
    default_hint = (
        "The slot was made anew, or belongs to another server: what was reached before says nothing about it. Delete"
        " the old progress and copy the tables again."
    )


class NoEarlierPhaseError(StoreError):
    code = "store.no_earlier_phase"
    default_hint = "The table stands at its first phase; copy it again instead."


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """What was stored and cannot be understood inside the block is damage, of `what`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreDamagedError(f"{what} is damaged") from error
