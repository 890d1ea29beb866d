"""Logical replication slots: make, look at, and refuse those that would lose or hide something."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import Any

import psycopg
from psycopg import errors as pg

from walrelay.errors import (
    ConfigError,
    SlotAheadError,
    SlotExistsError,
    SlotInUseError,
    SlotLostError,
    SlotMissingError,
    SlotUnusableError,
    WalLevelError,
    WalrelayError,
)
from walrelay.model.lsn import Lsn
from walrelay.postgres.connection import Connection, connect, talking, translate
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.sql import statement

_NAME = re.compile(r"[a-z0-9_]{1,63}\Z")
FAILOVER_VERSION = 170_000
FLUSH_SECONDS = 1.0
NUDGE_SECONDS = 1.0
"""The server's WAL writer flushes asynchronous commits within three of its rounds, 0.6 s as it is set by default."""
PAGE_HEADER = 40
FREE_SECONDS = 10.0


OWN_PREFIX = "walrelay_"
"""How the names of slots begin that pipelines have made for themselves."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as pg_replication_slots shows it."""

    name: str
    plugin: str | None
    kind: str
    database: str | None
    active_pid: int | None
    restart_lsn: Lsn | None
    confirmed_lsn: Lsn | None
    wal_status: str | None
    two_phase: bool
    failover: bool
    invalidation: str | None
    retained_bytes: int
    behind_bytes: int
    active_application: str | None = None
    """What the process that reads it calls itself; None also when that is hidden from our role."""
    active_client: str | None = None
    safe_wal_bytes: int | None = None


def check_slot_name(name: str) -> str:
    if not _NAME.match(name):
        raise ConfigError(
            f"not a name for a replication slot: {name!r}", hint="Use lower-case letters, digits and underscores."
        )
    return name


def find_slot(connection: Connection, name: str) -> Slot | None:
    with talking("looking at the replication slot"):
        row = connection.execute(statement("slot"), {"slot": name}).fetchone()
    return None if row is None else _slot(row)


def all_slots(connection: Connection) -> list[Slot]:
    """Every slot of the server, by name."""
    with talking("looking at the replication slots"):
        return [_slot(row) for row in connection.execute(statement("slot"), {"slot": None}).fetchall()]


def _slot(row: Any) -> Slot:
    return Slot(
        name=row.name,
        plugin=row.plugin,
        kind=row.slot_type,
        database=row.database,
        active_pid=row.active_pid,
        restart_lsn=Lsn.parse(row.restart_lsn) if row.restart_lsn else None,
        confirmed_lsn=Lsn.parse(row.confirmed_lsn) if row.confirmed_lsn else None,
        wal_status=row.wal_status,
        two_phase=row.two_phase,
        failover=row.failover,
        invalidation=row.invalidation_reason or ("recovery conflict" if row.conflicting else None),
        retained_bytes=row.retained_bytes or 0,
        behind_bytes=row.behind_bytes or 0,
        active_application=row.active_application or None,
        active_client=row.active_client,
        safe_wal_bytes=row.safe_wal_bytes,
    )


def create_slot(connection: Connection, name: str, *, failover: bool = False) -> Slot:
    """A new slot for pgoutput. Waits for transactions that are running; returns where it starts."""
    check_slot_name(name)
    if failover and connection.info.server_version < FAILOVER_VERSION:
        raise ConfigError("failover slots came with Postgres 17; this server is older", hint="Leave failover out.")
    options = "false, false, true" if failover else "false, false"
    try:
        connection.execute(f"SELECT pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput', {options})", (name,))
    except pg.DuplicateObject as error:
        raise SlotExistsError(f"there is a replication slot {name} already") from error
    except pg.ObjectNotInPrerequisiteState as error:
        raise WalLevelError("the server writes no logical WAL, so it can have no logical slot") from error
    except psycopg.Error as error:
        raise translate(error, doing="creating the replication slot") from error
    slot = find_slot(connection, name)
    if slot is None:
        raise SlotMissingError(f"the replication slot {name} vanished after it was made")
    return slot


def drop_slot(connection: Connection, name: str) -> None:
    """Idempotent; a slot in use is refused by the server."""
    with talking("dropping the replication slot"):
        connection.execute(
            "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots"
            " WHERE slot_name = %s",
            (name,),
        )


