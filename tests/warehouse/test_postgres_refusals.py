"""What a Postgres that is written to refuses, or is refused for: by name, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.warehouse.postgres_kit import contents, fresh_database
from walrelay import PostgresDestination
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import Destination, DestinationContext, Identity
from walrelay.destinations.postgres.failures import (
    OwnSourceError,
    TargetLockedError,
    TargetLoginError,
    TargetLostError,
    TargetReadOnlyError,
    TargetRightsError,
    TargetTypeError,
)
from walrelay.destinations.urls import destination_from_url
from walrelay.errors import (
    ConfigError,
    CopyAgainError,
    DestinationNewerError,
    NameClashError,
    OtherDestinationError,
    OtherPipelineError,
    OtherSourceError,
    WalrelayError,
)
from walrelay.model.names import TableName
from walrelay.postgres.connection import connect
from walrelay.postgres.identity import source_id
from walrelay.postgres.source import PostgresSource
from walrelay.testing.destination_contract import ContractSource
from walrelay.testing.postgres import EmbeddedPostgres

KEYED = 7001
"""A table of some source."""


@pytest.fixture
def target(postgres18: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres18) as url:
        yield url


@pytest.fixture
def source(database: str, tmp_path: Path) -> Iterator[ContractSource]:
    with closing(ContractSource(database, tmp_path)) as made:
        yield made


def context(**given: Any) -> DestinationContext:
    settings: dict[str, Any] = {
        "source_id": "1/1",
        "source_name": "a source",
        "pipeline_name": "shop@1",
        "mode": "both",
    }
    tables = {KEYED: TableName("public", "keyed")}
    return DestinationContext("shop", copy_settings(), **{**settings, "tables": tables, **given})


def refused(destination: Destination, kind: type[WalrelayError], words: str, **given: Any) -> WalrelayError:
    """What `startup` raises; nothing is left behind."""
    with pytest.raises(kind, match=words) as caught:
        destination.startup(context(**given))
    destination.shutdown()
    assert "secret" not in str(caught.value)
    return caught.value


def tables_in(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname !~ '^pg_|information_schema'"
        ).fetchall()
    return {name for (name,) in found}


def as_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:secret@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def guest(postgres18: EmbeddedPostgres, target: str) -> Iterator[str]:
    """One who may do nothing but connect."""
    name = f"guest_{target.rpartition('_')[2]}"
    with psycopg.connect(target, autocommit=True) as connection:
        user = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(user))
        yield name
        connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(user))


# -------------------------------------------------------------------------------------------------------------- startup


def test_the_source_itself_is_refused_by_whatever_name_it_is_reached(database: str) -> None:
    with connect(PostgresSource(database), application="walrelay test") as connection:
        own = source_id(connection)
    for url in (database, database.replace("127.0.0.1", "localhost")):
        refused(PostgresDestination(url), OwnSourceError, "the very database", source_id=own)
    assert tables_in(database) == set()


def test_a_server_that_cannot_be_reached_is_tried_again(target: str) -> None:
    parts = urlsplit(target)
    url = urlunsplit(parts._replace(netloc="postgres:secret@127.0.0.1:1"))
    assert refused(PostgresDestination(url), TargetLostError, "127.0.0.1:1").retryable


def test_a_database_that_is_not_there_is_named(target: str) -> None:
    assert not refused(PostgresDestination(f"{target}_gone"), TargetLoginError, "no such database").retryable


def test_a_user_that_is_not_known_is_named(target: str) -> None:
    refused(PostgresDestination(as_user(target, "nobody_here")), TargetLoginError, "user")


def test_a_url_that_cannot_be_read_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="the destination's URL") as caught:
        PostgresDestination("postgresql://me:secret@host:no@port/x")
    assert "secret" not in str(caught.value)


def test_options_of_ours_stand_among_those_of_libpq(target: str) -> None:
    made = destination_from_url(f"{target}?connections=2&lock_timeout=3s&application_name=x")
    assert isinstance(made, PostgresDestination)
    made.startup(context(tables={}))
    made.shutdown()
    with pytest.raises(ConfigError, match="connections"):
        destination_from_url(f"{target}?connections=many")


def test_missing_rights_are_named_with_the_grant_that_brings_them(target: str, guest: str) -> None:
    url = as_user(target, guest)
    with psycopg.connect(target, autocommit=True) as connection:

        def followed(error: WalrelayError) -> None:
            connection.execute(error.hint.encode())

        database = sql.Identifier(target.rpartition("/")[2])
        connection.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
        followed(refused(PostgresDestination(url), TargetRightsError, "temporary tables"))
        followed(refused(PostgresDestination(url), TargetRightsError, "may not make schemas.*_walrelay"))
        followed(refused(PostgresDestination(url), TargetRightsError, "the schema public"))
    assert tables_in(target) == set()
    destination = PostgresDestination(url)
    destination.startup(context())
    destination.shutdown()


def test_a_read_only_server_is_named(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby is known by its own word, here put into its mouth."""
    from walrelay.destinations.postgres import owner

    monkeypatch.setattr(owner, "_RIGHTS", owner._RIGHTS.replace("pg_catalog.pg_is_in_recovery()", "true"))
    refused(PostgresDestination(target), TargetReadOnlyError, "standby")


