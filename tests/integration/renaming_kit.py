"""Tables and schemas that get each other's names, and what a DuckDB file must hold afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from walrelay.postgres.source import PostgresSource
from walrelay.testing.assertions import assert_replicated

GROUPS = {"both": "ab", "first": "ab", "second": "ab", "ring": "abc", "one_of_ring": "abc"}
"""Tables that change names with each other, called <group>_<letter>."""
CHANGED = {"both": (0, 1), "first": (0,), "second": (1,), "ring": (0, 1, 2), "one_of_ring": (1,)}
"""Which of a group's names is written to after they have changed names."""


class Renaming:
    """A source with some of the groups, in which names change hands."""

    def __init__(self, url: str, groups: Iterable[str] = tuple(GROUPS)) -> None:
        self._url = url
        self.source = PostgresSource(url, publication="p")
        self._groups = tuple(groups)

    def sql(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def make(self) -> None:
        for group in self._groups:
            for letter in GROUPS[group]:
                self.sql(f"CREATE TABLE {group}_{letter} ({letter}_id int PRIMARY KEY, n int, {letter} text)")
        for schema in ("north", "south", "west"):
            self.sql(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.items (id int PRIMARY KEY, n int)")
        self.sql("CREATE PUBLICATION p FOR ALL TABLES")

    def fill(self) -> None:
        for group in self._groups:
            for number, letter in enumerate(GROUPS[group]):
                rows = f"SELECT g, {number}, 'x' FROM generate_series(1, {10 + number}) AS g"
                self.sql(f"INSERT INTO {group}_{letter} {rows}")
        for number, schema in enumerate(("north", "south", "west")):
            self.sql(f"INSERT INTO {schema}.items SELECT g, {number} FROM generate_series(1, {20 + number}) AS g")

    def rename_all(self, n: int, *, at_once: bool) -> None:
        """Let all of them change names, in one transaction or in one for each name; then write to some."""
        for group in self._groups:
            renames = _rotate(group)
            self.sql(*(["; ".join(renames)] if at_once else renames))
            self.write(group, CHANGED[group], n)
        swap = ("north TO waiting", "south TO north", "waiting TO south")
        self.sql("; ".join(f"ALTER SCHEMA {names.replace(' TO', ' RENAME TO')}" for names in swap))
        self.sql(f"UPDATE south.items SET n = {n}")
        self.sql("ALTER SCHEMA west RENAME TO east", f"UPDATE east.items SET n = {n}")
        self.sql("ALTER SCHEMA east RENAME TO west", f"UPDATE west.items SET n = {n} + 1")

    def write(self, group: str, which: Iterable[int], n: int) -> None:
        for number in which:
            self.sql(f"UPDATE {group}_{GROUPS[group][number]} SET n = {n}")

    def write_all(self, n: int) -> None:
        for group in self._groups:
            self.write(group, range(len(GROUPS[group])), n)

    def check(self, file: Path) -> None:
        """All tables are equal, there are no others, and what the file says of them is right."""
        assert_replicated(self.source, file)
        with psycopg.connect(self._url) as connection:
            there = connection.execute(
                "SELECT n.nspname, c.relname, c.oid::bigint, 'primary key: ' || a.attname FROM pg_class AS c"
                " JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_index AS i ON i.indrelid = c.oid"
                " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
                " WHERE c.relkind = 'r' AND n.nspname !~ '^(pg_|information_schema)' ORDER BY 1, 2"
            ).fetchall()
        recorded = "SELECT schema_name, table_name, source_oid FROM _walrelay.tables ORDER BY 1, 2"
        assert held(file, recorded) == [one[:3] for one in there]
        shapes = "SELECT schema_name, table_name, table_id FROM _walrelay.shapes ORDER BY 1, 2"
        assert held(file, shapes) == [one[:3] for one in there]
        comments = "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE schema_name <> '_walrelay'"
        assert held(file, f"{comments} ORDER BY 1, 2") == [
            (schema, name, comment) for schema, name, _, comment in there
        ]


def held(file: Path, question: str) -> list[Any]:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(question).fetchall()


def _rotate(group: str) -> list[str]:
    """Each table gets the next one's name, the last one the first's."""
    names = [f"{group}_{letter}" for letter in GROUPS[group]]
    return [
        f"ALTER TABLE {names[-1]} RENAME TO {group}_waiting",
        *(f"ALTER TABLE {old} RENAME TO {new}" for old, new in reversed(list(pairwise(names)))),
        f"ALTER TABLE {group}_waiting RENAME TO {names[0]}",
    ]
