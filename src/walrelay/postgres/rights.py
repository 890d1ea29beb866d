"""A missing right, with the statement that gives it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from walrelay.errors import RightsError, RowSecurityError, SourceError
from walrelay.model.names import TableName
from walrelay.postgres.connection import connect, talking
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.sql import statement


@contextmanager
def naming_grants(source: PostgresSource, table: TableName) -> Iterator[None]:
    """A right that turns out to be missing inside the block is told with the statements that give it."""
    try:
        yield
    except RowSecurityError as error:
        role = quoted_role(source)
        hint = f"ALTER ROLE {role} BYPASSRLS; or copy as the owner of {table}. Else rows would silently be missing."
        raise _with_hint(error, hint, table) from error
    except RightsError as error:
        grants = missing_grants(source, table)
        if not grants:
            raise
        raise _with_hint(error, " ".join(grants), table) from error


def missing_grants(source: PostgresSource, table: TableName) -> list[str]:
    """The statements that let the role read the table; none when it may read some columns, or nobody can be asked."""
    asked = {"schema": table.schema, "name": table.name}
    with suppress(SourceError), connect(source, application="walrelay rights") as connection:
        with talking("asking for rights"):
            rows = connection.execute(statement("missing_rights"), asked).fetchall()
        return [row.statement for row in rows]
    return []


def quoted_role(source: PostgresSource) -> str:
    """The role that asks the source, for a statement."""
    return _quoted(source, "user")


def quoted_database(source: PostgresSource) -> str:
    """The database that is asked, for a statement."""
    return _quoted(source, "dbname") or _quoted(source, "user")


def _quoted(source: PostgresSource, keyword: str) -> str:
    """As it was given, or by libpq's default."""
    default = next((one.val for one in Conninfo.get_defaults() if one.keyword.decode() == keyword), None)
    name = conninfo_to_dict(source.conninfo).get(keyword) or (default or b"").decode()
    return sql.Identifier(str(name)).as_string(None) if name else ""


def _with_hint(error: RightsError, hint: str, table: TableName) -> RightsError:
    return type(error)(error.message, hint=hint, context={**error.context, "table": str(table)})
