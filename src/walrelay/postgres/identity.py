"""Which database this is, wherever it is found: two that are copies of each other byte by byte cannot be told apart."""

from __future__ import annotations

from collections.abc import Collection

from psycopg import errors as pg

from walrelay.model.names import TableId, TableName
from walrelay.postgres.connection import Connection, talking
from walrelay.postgres.sql import statement


def source_id(connection: Connection) -> str | None:
    """The server's system identifier and the database's oid; None where the server does not say it (everybody may ask,
    unless somebody has revoked that). For connections that commit by themselves."""
    try:
        with talking("asking which database it is"):
            row = connection.execute(statement("source_identity")).fetchone()
    except Exception as error:
        if isinstance(error.__cause__, (pg.InsufficientPrivilege, pg.UndefinedFunction)):
            return None
        raise
    return None if row is None else f"{row.system_identifier}/{row.database}"


def table_names(connection: Connection, tables: Collection[TableId]) -> dict[TableId, TableName]:
    """What these tables are called now; those that are gone are left out."""
    with talking("asking for the names of tables"):
        rows = connection.execute(statement("table_names"), {"tables": list(tables)}).fetchall()
    return {row.oid: TableName(row.schema_name, row.table_name) for row in rows}
