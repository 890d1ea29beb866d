"""Databases that are written to, as tests see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from walrelay.model.names import TableName
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.types import enum_labels
from walrelay.testing.postgres import EmbeddedPostgres

_AS_TEXT = ("date", "time", "timetz", "timestamp", "timestamptz", "interval", "numeric")
"""Types whose values Python cannot all hold."""


@contextmanager
def fresh_database(server: EmbeddedPostgres) -> Iterator[str]:
    """Its URL; gone afterwards."""
    name = f"target_{uuid4().hex[:12]}"
    yield server.create_database(name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def contents(url: str, table: str) -> list[dict[str, Any]]:
    """What a reader finds in a table, whose name is as Postgres writes it."""
    name = TableName.parse(table)
    with psycopg.connect(url, row_factory=dict_row) as connection:
        for kind in _AS_TEXT:
            connection.adapters.register_loader(kind, TextLoader)
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(name.schema, name.name))
        return connection.execute(query).fetchall()


def labels_in(url: str) -> Callable[[Collection[int]], dict[int, tuple[str, ...]]]:
    """What a pipeline tells a destination of the source's enums."""

    def labels(types: Collection[int]) -> dict[int, tuple[str, ...]]:
        with connect(PostgresSource(url), application="walrelay test") as connection:
            return enum_labels(connection, types)

    return labels
