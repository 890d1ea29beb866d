"""The comparison of source and copy: it finds agreement where there is, and every kind of difference by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest

from walrelay.control.agreement import TableAgreement, compare
from walrelay.errors import DestinationCorruptError
from walrelay.postgres.source import PostgresSource

pytestmark = pytest.mark.postgres

ORIGIN = """
CREATE TYPE pair AS (a int, b text);
CREATE TABLE t (
    id int PRIMARY KEY, name text, price numeric(8, 2), moment timestamptz, ratio double precision, took interval,
    tags text[], grid int[][], span daterange, spans int4multirange, pair pair, pairs pair[], raw bytea, code char(4),
    part numeric(3, 3)
);
INSERT INTO t VALUES
    (1, 'one', 1.50, '2024-02-29 12:00:00.25+02', 0.1, '1 mon -2 days 03:00:00.5', '{a,NULL,""}', '{{1,2},{3,4}}',
     '[2024-01-01,2024-02-01)', '{[1,3),[7,9)}', '(1,x)', '{"(2,y)",NULL,"(,)"}', '\\x00ff', 'ab', -0.125),
    (2, '', 'NaN', 'infinity', '-0', 'infinity', '{}', '{}', 'empty', '{}', '(,)', '{}', '', '', 0),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE PUBLICATION p FOR TABLE t;
"""
COPY = """
CREATE SCHEMA public;
CREATE TABLE public.t (
    id INTEGER, name VARCHAR, price DECIMAL(8, 2), moment TIMESTAMP WITH TIME ZONE, ratio DOUBLE, took INTERVAL,
    tags VARCHAR[], grid INTEGER[][], span STRUCT(lower DATE, upper DATE, lower_inc BOOLEAN, upper_inc BOOLEAN,
    empty BOOLEAN), spans STRUCT(lower INTEGER, upper INTEGER, lower_inc BOOLEAN, upper_inc BOOLEAN, empty BOOLEAN)[],
    pair STRUCT(a INTEGER, b VARCHAR), pairs STRUCT(a INTEGER, b VARCHAR)[], raw BLOB, code VARCHAR,
    part DECIMAL(3, 3)
);
INSERT INTO public.t VALUES
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (2, '', NULL, 'infinity', '-0'::DOUBLE, NULL, [], [], {'lower': NULL, 'upper': NULL, 'lower_inc': false,
     'upper_inc': false, 'empty': true}, [], {'a': NULL, 'b': NULL}, [], ''::BLOB, '    ', 0),
    (1, 'one', 1.50, '2024-02-29 10:00:00.25+00', 0.1, INTERVAL '1 month -2 days 03:00:00.5', ['a', NULL, ''],
     [[1, 2], [3, 4]], {'lower': '2024-01-01', 'upper': '2024-02-01', 'lower_inc': true, 'upper_inc': false,
     'empty': false}, [{'lower': 1, 'upper': 3, 'lower_inc': true, 'upper_inc': false, 'empty': false},
     {'lower': 7, 'upper': 9, 'lower_inc': true, 'upper_inc': false, 'empty': false}], {'a': 1, 'b': 'x'},
     [{'a': 2, 'b': 'y'}, NULL, {'a': NULL, 'b': NULL}], '\\x00\\xFF'::BLOB, 'ab  ', -0.125);
"""


class Both:
    """A source and its copy, to change either."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.path = path

    def at_source(self, statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statements.encode())

    def in_copy(self, statements: str) -> None:
        with duckdb.connect(str(self.path)) as connection:
            connection.execute(statements)

    def set_in_copy(self, column: str, value: str, row: int) -> None:
        """By a new table: DuckDB's UPDATE keeps a value that equals the new one, as -0 does 0."""
        changed = f"CASE WHEN id = {row} THEN {value} ELSE {column} END AS {column}"
        self.in_copy(f"CREATE OR REPLACE TABLE public.t AS SELECT * REPLACE ({changed}) FROM public.t")

    def compared(self) -> TableAgreement:
        (agreement,) = compare(PostgresSource(self.url, publication="p"), self.path)
        return agreement


@pytest.fixture
def both(database: str, tmp_path: Path) -> Iterator[Both]:
    made = Both(database, tmp_path / "copy.duckdb")
    made.at_source(ORIGIN)
    made.in_copy(COPY)
    yield made


def test_true_copy_agrees_in_all_columns_whatever_the_order_of_rows(both: Both) -> None:
    agreement = both.compared()
    assert agreement.agrees, agreement
    assert str(agreement) == "rows and all 15 columns hashed"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", "'One'"),
        ("name", "NULL"),
        ("price", "1.51"),
        ("moment", "'2024-02-29 10:00:00.250001+00'"),
        ("ratio", "0.1::DOUBLE + 1e-17 + 1.4e-17"),
        ("took", "INTERVAL '28 days 03:00:00.5'"),
        ("tags", "['a', '', NULL]"),
        ("tags", "['a', NULL]"),
        ("grid", "[[1, 2, 3, 4]]"),
        ("span", "NULL"),
        ("spans", "[spans[1]]"),
        ("pair", "{'a': 1, 'b': NULL}"),
        ("pairs", "[pairs[1], pairs[3], NULL]"),
        ("raw", "'\\x00\\xFE'::BLOB"),
        ("code", "'ab'"),
        ("part", "0.125"),
    ],
)
def test_one_changed_value_is_found_and_its_column_named(both: Both, column: str, value: str) -> None:
    both.set_in_copy(column, value, row=1)
    agreement = both.compared()
    assert not agreement.agrees
    assert agreement.differing == (column,)


