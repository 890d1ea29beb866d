"""Names that need care: followed through copy, changes and a rename, or refused by name; never mangled silently."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import sql

from walrelay.destinations.base import Destination, WriteResult
from walrelay.errors import CopyAgainError, WalrelayError
from walrelay.model.names import TableName
from walrelay.testing.contract.fixtures import SourceFactory
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.contract.stories import ODD_COLUMNS, ODD_RENAMED, ODD_TABLES
from walrelay.testing.contract.tables import TablesFixtures, as_text, names_table
from walrelay.testing.sample import Row

_KEY, *_OTHERS = ODD_COLUMNS


def _named(statement: str, table: str, *columns: str) -> str:
    """The statement with these names in it."""
    name = TableName.parse(table)
    parts = [sql.Identifier(name.schema, name.name), *(sql.Identifier(column) for column in columns)]
    return sql.SQL(statement).format(*parts).as_string()


def odd_ddl(tables: tuple[str, ...] = ODD_TABLES) -> str:
    """Tables that are called so, with such columns."""
    columns = "".join(", {} text" for _ in _OTHERS)
    schemas = {TableName.parse(table).schema for table in tables} - {"public"}
    return ";".join(
        [
            *(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)).as_string() for schema in schemas),
            *(_named(f"CREATE TABLE {{}} ({{}} int PRIMARY KEY{columns})", table, *ODD_COLUMNS) for table in tables),
            f"CREATE PUBLICATION contract FOR TABLE {', '.join(tables)}",
        ]
    )


def odd_changes(table: str, first: int) -> list[str]:
    """Every kind of change, so that every column is named in some statement."""
    values = ", ".join("'v' || g" for _ in _OTHERS)
    return [
        _named(f"INSERT INTO {{}} SELECT g, {values} FROM generate_series({first}, {first} + 4) g", table),
        *(_named(f"UPDATE {{}} SET {{}} = NULL WHERE {{}} = {first}", table, one, _KEY) for one in _OTHERS),
        _named("UPDATE {} SET {} = -{} WHERE {} = " + str(first + 1), table, _KEY, _KEY, _KEY),
        _named("DELETE FROM {} WHERE {} = " + str(first + 2), table, _KEY),
    ]


class OddNamesContract(TablesFixtures):
    """Of tables and columns. A table that cannot be held under its name is refused, and the others go on."""

    @pytest.fixture
    def odd_source(self, source_of: SourceFactory) -> ContractSource:
        return source_of(odd_ddl(), ODD_TABLES)

    def test_odd_names_are_kept_in_copies_and_in_changes_or_refused_by_name(
        self, odd_source: ContractSource, destination: Destination
    ) -> None:
        odd_source.do(*(_named("INSERT INTO {} VALUES (1)", table) for table in ODD_TABLES))
        held = [table for table in ODD_TABLES if self._copied(odd_source, destination, table)]
        assert held, "not every name is beyond every file system"
        before = odd_source.batch().to
        odd_source.do(*(statement for table in held for statement in odd_changes(table, 11)))
        destination.write_events(odd_source.batch(before, tables=held))
        assert self._odd(destination, held) == {table: odd_source.contents()[table] for table in held}

    def test_a_table_and_a_column_that_get_odd_names_are_followed_or_asked_for_again(
        self, source_of: SourceFactory, destination: Destination
    ) -> None:
        tables = "CREATE TABLE plain (id int PRIMARY KEY, note text); CREATE PUBLICATION contract FOR TABLE plain"
        source = source_of(tables, ("plain",))
        source.do("INSERT INTO plain VALUES (1, 'a'), (2, 'b')")
        table = source.schema("plain")
        source.copy(destination, "plain")
        before = source.batch().to
        source.do(
            f"ALTER TABLE plain RENAME TO {ODD_RENAMED.removeprefix('public.')}",
            _named("ALTER TABLE {} RENAME COLUMN note TO {}", ODD_RENAMED, _OTHERS[1]),
            _named("UPDATE {} SET {} = 'c' WHERE id = 1", ODD_RENAMED, _OTHERS[1]),
        )
        try:
            destination.write_events(source.batch(before))
        except CopyAgainError as error:
            assert names_table(error, table) or error.context.get("table") == ODD_RENAMED
            source.copy(destination, ODD_RENAMED)
        assert self._odd(destination, [ODD_RENAMED]) == source.contents()

    def _odd(self, destination: Destination, tables: list[str]) -> dict[str, list[Row]]:
        return {table: sorted(as_text(row) for row in self.rows(destination, table)) for table in tables}

    def _copied(self, source: ContractSource, destination: Destination, table: str) -> bool:
        return taken_or_refused(lambda: source.copy(destination, table), table)


def taken_or_refused(write: Callable[[], WriteResult], table: str) -> bool:
    """Whether it was written. If not, the error says which table that was."""
    try:
        return write().durable
    except WalrelayError as error:
        assert table in error.message or error.context.get("table") == table, error
        return False
