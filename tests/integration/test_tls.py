"""TLS, with a server that has it: what goes wrong is named, each hint leads further, and rows and changes arrive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from walrelay.capture.capture import Capture
from walrelay.errors import (
    SourceError,
    TlsClientCertificateError,
    TlsError,
    TlsHostNameError,
    TlsNotOfferedError,
    TlsRequiredError,
    TlsUntrustedError,
)
from walrelay.log.reader import LogReader
from walrelay.model.names import TableName
from walrelay.model.ranges import CtidRange
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.copy import copy_rows
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres, EmbeddedPostgresError
from walrelay.testing.postgres_tls import Authority, Identity, tls_server

pytestmark = pytest.mark.postgres
HOST = "db.example"
CAROL, PLAIN = "carol", "plain"


class Scene:
    """A server, who signed its certificate, and clients with certificates of several kinds."""

    def __init__(self, server: EmbeddedPostgres, authority: Authority, stranger: Authority) -> None:
        self.server = server
        self.authority = authority
        self.stranger = stranger
        self.carol = authority.issue(CAROL)
        self.mallory = authority.issue("mallory")
        self.forged = stranger.issue("forged")

    def url(self, *, user: str = PLAIN, host: str = HOST, identity: Identity | None = None, **given: str) -> str:
        """The name leads to the server by `hostaddr`, without a name server."""
        if identity is not None:
            given |= {"sslcert": str(identity.certificate), "sslkey": str(identity.key)}
        query = urlencode({"hostaddr": "127.0.0.1", **given})
        return f"postgresql://{user}@{host}:{self.server.port}/postgres?{query}"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("certificates")
    try:
        authority, stranger = Authority(directory, "authority"), Authority(directory, "stranger")
        context = tls_server(authority, host=HOST)
        server = context.__enter__()
    except EmbeddedPostgresError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no Postgres with TLS: {error}")
    try:
        with psycopg.connect(server.socket_url, autocommit=True) as connection:
            connection.execute("CREATE ROLE carol LOGIN REPLICATION SUPERUSER")
            connection.execute("CREATE ROLE plain LOGIN")
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
            connection.execute("INSERT INTO t SELECT g, repeat('é', g % 300) FROM generate_series(1, 20000) g")
            connection.execute("CREATE PUBLICATION p FOR TABLE t")
        server.add_rules("hostssl all carol 127.0.0.1/32 cert\nhost all carol 127.0.0.1/32 reject\n")
        server.add_rules("hostssl all plain 127.0.0.1/32 trust\nhostnossl all plain 127.0.0.1/32 reject\n")
        yield Scene(server, authority, stranger)
    finally:
        context.__exit__(None, None, None)


def failure(url: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        connect(PostgresSource(url)).close()
    with pytest.raises(SourceError) as replicating:
        ReplicationConnection(PostgresSource(url)).close()
    assert type(replicating.value) is type(caught.value), "both kinds of connection say the same"
    return caught.value


def connects(url: str) -> None:
    with connect(PostgresSource(url)) as connection:
        assert connection.pgconn.ssl_in_use


def test_a_server_whose_authority_is_not_trusted(scene: Scene) -> None:
    found = failure(scene.url(sslmode="verify-full", sslrootcert=str(scene.stranger.certificate)))
    assert isinstance(found, TlsUntrustedError) and "sslrootcert=FILE" in found.hint
    connects(scene.url(sslmode="verify-full", sslrootcert=str(scene.authority.certificate)))
    connects(scene.url(sslmode="require"))


def test_no_root_certificate_to_check_with(scene: Scene, tmp_path: Path) -> None:
    for missing in ({"sslrootcert": str(tmp_path / "none.crt")}, {"sslrootcert": str(tmp_path)}):
        found = failure(scene.url(sslmode="verify-ca", **missing))
        assert isinstance(found, TlsUntrustedError), missing
    connects(scene.url(sslmode="verify-ca", sslrootcert=str(scene.authority.certificate)))


def test_a_certificate_for_another_host(scene: Scene) -> None:
    root = str(scene.authority.certificate)
    found = failure(scene.url(host="other.example", sslmode="verify-full", sslrootcert=root))
    assert isinstance(found, TlsHostNameError) and "verify-ca" in found.hint and "hostaddr" in found.hint
    connects(scene.url(host="other.example", sslmode="verify-ca", sslrootcert=root))
    connects(scene.url(sslmode="verify-full", sslrootcert=root))


def test_a_server_without_tls(database: str) -> None:
    found = failure(f"{database}?sslmode=require")
    assert isinstance(found, TlsNotOfferedError) and "sslmode=disable" in found.hint
    connect(PostgresSource(f"{database}?sslmode=disable")).close()


def test_a_server_that_takes_no_unencrypted_connection(scene: Scene) -> None:
    rules = scene.server.log_path.parent / "data" / "pg_hba.conf"
    kept = rules.read_text()
    try:
        rules.write_text("local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
        scene.server.add_rules("")
        found = failure(scene.url(sslmode="disable"))
        assert isinstance(found, TlsRequiredError) and "sslmode=require" in found.hint
        connects(scene.url(sslmode="require"))
    finally:
        rules.write_text(kept)
        scene.server.add_rules("")


def test_client_certificates(scene: Scene, tmp_path: Path) -> None:
    root = str(scene.authority.certificate)
    readable = tmp_path / "readable.key"
    readable.write_bytes(scene.carol.key.read_bytes())
    readable.chmod(0o644)
    wrong: dict[str, Identity] = {
        "another user's": scene.mallory,
        "another authority's": scene.forged,
        "missing": Identity(tmp_path / "none.crt", tmp_path / "none.key"),
        "without its key": Identity(scene.carol.certificate, tmp_path / "none.key"),
        "with another key": Identity(scene.carol.certificate, scene.mallory.key),
        "with a key that others can read": Identity(scene.carol.certificate, readable),
    }
    for what, identity in wrong.items():
        found = failure(scene.url(user=CAROL, identity=identity, sslmode="verify-full", sslrootcert=root))
        assert isinstance(found, TlsClientCertificateError), (what, found.message, found.code)
        assert "sslcert=FILE&sslkey=FILE" in found.hint and "0600" in found.hint
        assert isinstance(found, TlsError) and not found.retryable
    none = scene.url(user=CAROL, sslmode="verify-full", sslrootcert=root, sslcert=str(tmp_path / "no.crt"))
    assert isinstance(failure(none), TlsClientCertificateError)
    connects(scene.url(user=CAROL, identity=scene.carol, sslmode="verify-full", sslrootcert=root))


def test_rows_and_changes_arrive_over_tls_with_a_client_certificate(scene: Scene, tmp_path: Path) -> None:
    root = str(scene.authority.certificate)
    url = scene.url(user=CAROL, identity=scene.carol, sslmode="verify-full", sslrootcert=root)
    source = PostgresSource(url, publication="p")
    Capture(source, slot="over_tls", log=tmp_path / "log").run("caught-up")
    with connect(source) as connection:
        assert connection.pgconn.ssl_in_use
        schema = read_schema(connection, find_table(connection, TableName("public", "t")))
        parts = copy_rows(connection, schema, CtidRange(schema.leaves[0]), chunk_bytes=65536)
        assert sum(len(rows) for rows in parts) == 20_000
        connection.execute("SET synchronous_commit = on")
        connection.execute("INSERT INTO t SELECT g, 'later' FROM generate_series(20001, 25000) g")
    Capture(source, slot="over_tls", log=tmp_path / "log").run("caught-up")
    found = [change.row["id"] for change in LogReader(tmp_path / "log").changes() if change.row is not None]
    assert found == list(range(20_001, 25_001))