def test_empty_and_null_differ(both: Both) -> None:
    both.in_copy("UPDATE public.t SET name = NULL, tags = NULL WHERE id = 2")
    assert both.compared().differing == ("name", "tags")


def test_negative_zero_is_not_zero(both: Both) -> None:
    both.set_in_copy("ratio", "0::DOUBLE", row=2)
    assert both.compared().differing == ("ratio",)


def test_values_that_changed_places_are_found(both: Both) -> None:
    both.at_source("INSERT INTO t (id, name) VALUES (10, 'a'), (11, 'b')")
    both.in_copy("INSERT INTO public.t (id, name) VALUES (10, 'b'), (11, 'a')")
    agreement = both.compared()
    assert not agreement.agrees
    assert agreement.differing == ()
    assert str(agreement) == "values stand in other rows than in the source"


def test_missing_row_is_told_by_the_counts(both: Both) -> None:
    both.in_copy("DELETE FROM public.t WHERE id = 3")
    agreement = both.compared()
    assert (agreement.agrees, str(agreement)) == (False, "3 rows in the source, 2 in the destination")


def test_row_that_is_there_twice_does_not_make_up_for_a_missing_one(both: Both) -> None:
    both.in_copy("UPDATE public.t SET id = 1 WHERE id = 3")
    assert not both.compared().agrees


def test_missing_column_and_missing_table_are_told(both: Both) -> None:
    both.in_copy("ALTER TABLE public.t DROP COLUMN price")
    assert both.compared().differing == ("price",)
    assert not both.compared().agrees
    both.in_copy("DROP TABLE public.t")
    assert str(both.compared()) == "missing in the destination"
    assert not both.compared().agrees


def test_publication_decides_on_rows_and_columns(both: Both) -> None:
    both.at_source("DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE t (id, name) WHERE (id < 3)")
    both.in_copy("CREATE OR REPLACE TABLE public.t AS SELECT id, name FROM public.t WHERE id < 3")
    agreement = both.compared()
    assert agreement.agrees, agreement
    assert agreement.columns == 2


def test_column_that_only_postgres_can_write_out_is_compared_by_null_alone_and_that_is_said(both: Both) -> None:
    both.at_source(
        "CREATE EXTENSION cube; ALTER TABLE t ADD c cube, DROP COLUMN pairs; UPDATE t SET c = '(1,2)' WHERE id = 1"
    )
    both.in_copy("ALTER TABLE public.t DROP COLUMN pairs; ALTER TABLE public.t ADD c BLOB")
    both.in_copy("UPDATE public.t SET c = '\\x01'::BLOB WHERE id = 1")
    agreement = both.compared()
    assert agreement.agrees, agreement
    assert agreement.not_compared == ("c",)
    assert str(agreement) == "rows and 14 of 15 columns hashed"
    both.in_copy("UPDATE public.t SET c = NULL")
    assert both.compared().differing == ("c",)


def test_table_without_columns_or_rows_is_compared_by_count(both: Both) -> None:
    both.at_source("CREATE TABLE bare (); INSERT INTO bare DEFAULT VALUES; ALTER PUBLICATION p SET TABLE bare")
    both.in_copy("CREATE TABLE public.bare (_walrelay_no_columns BOOLEAN); INSERT INTO public.bare VALUES (NULL)")
    assert both.compared().agrees
    both.at_source("CREATE TABLE empty (id int); ALTER PUBLICATION p SET TABLE empty")
    both.in_copy("CREATE TABLE public.empty (id INTEGER)")
    assert str(both.compared()) == "no rows on either side"


def test_source_that_is_not_in_utf8_agrees(both: Both) -> None:
    with psycopg.connect(both.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'")
        try:
            latin = Both(both.url.rsplit("/", 1)[0] + "/latin", both.path)
            latin.at_source("CREATE TABLE t (name text); CREATE PUBLICATION p FOR TABLE t")
            with psycopg.connect(latin.url, autocommit=True, client_encoding="utf8") as there:
                there.execute("INSERT INTO t VALUES ('Grüße')")
            latin.in_copy("CREATE OR REPLACE TABLE public.t AS SELECT 'Grüße' AS name")
            assert latin.compared().agrees
        finally:
            connection.execute("DROP DATABASE latin WITH (FORCE)")


def test_file_that_is_no_database_is_refused_by_name(both: Both) -> None:
    both.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(DestinationCorruptError):
        both.compared()
