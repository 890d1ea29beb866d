"""What a preflight asks the source: a handful of questions, however many tables there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from walrelay.errors import ConfigError, PublicationEmptyError, PublicationMissingError, WalrelayError
from walrelay.model.schema import PgType
from walrelay.postgres.catalog import PublishedTable, check_version, published_tables
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.leaf_identities import OddLeaf, odd_leaves
from walrelay.postgres.slot_wait import OpenTransaction, open_transactions
from walrelay.postgres.source_migrations import TriggerState, trigger_state
from walrelay.postgres.sql import statement
from walrelay.postgres.types import TypeCatalog

# Where the server's owner is not its administrator, logical WAL is switched on under another name.
MANAGED_SETTINGS = {
    "rds.logical_replication": "Set rds.logical_replication = 1 in the parameter group, and reboot.",
    "cloudsql.logical_decoding": "Set the flag cloudsql.logical_decoding = on, and restart.",
}
# Amazon gives the right to replicate through membership, since REPLICATION is reserved to its own superuser.
REPLICATION_ROLES = ("rds_replication",)
GENERATED_PUBLISHED_FROM = 180_000
OLD_TRANSACTION = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Server:
    """The server's settings and the rights of the role we are; `role` is quoted as SQL wants it."""

    version: int
    version_text: str
    is_standby: bool
    standby_feedback: bool
    wal_level: str
    managed_settings: tuple[str, ...]
    max_slots: int
    used_slots: int
    idle_slots: tuple[str, ...]
    max_senders: int
    used_senders: int
    slot_wal_keep_mb: int
    """-1 is unlimited."""
    idle_slot_timeout: str | None
    """As the server prints it, '0' when off; None before Postgres 18."""
    backend_pid: int
    """Of the process that answered our question."""
    greeted_pid: int
    """Of the process that answered our connection."""
    role: str
    may_replicate: bool
    replication_role: str | None
    """A role on this server whose members may replicate."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    name: str
    type: PgType
    generated: str
    """'' when it is not, 's' stored, 'v' virtual."""
    in_key: bool
    published: bool
    read: bool
    """Whether the copy reads it: it is published, or the row filter needs it."""
    may_be_toasted: bool
    """Whether its values may be stored outside of their rows."""


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """A relation with storage; names are quoted as SQL wants them."""

    name: str
    schema: str
    kind: str
    """As `pg_class.relkind`."""
    identity: str
    """As `pg_class.relreplident`: d(efault), n(othing), f(ull), i(ndex)."""
    replica_key: tuple[str, ...] | None
    """The columns that identify a row in the stream; None where there is none, or the whole row."""
    schema_usage: bool
    unreadable: tuple[str, ...]
    partly_readable: bool
    row_security: bool
    """Whether policies would filter what this role reads."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A published table: its columns, and the relations that hold its rows."""

    name: str
    columns: tuple[ColumnFacts, ...]
    leaves: tuple[LeafFacts, ...]
    has_row_filter: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks look at."""

    location: str
    server: Server
    publication: str
    """Quoted as SQL wants it."""
    operations: dict[str, bool]
    """insert, update, delete, truncate: whether the publication has them. Empty without a publication."""
    publication_error: WalrelayError | None
    tables: tuple[TableFacts, ...]
    ddl_trigger: TriggerState
    odd_leaves: tuple[OddLeaf, ...]
    open_transactions: tuple[OpenTransaction, ...]
    """Those that a slot's creation would have to wait for longer than a moment."""


def read_facts(connection: Connection, publication: str, location: str, *, old: timedelta = OLD_TRANSACTION) -> Facts:
    """Ask the source everything. A missing or empty publication is a fact, not a failure."""
    version = check_version(connection)
    asked = {
        "publication": publication,
        "managed_settings": list(MANAGED_SETTINGS),
        "replication_roles": list(REPLICATION_ROLES),
    }
    with talking("reading the server's settings"):
        row = connection.execute(statement("preflight_server"), asked).fetchone()
        found = connection.execute(statement("publication"), asked).fetchone()
    assert row is not None  # the role that is logged in has a row in pg_roles
    tables, failure = _published(connection, publication)
    return Facts(
        location=location,
        server=_server(row, version, connection.info.backend_pid),
        publication=row.publication,
        operations={} if found is None else _operations(found),
        publication_error=failure,
        tables=_tables(connection, publication, tables, version),
        ddl_trigger=trigger_state(connection),
        odd_leaves=tuple(odd_leaves(connection, [table.id for table in tables])),
        open_transactions=open_transactions(connection, old=old),
    )


def _published(connection: Connection, publication: str) -> tuple[list[PublishedTable], WalrelayError | None]:
    if not publication:
        return [], ConfigError("no publication was named", hint="Name it: --publication NAME.")
    try:
        return published_tables(connection, publication), None
    except (PublicationMissingError, PublicationEmptyError) as error:
        return [], error


def _server(row: Any, version: int, greeted_pid: int) -> Server:
    fields = row._asdict()
    del fields["publication"]
    fields["managed_settings"] = tuple(row.managed_settings)
    fields["idle_slots"] = tuple(row.idle_slots)
    return Server(**fields, version=version, greeted_pid=greeted_pid)


def _operations(row: Any) -> dict[str, bool]:
    return {"insert": row.inserts, "update": row.updates, "delete": row.deletes, "truncate": row.truncates}


def _tables(
    connection: Connection, publication: str, tables: Iterable[PublishedTable], version: int
) -> tuple[TableFacts, ...]:
    by_id = {table.id: table for table in tables}
    asked = {"tables": list(by_id), "publication": publication}
    with talking("reading the published tables"):
        columns = connection.execute(statement("preflight_columns"), asked).fetchall()
        leaves = connection.execute(statement("preflight_leaves"), asked).fetchall()
    types = TypeCatalog(connection, (row.type for row in columns))
    columns_of: dict[int, list[ColumnFacts]] = defaultdict(list)
    for row in columns:
        columns_of[row.table_id].append(_column(row, by_id[row.table_id], types, version))
    leaves_of: dict[int, list[LeafFacts]] = defaultdict(list)
    for row in leaves:
        leaves_of[row.table_id].append(_leaf(row))
    return tuple(
        TableFacts(
            str(table.name), tuple(columns_of[table.id]), tuple(leaves_of[table.id]), table.row_filter is not None
        )
        for table in by_id.values()
    )


def _column(row: Any, table: PublishedTable, types: TypeCatalog, version: int) -> ColumnFacts:
    published = table.columns is None or row.name in table.columns
    if row.generated and (table.columns is None or version < GENERATED_PUBLISHED_FROM):
        published = False  # pg_publication_tables of 15 names them, but the stream does not have them
    type_ = types.resolve(row.type, display=row.display)
    read = published or row.is_named
    return ColumnFacts(row.name, type_, row.generated, row.in_key, published, read, row.may_be_toasted)


def _leaf(row: Any) -> LeafFacts:
    fields = row._asdict()
    del fields["table_id"]
    fields["unreadable"] = tuple(row.unreadable)
    fields["replica_key"] = None if row.replica_key is None else tuple(row.replica_key)
    return LeafFacts(**fields)
