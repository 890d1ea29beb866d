"""A connection that stalls without breaking is given up; one whose server merely works is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import psycopg
import pytest

from walrelay.errors import ConnectionLostError, StoppedError
from walrelay.model.names import TableName
from walrelay.model.ranges import CtidRange
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import Connection, connect
from walrelay.postgres.copy import _through_libpq, copy_rows, copy_statement
from walrelay.postgres.source import PostgresSource
from walrelay.testing.proxy import FaultProxy
from walrelay.wire.copy_binary import CopyBuffer, Rows

pytestmark = pytest.mark.postgres
PATIENCE = 60.0
"""Far more than a stall of a second takes to be found, on any machine."""
Read = Callable[[Connection], Iterator[Rows]]


@pytest.fixture
def proxy(database: str) -> Iterator[FaultProxy]:
    parts = urlsplit(database)
    assert parts.hostname is not None and parts.port is not None
    with FaultProxy(parts.hostname, parts.port) as proxy:
        yield proxy


@pytest.fixture
def source(proxy: FaultProxy, database: str) -> PostgresSource:
    return PostgresSource(proxy.url(database) + "?connect_timeout=2", stall_timeout=timedelta(seconds=0.5))


@pytest.fixture
def table(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, filler text)")
        connection.execute("INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 200000) g")


def _direct(connection: Connection) -> Iterator[Rows]:
    schema = read_schema(connection, find_table(connection, TableName("public", "t")))
    return copy_rows(connection, schema, CtidRange(schema.leaves[0]), chunk_bytes=65536)


def _libpq(connection: Connection) -> Iterator[Rows]:
    schema = read_schema(connection, find_table(connection, TableName("public", "t")))
    statement = copy_statement(schema, CtidRange(schema.leaves[0])).as_bytes(connection)
    return _through_libpq(connection, statement, CopyBuffer(2, framed=False, capacity=65536))


def ended(work: Callable[[], object]) -> BaseException | None:
    """What `work` raised; fails when it does not end."""
    found: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"it waits for more than {PATIENCE} s"
    return found[0] if found else None


@pytest.mark.parametrize("read", [_direct, _libpq])
@pytest.mark.parametrize("all_connections", [False, True], ids=["this one", "the whole network"])
def test_a_copy_that_stalls_is_given_up_as_a_lost_connection(
    proxy: FaultProxy, source: PostgresSource, database: str, table: None, read: Read, all_connections: bool
) -> None:
    connection = connect(source, application="stalling copy")
    rows = read(connection)
    next(rows)
    proxy.pause() if all_connections else proxy.stall()
    error = ended(lambda: list(rows))
    assert isinstance(error, ConnectionLostError) and error.retryable
    assert "nothing has come" in error.message
    connection.close()
    if not all_connections:
        # The server's end, which would hold its snapshot and locks for hours, is ended too.
        with psycopg.connect(database, autocommit=True) as observer:
            _until_gone(observer, "stalling copy")
        with connect(source) as again:
            assert sum(len(part) for part in read(again)) == 200_000


def _until_gone(observer: psycopg.Connection[tuple[int]], application: str) -> None:
    deadline = time.monotonic() + PATIENCE
    question = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    while observer.execute(question, (application,)).fetchone() != (0,):
        assert time.monotonic() < deadline, "the server still serves the stalled connection"
        time.sleep(0.05)


def test_a_query_whose_answer_is_lost_is_given_up(proxy: FaultProxy, source: PostgresSource) -> None:
    connection = connect(source)
    proxy.stall()
    error = ended(lambda: connection.execute("SELECT 1"))
    assert isinstance(error, psycopg.OperationalError)
    assert connection.closed


def test_a_server_that_works_or_waits_for_a_lock_is_waited_for(source: PostgresSource, database: str) -> None:
    """Four times as long as a stall may last; through all three roads."""
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("CREATE TABLE t (id int, filler text)")
        other.execute("INSERT INTO t VALUES (1, 'x')")
        with connect(source) as connection:
            connection.execute("SELECT pg_sleep(2)")
        for read in (_direct, _libpq):
            with connect(source, application="patient copy") as connection:
                rows = read(connection)
                other.execute("BEGIN")
                other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
                release = threading.Timer(2, lambda: other.execute("ROLLBACK"))
                release.start()
                assert sum(len(part) for part in rows) == 1
                release.join()


def test_who_wants_to_stop_does_not_wait_for_a_stalled_server(proxy: FaultProxy, database: str) -> None:
    """Neither in a query nor while connecting, however long a stall may last otherwise."""
    stopping = threading.Event()
    source = PostgresSource(proxy.url(database), stall_timeout=timedelta(hours=1))
    connection = connect(source, stopping=stopping)
    proxy.pause()
    stopping.set()
    assert isinstance(ended(lambda: connection.execute("SELECT 1")), psycopg.OperationalError)
    # By its kind: a connection that timed out by itself would be an unreachable source.
    assert isinstance(ended(lambda: connect(source, stopping=stopping)), StoppedError)


def test_the_defaults_notice_a_peer_that_vanished_and_give_way_to_the_url() -> None:
    assert "tcp_user_timeout=60000" in PostgresSource("postgresql://h/d").conninfo
    given = PostgresSource("postgresql://h/d?tcp_user_timeout=5000&keepalives_idle=7").conninfo
    assert "tcp_user_timeout=5000" in given and "keepalives_idle=7" in given