def test_a_table_that_is_not_ours_is_refused_and_stays(target: str) -> None:
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("CREATE TABLE keyed (a int); INSERT INTO keyed VALUES (1)")
        refused(PostgresDestination(target), NameClashError, "public.keyed is in the destination already")
        connection.execute("DROP TABLE keyed; CREATE VIEW keyed AS SELECT 1 AS a")
        refused(PostgresDestination(target), NameClashError, "public.keyed")
    assert contents(target, "keyed") == [{"a": 1}]


def test_another_database_than_the_pipeline_s_own_is_refused(target: str) -> None:
    destination = PostgresDestination(target)
    destination.startup(context(tables={}))
    identity = destination.identity()
    destination.shutdown()
    assert identity is not None and "secret" not in identity.place
    destination.startup(context(tables={}, expected=identity))
    destination.shutdown()
    refused(destination, OtherDestinationError, "another database", tables={}, expected=Identity("other", "there"))


def test_a_database_that_a_newer_version_has_written_is_refused(target: str) -> None:
    destination = PostgresDestination(target)
    destination.startup(context(tables={}))
    destination.shutdown()
    with psycopg.connect(target) as connection:
        connection.execute("UPDATE _walrelay.database SET id = '2:' || id")
        connection.execute("DROP TABLE _walrelay.progress")  # a newer version may have no use for it
    refused(destination, DestinationNewerError, "is of format 2", tables={})
    assert "_walrelay.progress" not in tables_in(target)


def test_tables_of_another_source_or_pipeline_are_refused(source: ContractSource, target: str) -> None:
    schema = source.schema("keyed")
    tables = {schema.id: schema.name}
    destination = PostgresDestination(target)
    destination.startup(context(tables=tables))
    source.copy(destination, "keyed")
    destination.shutdown()
    refused(destination, OtherSourceError, "a source", source_id="2/2", tables={schema.id + 1: schema.name})
    error = refused(destination, OtherPipelineError, "shop@1", pipeline_name="other@1", tables=tables)
    assert "--id shop" in error.hint


# --------------------------------------------------------------------------------------------------------------- tables


def test_a_type_of_an_extension_that_is_missing_is_named_with_what_to_run(
    database: str, target: str, tmp_path: Path
) -> None:
    ddl = (
        "CREATE EXTENSION citext; CREATE TABLE c (id int PRIMARY KEY, word citext);"
        " CREATE PUBLICATION contract FOR TABLE c; INSERT INTO c VALUES (1, 'Ab')"
    )
    with closing(ContractSource(database, tmp_path, ddl, ("c",))) as source:
        destination = PostgresDestination(target)
        destination.startup(context(tables={}))
        with pytest.raises(TargetTypeError, match="citext") as caught:
            source.copy(destination, "c")
        assert caught.value.context["table"] == "public.c"
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute(caught.value.hint.partition(": ")[2].encode())
        source.copy(destination, "c")
        destination.shutdown()
    assert contents(target, "c") == [{"id": 1, "word": "Ab"}]


def test_an_enum_of_which_nothing_is_known_is_named(database: str, target: str, tmp_path: Path) -> None:
    ddl = (
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE m (id int PRIMARY KEY, feels mood);"
        " CREATE PUBLICATION contract FOR TABLE m; INSERT INTO m VALUES (1, 'ok')"
    )
    with closing(ContractSource(database, tmp_path, ddl, ("m",))) as source:
        destination = PostgresDestination(target)
        destination.startup(context(tables={}))
        with pytest.raises(TargetTypeError, match="mood"):
            source.copy(destination, "m")
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        source.copy(destination, "m")
        destination.shutdown()
    assert contents(target, "m") == [{"id": 1, "feels": "ok"}]