def check_usable(slot: Slot, database: str) -> None:
    """Refuse a slot that cannot give every change from its position on, each kind by name."""
    if slot.kind != "logical" or slot.plugin != "pgoutput":
        raise SlotUnusableError(
            f"the slot {slot.name} is {slot.kind} with plugin {slot.plugin or 'none'}; it must be logical, pgoutput",
            hint="Choose another name for the slot.",
        )
    if slot.database != database:
        raise SlotUnusableError(
            f"the slot {slot.name} belongs to database {slot.database}, not to {database}",
            hint="Choose another name for the slot, or connect to that database.",
        )
    if slot.two_phase:
        raise SlotUnusableError(
            f"the slot {slot.name} was made for two-phase commit, whose messages walrelay does not read",
            hint="Let walrelay make its own slot: prepared transactions then arrive whole, at COMMIT PREPARED.",
        )
    if slot.wal_status == "lost" or slot.invalidation is not None:
        why = f" ({slot.invalidation.replace('_', ' ')})" if slot.invalidation else ""
        raise SlotLostError(f"the server has invalidated the slot {slot.name}{why}: WAL that it needs is gone")


def check_position(slot: Slot, held: Lsn) -> None:
    """Postgres starts at the slot's own position when asked for an older one, without a word (SEMANTICS 5)."""
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > held:
        raise SlotAheadError(
            f"the slot {slot.name} was confirmed up to {slot.confirmed_lsn}, but the log ends at {held}: the changes"
            " between are in neither",
            context={"slot": slot.name, "confirmed": str(slot.confirmed_lsn), "held": str(held)},
        )


def end_server_process(connection: Connection, pid: int) -> None:
    """End one of our own role's."""
    with talking("ending a server process"):
        connection.execute(statement("end_peer"), {"pid": pid})


def in_use(slot: Slot) -> SlotInUseError:
    return SlotInUseError(
        f"the slot {slot.name} is in use by the server process {slot.active_pid}{reader(slot)}",
        hint=f"Stop the other reader, or end it with SELECT pg_terminate_backend({slot.active_pid});",
        context={"pid": slot.active_pid, "application": slot.active_application, "client": slot.active_client},
    )


def reader(slot: Slot) -> str:
    """Who reads the slot, as far as it can be told, in parentheses."""
    origin = f"from {slot.active_client}" if slot.active_client else None
    known = ", ".join(word for word in (slot.active_application, origin) if word)
    return f" ({known})" if known else ""


def wait_until_free(connection: Connection, name: str) -> None:
    """The server process that served us ends a moment after the connection; who waits for longer finds it in use."""
    deadline = time.monotonic() + FREE_SECONDS
    while time.monotonic() < deadline:
        slot = find_slot(connection, name)
        if slot is None or slot.active_pid is None:
            return
        time.sleep(0.01)


class Nudger:
    """Lets an idle server send all that it has, while somebody waits for it, at most once a second: it may have flushed
    half of a record, which nobody can decode before something is committed."""

    def __init__(self, source: PostgresSource, stopping: Event | None = None) -> None:
        self._source = source
        self._stopping = stopping
        self._next = time.monotonic() + NUDGE_SECONDS

    def still_waiting(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + NUDGE_SECONDS
        # A standby cannot; and who is waited for may be gone, which others find out.
        with (
            suppress(WalrelayError, psycopg.Error),
            connect(self._source, application="walrelay nudge", stopping=self._stopping) as connection,
        ):
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT pg_catalog.pg_current_xact_id()")


@dataclass(frozen=True, slots=True)
class WalEnd:
    """Where the next record goes, and up to where records are flushed; on a standby, up to where they were replayed."""

    inserted: Lsn
    flushed: Lsn
    standby: bool


def wal_end(connection: Connection) -> WalEnd:
    with talking("asking for the end of the WAL"):
        row = connection.execute(statement("wal_end")).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return WalEnd(Lsn.parse(row.inserted), Lsn.parse(row.flushed), row.standby)


def inserted_lsn(connection: Connection) -> Lsn:
    """Everything that was committed before now ends at or before this; some of it may not be flushed yet."""
    return wal_end(connection).inserted


def flushed_lsn(connection: Connection) -> Lsn:
    """Everything that was committed before now ends at or before this, and is flushed, so that it can be streamed.

    With synchronous_commit off a commit is flushed a moment later; that moment is waited for, on a busy server not to
    its end: then it is still to be flushed.
    """
    with talking("asking for the end of the WAL"):
        row = connection.execute(statement("wal_end")).fetchone()
        assert row is not None  # a SELECT without FROM has one row
        inserted = Lsn.parse(row.inserted)
        deadline = time.monotonic() + FLUSH_SECONDS
        # The insert position may stand behind a page header that nobody writes before the next record.
        while inserted - Lsn.parse(row.flushed) > PAGE_HEADER and time.monotonic() < deadline:
            time.sleep(0.01)
            row = connection.execute(statement("wal_end")).fetchone()
            assert row is not None
    flushed = Lsn.parse(row.flushed)
    return flushed if inserted - flushed <= PAGE_HEADER else inserted
