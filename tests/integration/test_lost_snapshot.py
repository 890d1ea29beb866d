"""A snapshot whose connection was ended is a lost connection like others: the copy is tried again."""

from __future__ import annotations

import psycopg
import pytest

from walrelay.errors import ConnectionLostError
from walrelay.postgres.connection import connect
from walrelay.postgres.snapshot import exported_snapshot, import_snapshot
from walrelay.postgres.source import PostgresSource


def test_a_snapshot_whose_connection_was_ended_is_a_lost_connection(database: str) -> None:
    source = PostgresSource(database)
    there = "FROM pg_stat_activity WHERE application_name = 'ended'"
    with (
        psycopg.connect(database, autocommit=True) as other,
        connect(source) as task,
        pytest.raises(ConnectionLostError),
        exported_snapshot(source, application="ended") as snapshot,
    ):
        other.execute(f"SELECT pg_terminate_backend(pid) {there}")
        while other.execute(f"SELECT 1 {there}").fetchall():
            pass
        import_snapshot(task, snapshot.name)
