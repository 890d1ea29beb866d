"""Copies that pass from socket to socket: every type exactly, each range once, whoever brings it and however often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.roundtrip.test_stream_types import REFUSED_BY_SERVER, make_types
from tests.roundtrip.values import cases_of
from tests.warehouse.postgres_kit import fresh_database, labels_in
from tests.warehouse.test_postgres_types import printed, shown_type
from walrelay import PostgresDestination, PostgresSource
from walrelay.changes.rows import TableRows
from walrelay.config.settings import MiB, copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.postgres.client import Server
from walrelay.destinations.postgres.relay import PostgresRelay
from walrelay.errors import DestinationError, WalrelayError
from walrelay.model.ranges import CtidRange, plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.spark.copy_task import CopyTask, land_range
from walrelay.testing.postgres import EmbeddedPostgres

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text);
INSERT INTO orders SELECT g, repeat('x', 50) FROM generate_series(1, 5000) g;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN small AS int;
CREATE TABLE plain (id int, feels mood, span int4range, tags text[], n small);
CREATE TABLE nested (id int, both_of pair);
CREATE TABLE numbered (id int, feels mood[]);
CREATE TABLE of_domain (id int, n small[]);
CREATE TABLE documents (id int, doc xml);
CREATE PUBLICATION p FOR ALL TABLES;
"""


@pytest.fixture
def target(postgres18: EmbeddedPostgres) -> Iterator[str]:
    with fresh_database(postgres18) as url:
        yield url


@pytest.fixture
def source(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES)
    return database


@contextmanager
def started(target: str, source: str) -> Iterator[PostgresDestination]:
    destination = PostgresDestination(target, relay_from=0)
    destination.startup(DestinationContext("relay", copy_settings(), enum_labels=labels_in(source)))
    with closing(_Closing(destination)):
        yield destination


class _Closing:
    def __init__(self, destination: PostgresDestination) -> None:
        self.close = destination.shutdown


@contextmanager
def reading(url: str, names: set[str] | None = None) -> Iterator[list[tuple[CopyTask, list[CtidRange], int]]]:
    """Of each table the task and its ranges, good within the block; and the server's version."""
    place = PostgresSource(url, publication="p")
    with exported_snapshot(place, application="walrelay test") as snapshot:
        found = []
        for table in published_tables(snapshot.connection, "p"):
            if names is None or table.name.name in names:
                schema = read_schema(snapshot.connection, table, "bytes", publication="p")
                parts = plan_ranges(schema, range_bytes=100_000, max_ranges=8, parallelism=1)
                task = CopyTask(place, schema, snapshot.name, None, "error", MiB, MiB, "walrelay test")  # type: ignore[arg-type]
                found.append((task, parts, snapshot.connection.info.server_version))
        yield found


def rows_of(schema: TableSchema, total: int, destination: PostgresDestination) -> TableRows:
    return TableRows(schema, (), destination.dialect.target, total, relayed=True)


