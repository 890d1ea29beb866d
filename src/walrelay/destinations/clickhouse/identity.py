"""Which database it is, by its own word: a table of ours with an id, which whoever comes first makes."""

from __future__ import annotations

from uuid import uuid4

from walrelay.destinations.clickhouse.client import Server
from walrelay.destinations.clickhouse.dialect import literal
from walrelay.destinations.clickhouse.names import OWN
from walrelay.destinations.format import readable

TABLE = f"{OWN}database"


def database_id(server: Server) -> str:
    """Made if need be. Of two that make one at the same time both take the lesser."""
    place = server.place(TABLE)
    server.command(
        f"CREATE TABLE IF NOT EXISTS {place} (id String) ENGINE = MergeTree ORDER BY id"
        " COMMENT 'by which walrelay knows this database again'",
        doing="making its own tables",
    )
    found = known_id(server)
    if found is None:
        server.command(f"INSERT INTO {place} VALUES ({literal(uuid4().hex)})", doing="making its own tables")
        found = known_id(server)
    assert found is not None, "it was written a moment ago"
    return found


def known_id(server: Server) -> str | None:
    """Of a database that has its table."""
    rows = server.rows(f"SELECT id FROM {server.place(TABLE)} ORDER BY id LIMIT 1")
    return readable(rows[0][0].decode(), server.place(TABLE)) if rows else None
