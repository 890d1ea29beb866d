"""The proxy passes everything until it is told to do harm, and then does just that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import psycopg
import pytest

from walrelay.testing.proxy import FaultProxy

pytestmark = pytest.mark.postgres


@pytest.fixture
def proxy(database: str) -> Iterator[FaultProxy]:
    parts = urlsplit(database)
    assert parts.hostname is not None and parts.port is not None
    with FaultProxy(parts.hostname, parts.port) as proxy:
        yield proxy


def test_what_passes_is_what_was_sent(proxy: FaultProxy, database: str) -> None:
    with psycopg.connect(proxy.url(database), autocommit=True) as connection:
        text = "x" * 3_000_000
        row = connection.execute("SELECT %s::text, repeat('y', 3000000)", (text,)).fetchone()
        assert row == (text, "y" * 3_000_000)
        assert proxy.connections == 1
        assert proxy.accepted == 1
        assert proxy.bytes_to_client > 6_000_000


def test_a_drop_cuts_all_connections_but_not_later_ones(proxy: FaultProxy, database: str) -> None:
    connections = [psycopg.connect(proxy.url(database), autocommit=True) for _ in range(3)]
    proxy.drop()
    assert proxy.connections == 0
    for connection in connections:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        assert connection.closed
    with psycopg.connect(proxy.url(database)) as later:
        assert later.execute("SELECT 1").fetchone() == (1,)


def test_the_server_sees_a_drop_too(proxy: FaultProxy, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as observer:
        cut = psycopg.connect(proxy.url(database))
        cut.execute("SELECT pg_advisory_lock(1)")
        proxy.drop()
        observer.execute("SET lock_timeout = '10s'")
        observer.execute("SELECT pg_advisory_lock(1)")


def test_a_paused_connection_answers_once_resumed(proxy: FaultProxy, database: str) -> None:
    answered = threading.Event()
    with psycopg.connect(proxy.url(database), autocommit=True) as connection:

        def ask() -> None:
            connection.execute("SELECT 1")
            answered.set()

        for held in ({}, {"to_client": False}, {"to_server": False}):
            answered.clear()
            proxy.pause(**held)
            thread = threading.Thread(target=ask)
            thread.start()
            assert not answered.wait(0.2)
            proxy.resume()
            assert answered.wait(10)
            thread.join()


def test_a_paused_connection_can_be_dropped(proxy: FaultProxy, database: str) -> None:
    with psycopg.connect(proxy.url(database), autocommit=True) as connection:
        proxy.pause()
        threading.Timer(0.2, proxy.drop).start()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


@pytest.mark.parametrize("count", [0, 1, 4, 1000, 150_000])
def test_exactly_so_many_bytes_pass_before_the_cut(count: int) -> None:
    sent = bytes(range(256)) * 1000
    with socket.create_server(("127.0.0.1", 0)) as server, FaultProxy("127.0.0.1", server.getsockname()[1]) as proxy:
        proxy.truncate_after(count)
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"what the server never reads")
                threading.Thread(target=send, args=(accepted, sent)).start()
                received = b"".join(iter(lambda: client.recv(65536), b""))
        assert received == sent[:count]
        assert proxy.bytes_to_client == count
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(b"whole")
            assert client.recv(100) == b"whole"


def send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def test_a_result_cut_in_its_middle_is_an_error(proxy: FaultProxy, database: str) -> None:
    with psycopg.connect(proxy.url(database), autocommit=True) as connection:
        proxy.truncate_after(5000)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT repeat('x', 100000)")
        assert connection.closed


def test_refused_connections_fail_and_open_ones_go_on(proxy: FaultProxy, database: str) -> None:
    with psycopg.connect(proxy.url(database), autocommit=True) as connection:
        proxy.refuse(True)
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(proxy.url(database))
        assert connection.execute("SELECT 1").fetchone() == (1,)
        proxy.refuse(False)
        psycopg.connect(proxy.url(database)).close()


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and kept, or the proxy may be given the port, and talks to itself
        with (
            FaultProxy("127.0.0.1", deaf.getsockname()[1]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port)) as client,
        ):
            assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("postgresql://me:p%40ss@db.example:5433/shop?sslmode=disable", "postgresql://me:p%40ss@127.0.0.1:1/shop?sslmode=disable"),
        ("postgresql://me@/shop?host=/tmp/run&port=5433", "postgresql://me@127.0.0.1:1/shop"),
        ("postgresql://[::1]:5433/shop", "postgresql://127.0.0.1:1/shop"),
    ],
)  # fmt: skip
def test_a_url_keeps_all_but_host_and_port(given: str, expected: str) -> None:
    with FaultProxy("127.0.0.1", 1) as proxy:
        assert proxy.url(given) == expected.replace(":1/", f":{proxy.port}/")


def test_a_stall_holds_what_is_open_and_lets_later_connections_pass(proxy: FaultProxy, database: str) -> None:
    answered = threading.Event()
    with psycopg.connect(proxy.url(database), autocommit=True) as held:
        proxy.stall()

        def ask() -> None:
            held.execute("SELECT 1")
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        with psycopg.connect(proxy.url(database)) as later:
            assert later.execute("SELECT 1").fetchone() == (1,)
        assert not answered.is_set()
        proxy.resume()
        assert answered.wait(30)
        asking.join()