def count(url: str, table: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
        assert found is not None
        return int(found[0])


def names_in(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relname ~ '^_walrelay'")}


def test_a_range_that_comes_again_is_kept_once(source: str, target: str) -> None:
    with started(target, source) as destination, reading(source, {"orders"}) as tables:
        ((task, parts, version),) = tables
        destination.drop_table_for_copy(task.schema)
        task = replace(task, relay=destination.relay(task.schema, version))
        assert len(parts) > 2
        taken = [land_range(task, part).rows for part in parts]
        assert [land_range(task, part).rows for part in parts] == taken and sum(taken) == 5000
        assert destination.write_table_rows(task.schema, rows_of(task.schema, 5000, destination)).durable
    assert count(target, "orders") == 5000
    assert not names_in(target)


def test_a_task_of_an_attempt_that_was_given_up_brings_nothing(source: str, target: str) -> None:
    with started(target, source) as destination, reading(source, {"orders"}) as tables:
        ((task, parts, version),) = tables
        late = replace(task, relay=destination.relay(task.schema, version))
        land_range(late, parts[0])
        destination.drop_table_for_copy(task.schema)
        now = replace(task, relay=destination.relay(task.schema, version))
        with pytest.raises(WalrelayError):
            land_range(late, parts[1])
        total = sum(land_range(now, part).rows for part in parts)
        destination.write_table_rows(task.schema, rows_of(task.schema, total, destination))
    assert count(target, "orders") == 5000


def test_a_range_that_is_missing_is_not_overlooked_and_the_old_rows_stay(source: str, target: str) -> None:
    with started(target, source) as destination, reading(source, {"orders"}) as tables:
        ((task, parts, version),) = tables
        for kept in (parts, parts[1:]):
            destination.drop_table_for_copy(task.schema)
            now = replace(task, relay=destination.relay(task.schema, version))
            for part in kept:
                land_range(now, part)
            if kept is parts:
                destination.write_table_rows(task.schema, rows_of(task.schema, 5000, destination))
        with pytest.raises(DestinationError, match="of 5000 rows"):
            destination.write_table_rows(task.schema, rows_of(task.schema, 5000, destination))
    assert count(target, "orders") == 5000
    assert not names_in(target), "what could not be finished is gone"


def test_what_a_dead_run_has_left_is_swept_by_the_next(source: str, target: str) -> None:
    dead = PostgresDestination(target, relay_from=0)
    dead.startup(DestinationContext("relay", copy_settings()))
    with reading(source, {"orders"}) as tables:
        ((task, parts, version),) = tables
        land_range(replace(task, relay=dead.relay(task.schema, version)), parts[0])
    assert len(names_in(target)) >= 2
    with started(target, source):
        assert not names_in(target)


def test_bytes_are_passed_only_where_they_mean_the_same_to_both(source: str, target: str) -> None:
    with started(target, source) as destination, reading(source) as tables:
        passed = {
            task.schema.name.name: destination.relay(task.schema, version) is not None for task, _, version in tables
        }
    assert passed == {
        "orders": True, "plain": True, "nested": False, "numbered": False, "of_domain": False, "documents": False,
    }  # fmt: skip


def test_small_tables_are_not_worth_a_connection_for_each_task(source: str, target: str) -> None:
    destination = PostgresDestination(target)
    destination.startup(DestinationContext("relay", copy_settings()))
    with closing(_Closing(destination)), reading(source, {"orders"}) as tables:
        ((task, _, version),) = tables
        assert destination.relay(task.schema, version) is None


def check_types(source: EmbeddedPostgres, other: EmbeddedPostgres, tmp_path: Path) -> None:
    oldest = min(source.version, other.version)
    cases = [
        one
        for one in cases_of(source.version)
        if one.runs_on(oldest) and not one.altered and one.type not in REFUSED_BY_SERVER
    ]
    wrong, passed = list[tuple[object, ...]](), 0
    with fresh_database(source) as url, fresh_database(other) as target:
        with psycopg.connect(url, autocommit=True) as connection:
            make_types(connection, source.version)
            for case in cases:
                connection.execute(f"CREATE TABLE {case.table} (id int4 PRIMARY KEY, value {case.type})".encode())
                filled = [(row, literal) for row, literal in enumerate(case.literals)]
                connection.cursor().executemany(f"INSERT INTO {case.table} VALUES (%s, %s)".encode(), filled)
            connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        held = set()
        with started(target, url) as destination, reading(url) as tables:
            for task, parts, version in tables:
                try:
                    relay = destination.relay(task.schema, version)
                except DestinationError:
                    continue  # a type of an extension that is not there
                if relay is not None:
                    try:
                        total = sum(land_range(replace(task, relay=relay), part).rows for part in parts)
                    except DestinationError as error:
                        wrong.append((task.schema.name.name, str(error.context), None, None))
                        continue
                    destination.write_table_rows(task.schema, rows_of(task.schema, total, destination))
                    held.add(task.schema.name.name)
        with psycopg.connect(url, autocommit=True) as mine, psycopg.connect(target, autocommit=True) as there:
            for one in (mine, there):
                one.execute("SET TimeZone = 'UTC'; SET search_path = public; SET extra_float_digits = 1")
            for case in cases:
                if case.table.rpartition(".")[2] not in held:
                    continue
                passed += 1
                pairs = zip(printed(mine, case, case.printed), printed(there, case, case.printed), strict=True)
                wrong += [(case.id, shown_type(there, case), one, two) for one, two in pairs if one != two]
    assert wrong == []
    assert passed > 40, "most types pass as bytes"


def test_every_type_whose_bytes_are_passed_arrives_exactly(postgres18: EmbeddedPostgres, tmp_path: Path) -> None:
    check_types(postgres18, postgres18, tmp_path)


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.parametrize(("source_version", "target_version"), [(14, 18), (18, 14)])
def test_bytes_of_another_version_are_passed_exactly(
    postgres_server: Callable[[int], EmbeddedPostgres], tmp_path: Path, source_version: int, target_version: int
) -> None:
    check_types(postgres_server(source_version), postgres_server(target_version), tmp_path)


def test_a_server_that_is_gone_is_an_error_that_passes(source: str, target: str) -> None:
    with started(target, source) as destination, reading(source, {"orders"}) as tables:
        ((task, parts, version),) = tables
        relay = destination.relay(task.schema, version)
        assert isinstance(relay, PostgresRelay)
        nowhere = Server(PostgresSource("postgresql://nobody@127.0.0.1:1/x"))
        with pytest.raises(WalrelayError) as caught:
            land_range(replace(task, relay=replace(relay, server=nowhere)), parts[0])
        assert caught.value.retryable
