"""Looks at the catalog: what tables look like, and whether anything was altered since the last look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import sql

from walrelay.model.fingerprints import Fingerprint, Membership, Storage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.model.sightings import LookTime, SeenColumn, Sighting
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.sql import statement

_LISTS_VERSION, _GENERATED_VERSION = 150_000, 180_000
_TRIGGER = (
    "SELECT coalesce(string_agg(concat_ws(':', oid, xmin, evtenabled), ',' ORDER BY oid), '') AS mark"
    " FROM pg_catalog.pg_event_trigger WHERE evtname LIKE 'walrelay%' AND evtenabled <> 'D'"
)
_POSITION = (
    "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8 AS oldest,"
    " pg_catalog.pg_current_snapshot()::text AS visible,"
    " CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
    " ELSE pg_catalog.pg_current_wal_insert_lsn() END::text AS lsn"
)


def pulse(connection: Connection, publication: str, tables: Sequence[TableId]) -> str:
    """A word that changes with whatever is altered of these tables, their types, and the publication."""
    with talking("looking at the catalog"):
        row = connection.execute(statement("pulse"), {"tables": list(tables), "publication": publication}).fetchone()
    assert row is not None  # an aggregate has one row
    return str(row.pulse)


@dataclass(frozen=True, slots=True)
class Looked:
    """The tables as one look found them; one that is gone, or not in the publication any more, is left out."""

    tables: dict[TableId, Fingerprint]
    time: LookTime


def look(connection: Connection, publication: str, tables: Sequence[TableId]) -> Looked:
    """The tables as they are now."""
    version = connection.info.server_version
    given = {"tables": list(tables), "publication": publication}
    membership = "membership_15" if version >= _LISTS_VERSION else "membership_14"
    with talking("looking at the catalog"):
        began = _one(connection, _POSITION)
        members = {row.id: row for row in connection.execute(statement(membership), given).fetchall()}
        rows = connection.execute(statement("fingerprints"), given).fetchall()
        trigger = _one(connection, _TRIGGER)
        ended = _one(connection, _POSITION)
    found = {
        row.id: _fingerprint(row, members[row.id], trigger.mark, began.oldest, version)
        for row in rows
        if row.id in members
    }
    return Looked(found, LookTime(Lsn.parse(began.lsn), Lsn.parse(ended.lsn), began.visible))


def _one(connection: Connection, question: LiteralString) -> Any:
    row = connection.execute(question).fetchone()
    assert row is not None  # neither has a FROM that could be empty
    return row


def _fingerprint(row: Any, member: Any, trigger: str, oldest: int, version: int) -> Fingerprint:
    membership = Membership(member.publication, member.membership, member.filter, member.columns, member.by_all)
    listed = None if member.own_columns is None else {int(one) for one in member.own_columns.split()}
    columns = tuple(
        SeenColumn(
            attnum, name, type_, modifier, by,
            sent=not dropped and _is_sent(attnum, generated, listed, member.sends_generated, version), dropped=dropped,
        )
        for attnum, name, type_, modifier, by, generated, dropped in row.columns
    )  # fmt: skip
    return Fingerprint(
        name=TableName(row.schema, row.name),
        sighting=Sighting(row.id, columns, row.made_by or 0, membership.mark(), trigger),
        membership=membership,
        expressions=tuple((attnum, oid) for attnum, oid in row.expressions),
        storage=tuple(Storage(*one) for one in row.storage),
        labels=tuple((oid, label, by) for oid, label, by in row.labels),
        attributes=tuple(tuple(one) for one in row.attributes),
        oldest_xid=oldest,
    )


def _is_sent(attnum: int, generated: str, listed: set[int] | None, sends_generated: bool, version: int) -> bool:
    """Whether the stream has the column. Before Postgres 18 it never has a generated one, and a virtual one never."""
    if generated == "v" or (generated and version < _GENERATED_VERSION):
        return False
    return attnum in listed if listed is not None else not generated or bool(sends_generated)


def holds_rows_from_before(connection: Connection, relation: TableName, xid: int, *, or_by: bool = False) -> bool:
    """Whether the relation alone holds a row that a transaction before `xid` (with `or_by`: or it) has written. VACUUM
    FULL and CLUSTER keep who wrote a row; a rewriting ALTER TABLE is written by nobody but itself."""
    older = sql.SQL(">=" if or_by else ">")
    question = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} WHERE age(xmin) {} age({}::text::xid)) AS there").format(
        sql.Identifier(relation.schema, relation.name), older, sql.Literal(str(xid % (1 << 32)))
    )
    with talking(f"looking at the rows of {relation}"):
        row = connection.execute(question).fetchone()
    return row is not None and bool(row.there)


@dataclass(frozen=True, slots=True)
class Entry:
    """A relation in the catalog."""

    name: TableName
    written_by: int
    """The transaction that wrote the entry last, as whoever gives the relation new files does."""


def entries(connection: Connection, relations: Sequence[TableId]) -> dict[TableId, Entry]:
    """Those of the relations that are still there."""
    with talking("looking up partitions"):
        rows = connection.execute(
            "SELECT c.oid::int8 AS id, n.nspname::text AS schema, c.relname::text AS name, c.xmin::text::int8 AS by_xid"
            " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = ANY (%s::oid[])",
            (list(relations),),
        ).fetchall()
    return {row.id: Entry(TableName(row.schema, row.name), row.by_xid) for row in rows}