def test_a_reader_s_lock_is_not_waited_for_for_ever(source: ContractSource, target: str) -> None:
    source.do("INSERT INTO keyed VALUES (1, 'a', 1)")
    destination = PostgresDestination(target, lock_timeout=timedelta(milliseconds=200))
    destination.startup(context(tables={}))
    source.copy(destination, "keyed")
    source.do("ALTER TABLE keyed ADD COLUMN more int; INSERT INTO keyed VALUES (2, 'b', 2, 3)")
    with psycopg.connect(target) as reader:
        reader.execute("SELECT * FROM keyed")
        for attempt in (lambda: destination.write_events(source.batch()), lambda: source.copy(destination, "keyed")):
            with pytest.raises(TargetLockedError) as caught:
                attempt()
            assert caught.value.retryable and "table" not in caught.value.context
    with pytest.raises(CopyAgainError):
        destination.write_events(source.batch())
    source.copy(destination, "keyed")
    destination.write_events(source.batch())
    destination.shutdown()
    assert len(contents(target, "keyed")) == 2


def test_a_connection_that_is_lost_is_made_anew(source: ContractSource, target: str) -> None:
    destination = PostgresDestination(target)
    destination.startup(context(tables={}))
    source.copy(destination, "keyed")
    source.do("INSERT INTO keyed VALUES (1, 'a', 1)")
    with psycopg.connect(target, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(TargetLostError) as caught:
        destination.write_events(source.batch())
    assert caught.value.retryable
    destination.write_events(source.batch())
    source.do("UPDATE keyed SET note = 'b'")
    destination.write_events(source.batch())
    destination.shutdown()
    assert [row["note"] for row in contents(target, "keyed")] == ["b"]


def test_a_row_that_a_user_has_made_impossible_stops_its_table_alone(source: ContractSource, target: str) -> None:
    destination = PostgresDestination(target)
    destination.startup(context(tables={}))
    for table in ("keyed", "paired"):
        source.copy(destination, table)
    with psycopg.connect(target, autocommit=True) as other:
        other.execute("ALTER TABLE keyed ADD CHECK (note <> 'secret')")
    source.do("INSERT INTO keyed VALUES (1, 'secret', 1)", "INSERT INTO paired VALUES (1, 'x', 'y')")
    with pytest.raises(WalrelayError) as caught:
        destination.write_events(source.batch(tables=("keyed", "paired")))
    assert caught.value.context["table"] == "public.keyed" and "secret" not in str(caught.value)
    destination.write_events(source.batch(tables=("paired",)))
    destination.shutdown()
    assert len(contents(target, "paired")) == 1


# ---------------------------------------------------------------------------------------------------------------- names


def test_two_tables_that_change_names_are_followed(database: str, target: str, tmp_path: Path) -> None:
    ddl = (
        "CREATE TABLE one (id int PRIMARY KEY, a text); CREATE TABLE two (id int PRIMARY KEY, b int);"
        " INSERT INTO one VALUES (1, 'one'); INSERT INTO two VALUES (2, 2); CREATE PUBLICATION contract FOR ALL TABLES"
    )
    with closing(ContractSource(database, tmp_path, ddl, ("one", "two"))) as source:
        ids = {source.schema(name).id: TableName("public", name) for name in ("one", "two")}
        destination = PostgresDestination(target)
        destination.startup(context(tables=ids, names=names_in(database)))
        for name in ("one", "two"):
            source.copy(destination, name)
        source.do(
            "BEGIN; ALTER TABLE one RENAME TO x; ALTER TABLE two RENAME TO one; ALTER TABLE x RENAME TO two; COMMIT",
            "INSERT INTO one VALUES (3, 3)",
        )
        destination.write_events(source.batch())
        destination.shutdown()
    assert contents(target, "one") == [{"id": 2, "b": 2}, {"id": 3, "b": 3}]
    assert contents(target, "two") == [{"id": 1, "a": "one"}]


def names_in(url: str) -> Callable[[Collection[int]], dict[int, TableName]]:
    from walrelay.postgres.identity import table_names

    def names(tables: Collection[int]) -> dict[int, TableName]:
        with connect(PostgresSource(url), application="walrelay test") as connection:
            return table_names(connection, tables)

    return names
