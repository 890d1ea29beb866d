"""Every type at its edges: copied into Postgres, inserted and updated by changes, and printed alike by both servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.roundtrip.test_stream_types import REFUSED_BY_SERVER, make_types
from tests.roundtrip.values import EXTENSIONS, Case, cases_of
from tests.warehouse.postgres_kit import fresh_database, labels_in
from walrelay import PostgresDestination
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.testing.destination_contract import ContractSource
from walrelay.testing.postgres import EmbeddedPostgres

DOMAINS = {
    "positive": "integer",
    "price": "numeric(10,2)",
    "discount": "numeric(10,2)",
    "words": "text[]",
    "matrix": "integer[]",
    "lasting": "interval",
    "known_pair": "public.pair",
    "known_mood": "public.mood",
}
"""A domain is its base type here."""


def expected_type(case: Case, shown: str) -> str:
    name = case.type.removesuffix("[]")
    if name in DOMAINS:
        return DOMAINS[name].removesuffix("[]") + "[]" * (DOMAINS[name].endswith("[]") or case.type.endswith("[]"))
    if name.startswith("reg"):
        return "oid" + "[]" * case.type.endswith("[]")
    if case.type in ("aclitem", "aclitem[]"):
        return "text"
    if case.unknown and case.type != "holds_unknown":
        return "bytea" + "[]" * case.type.endswith("[]")
    return shown


def printed(connection: psycopg.Connection, case: Case, expression: str) -> list[tuple[int, str | None]]:
    values = f"(SELECT id, {expression} AS v FROM {case.table}) AS t"
    query = f"SELECT id, format('%s', v), v IS NOT DISTINCT FROM NULL FROM {values} ORDER BY 1"
    found = connection.execute(query.encode()).fetchall()
    return [(id_, None if is_null else text) for id_, text, is_null in found]


def shown_type(connection: psycopg.Connection, case: Case) -> str:
    connection.execute("SET search_path = ''")
    ((found,),) = connection.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'value' AND attrelid = %s::regclass",
        (f"public.{case.table}",),
    ).fetchall()
    connection.execute("SET search_path = public")
    return str(found)


def check(source_server: EmbeddedPostgres, target_server: EmbeddedPostgres, tmp_path: Path) -> None:
    oldest = min(source_server.version, target_server.version)
    cases = [
        one
        for one in cases_of(source_server.version)
        if one.runs_on(oldest) and not one.altered and one.type not in REFUSED_BY_SERVER and one.type != "xml"
    ]
    with fresh_database(source_server) as url, fresh_database(target_server) as target:
        with psycopg.connect(url, autocommit=True) as connection:
            make_types(connection, source_server.version)
            for case in cases:
                connection.execute(f"CREATE TABLE {case.table} (id int4 PRIMARY KEY, value {case.type})".encode())
        with psycopg.connect(target, autocommit=True) as connection:
            for extension in (*EXTENSIONS, *(("vector",) if oldest == 18 else ())):
                connection.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
        names = tuple(case.table for case in cases)
        with closing(ContractSource(url, tmp_path, "CREATE PUBLICATION contract FOR ALL TABLES", names)) as source:
            _carry(source, cases, target, url)
        _compare(cases, url, target)


def _carry(source: ContractSource, cases: list[Case], target: str, url: str) -> None:
    for case in cases:
        rows = [(row, literal) for row, literal in enumerate(case.literals)]
        source.connection.cursor().executemany(f"INSERT INTO {case.table} VALUES (%s, %s)".encode(), rows)
        empty = [(row + 2000,) for row, _ in rows]
        source.connection.cursor().executemany(f"INSERT INTO {case.table} VALUES (%s)".encode(), empty)
    source.do()
    destination = PostgresDestination(target)
    destination.startup(DestinationContext("types", copy_settings(), enum_labels=labels_in(url)))
    for case in cases:
        assert source.copy(destination, case.table).durable
    before = source.batch().to
    for case in cases:
        source.connection.execute(
            f"INSERT INTO {case.table} SELECT id + 1000, value FROM {case.table} WHERE id < 1000;"
            f"UPDATE {case.table} t SET value = o.value FROM {case.table} o WHERE o.id + 2000 = t.id".encode()
        )
    source.do()
    destination.write_events(source.batch(before))
    destination.shutdown()


def _compare(cases: list[Case], url: str, target: str) -> None:
    wrong = []
    with psycopg.connect(url, autocommit=True) as mine, psycopg.connect(target, autocommit=True) as other:
        for connection in (mine, other):
            connection.execute("SET TimeZone = 'UTC'; SET search_path = public; SET extra_float_digits = 1")
        for case in cases:
            shown = shown_type(mine, case)
            if shown_type(other, case) != expected_type(case, shown):
                wrong.append((case.id, shown, shown_type(other, case)))
            is_ours = case.printed != "value" and not case.type.startswith("money")
            there = printed(other, case, "value" if is_ours else case.printed)
            here = printed(mine, case, case.printed)
            assert len(here) == 3 * len(case.literals)
            wrong += [(case.id, one, two) for one, two in zip(here, there, strict=True) if one != two]
    assert wrong == []


def test_every_type_arrives_exactly(postgres18: EmbeddedPostgres, tmp_path: Path) -> None:
    check(postgres18, postgres18, tmp_path)


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.parametrize(("source", "target"), [(14, 18), (18, 14), (14, 14)])
def test_every_type_arrives_exactly_in_another_version(
    postgres_server: Callable[[int], EmbeddedPostgres], tmp_path: Path, source: int, target: int
) -> None:
    check(postgres_server(source), postgres_server(target), tmp_path)
