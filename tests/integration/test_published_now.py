"""A copy takes of a table what the publication gives when it begins, not what it gave when the table was found."""

from __future__ import annotations

import psycopg
import pytest

from walrelay.errors import TableMissingError
from walrelay.model.schema import TableSchema
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource


def read_after(database: str, listed: str, *meanwhile: str, b: str = "int") -> TableSchema:
    """The table's shape, when something happens between the look at the publication and the copy."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, a text, b {b})")  # type: ignore[call-overload]
        connection.execute("CREATE TABLE u (id int PRIMARY KEY)")
        connection.execute(f"CREATE PUBLICATION p FOR TABLE {listed}")  # type: ignore[call-overload]
        with connect(PostgresSource(database, publication="p")) as ours:
            (found,) = (one for one in published_tables(ours, "p") if one.name.name == "t")
            for statement in meanwhile:
                connection.execute(statement)  # type: ignore[call-overload]
            return read_schema(ours, found, publication="p")


def test_a_row_filter_that_was_changed_meanwhile_holds(database: str) -> None:
    schema = read_after(database, "t WHERE (id < 100)", "ALTER PUBLICATION p SET TABLE t WHERE (id >= 50)")
    assert schema.row_filter == "(id >= 50)"


def test_a_row_filter_that_was_set_meanwhile_holds(database: str) -> None:
    assert read_after(database, "t", "ALTER PUBLICATION p SET TABLE t WHERE (id > 5)").row_filter == "(id > 5)"


def test_a_column_list_that_was_set_meanwhile_holds(database: str) -> None:
    schema = read_after(database, "t (id, a, b)", "ALTER PUBLICATION p SET TABLE t (id, a)")
    assert [column.name for column in schema.columns] == ["id", "a"]


def test_generated_columns_that_are_given_no_more_are_left_out(database: str) -> None:
    schema = read_after(
        database,
        "t WITH (publish_generated_columns = stored)",
        "ALTER PUBLICATION p SET (publish_generated_columns = none)",
        b="int GENERATED ALWAYS AS (id * 2) STORED",
    )
    assert [column.name for column in schema.columns] == ["id", "a"]


@pytest.mark.parametrize(
    "swap",
    [
        ("ALTER TABLE t RENAME TO s",),
        ("ALTER TABLE t RENAME TO s", "ALTER TABLE u RENAME TO t"),
        ("CREATE SCHEMA s", "ALTER TABLE t SET SCHEMA s"),
    ],
)
def test_a_table_that_has_another_name_by_now_is_looked_for_again(database: str, swap: tuple[str, ...]) -> None:
    """It was locked by its name, and would be copied under it."""
    with pytest.raises(TableMissingError, match="another name"):
        read_after(database, "t, u", *swap)
