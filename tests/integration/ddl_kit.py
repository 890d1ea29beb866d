"""A database with the DDL trigger, and what its stream says."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg
from psycopg import sql

from walrelay.model.ddl import PREFIX, DdlFailed, DdlMessage, TableAltered, TableDropped, parse_ddl
from walrelay.model.names import TableName
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.source_migrations import Action, install, uninstall
from walrelay.testing.postgres import EmbeddedPostgres

ALL = "witness"
"""A publication of all tables would be noise for the tests, so the slot is read with an empty one, or with theirs."""


class Source:
    """A database of its own with a slot; `run` executes as the superuser, each statement in a transaction."""

    def __init__(self, url: str, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self.url = url
        self.admin = connection
        self.slot = f"ddl_{uuid4().hex[:10]}"
        self.version = connection.info.server_version // 10_000

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.admin.execute(statement)  # type: ignore[call-overload]

    def value(self, query: str) -> object:
        row = self.admin.execute(query).fetchone()  # type: ignore[call-overload]
        return None if row is None else row[0]

    def id(self, table: str) -> int:
        found = self.value(f"SELECT '{table}'::regclass::oid::int8")
        assert isinstance(found, int)
        return found

    def install(self) -> Action:
        with closing(connect(PostgresSource(self.url))) as connection:
            return install(connection)

    def uninstall(self) -> Action:
        with closing(connect(PostgresSource(self.url))) as connection:
            return uninstall(connection)

    def stream(self, publication: str = ALL) -> list[bytes]:
        """The messages of pgoutput since the last call, in order."""
        rows = self.admin.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
            (self.slot, publication),
        ).fetchall()
        return [bytes(row[0]) for row in rows]  # type: ignore[arg-type]

    def said(self) -> list[DdlMessage]:
        """What the trigger has said since the last call."""
        return [parse_ddl(content(message)) for message in self.stream() if message[:1] == b"M"]

    def altered(self) -> dict[str, TableAltered]:
        """The tables of which it has said something since the last call, by name; it said nothing else."""
        messages = self.said()
        for message in messages:
            assert isinstance(message, TableAltered), message
        return {named(message): message for message in messages if isinstance(message, TableAltered)}


def content(message: bytes) -> bytes:
    """Of a logical message: it is transactional, and ours."""
    assert message[:2] == b"M\x01"
    end = message.index(0, 10)
    assert message[10:end].decode() == PREFIX
    (length,) = struct.unpack_from("!I", message, end + 1)
    assert len(message) == end + 5 + length
    return message[end + 5 :]


def named(message: DdlMessage) -> str:
    match message:
        case TableAltered(table=table):
            return plain(table.name)
        case TableDropped(name=name):
            return f"dropped {plain(name)}"
        case DdlFailed(sqlstate=state):
            return f"failed {state}"


def plain(name: TableName) -> str:
    return name.name if name.schema == "public" else f"{name.schema}.{name.name}"


@contextmanager
def fresh_source(server: EmbeddedPostgres, *, options: str = "", migrated: bool = True) -> Iterator[Source]:
    """A database of the test's own, dropped afterwards."""
    name = f"ddl_{uuid4().hex[:10]}"
    with psycopg.connect(server.url, autocommit=True) as maintenance:
        maintenance.execute(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), sql.SQL(options)))  # type: ignore[arg-type]
        url = server.url.rpartition("/")[0] + f"/{name}"
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                source = Source(url, connection)
                # What is not flushed yet a slot does not give.
                source.run("SET synchronous_commit = on", "SET client_min_messages = error")
                source.run(f"CREATE PUBLICATION {ALL}")
                if migrated:
                    assert source.install() == "installed"
                source.run(f"SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput')")
                yield source
                connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
        finally:
            maintenance.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (name,)
            )
            maintenance.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
