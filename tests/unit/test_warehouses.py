"""Warehouses without a service: names, types, DDL, plans, error classes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from walrelay.changes.shapes import HeldColumn, held_columns, match_held
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.bigquery import failures as bigquery_failures
from walrelay.destinations.bigquery.destination import BigQueryDestination
from walrelay.destinations.bigquery.dialect import DIALECT as BIGQUERY
from walrelay.destinations.bigquery.dialect import column_name, decimal_type, is_place
from walrelay.destinations.bigquery.failures import Failed, in_our_words
from walrelay.destinations.bigquery.fields import field
from walrelay.destinations.bigquery.script import Script, literal
from walrelay.destinations.snowflake.destination import SnowflakeDestination
from walrelay.destinations.snowflake.dialect import DIALECT as SNOWFLAKE
from walrelay.destinations.snowflake.failures import NUMBERS, snowflake_failures
from walrelay.destinations.snowflake.statements import Statements
from walrelay.destinations.warehouse.follow import alterations
from walrelay.destinations.warehouse.names import refuse_own, refuse_twins, table_place
from walrelay.destinations.warehouse.plan import Plan, Step, steps_for
from walrelay.destinations.warehouse.state import Alteration, Ledger, TableState
from walrelay.errors import (
    ConfigError,
    DestinationError,
    DestinationLoginError,
    DestinationRightsError,
    DestinationThrottledError,
    DestinationUnreachableError,
    MissingExtraError,
    MissingRowError,
    NameClashError,
    WalrelayError,
)
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema, TypeField

INT, TEXT, FLOAT = PgType(23, "int4"), PgType(25, "text"), PgType(701, "float8")


def columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, INT, attnum=number) for number, name in enumerate(names, 1))


# ------------------------------------------------------------------------------------------------------------- names


def test_tables_of_public_keep_their_name_and_others_have_their_schemas_before_it() -> None:
    assert table_place(TableName("public", "orders")) == "orders"
    assert table_place(TableName("sales", "orders")) == "sales_orders"
    with pytest.raises(NameClashError):
        refuse_own("_walrelay_x", TableName("public", "_walrelay_x"))


@pytest.mark.parametrize("name", ["orders", "Größe 漢字", "a-b_c 1"])
def test_bigquery_takes_letters_digits_spaces_and_dashes_in_tables(name: str) -> None:
    assert is_place(name)


@pytest.mark.parametrize("name", ["it's", 'a"b', "a.b", "a/b", "`", "x" * 1025])
def test_bigquery_has_no_such_tables(name: str) -> None:
    assert not is_place(name)


def test_columns_that_bigquery_cannot_name_are_written_as_in_a_url_and_none_becomes_anothers() -> None:
    assert column_name("größe & more") == "größe & more"
    assert column_name("50%") == "50%25"
    assert column_name("x, y") == "x%2C y"
    names = ["x, y", "x%2C y", "a.b", "a%2Eb", 'say "so"', "100%, or", "100%25%2C or"]
    assert len({column_name(name) for name in names}) == len(names)


def test_columns_that_only_case_tells_apart_are_refused_by_name() -> None:
    schema = TableSchema(1, TableName("public", "t"), columns("Twin", "twin"))
    with pytest.raises(NameClashError, match="Twin, twin"):
        refuse_twins(schema, str.casefold, "BigQuery")
    refuse_twins(schema, str, "Snowflake")


# ------------------------------------------------------------------------------------------------------------- types


def test_bigquery_takes_the_shorter_decimal_that_is_enough() -> None:
    assert decimal_type(38, 9) == "NUMERIC(38, 9)" and decimal_type(38, 10) == "BIGNUMERIC(38, 10)"
    assert decimal_type(30, 0) == "BIGNUMERIC(30, 0)" and decimal_type(29, 0) == "NUMERIC(29, 0)"


def test_snowflake_has_37_digits_after_the_point() -> None:
    def numeric(precision: int, scale: int) -> str:
        return SNOWFLAKE.type_name(PgType(1700, "numeric", modifier=((precision << 16) | scale) + 4))

    assert numeric(38, 37) == "NUMBER(38, 37)" and numeric(38, 38) == "VARCHAR"


def test_types_are_the_fields_of_a_schema() -> None:
    pair = PgType(1, "pair", schema="public", kind="composite", fields=(TypeField("x, y", INT), TypeField("b", TEXT)))
    arrays = PgType(1, "_pair", kind="array", element=pair, dimensions=2)
    made = field("c", BIGQUERY.type_name(arrays))
    assert (made.field_type, made.mode) == ("RECORD", "REPEATED")
    (items,) = made.fields
    assert (items.name, items.mode) == ("items", "REPEATED")
    assert [one.name for one in items.fields] == ["x%2C y", "b"]
    number = field("n", "BIGNUMERIC(38, 20)")
    assert (number.field_type, number.precision, number.scale) == ("BIGNUMERIC", 38, 20)


# --------------------------------------------------------------------------------------------------------------- DDL


def altered(before: tuple[Column, ...], after: tuple[Column, ...]) -> tuple[Alteration, ...]:
    held = held_columns(before, BIGQUERY)
    return alterations(match_held(after, held, BIGQUERY), held, column_name)


def performed(names: list[str], steps: tuple[Alteration, ...]) -> list[str]:
    """As a service would: no name twice, none that is not there."""
    for step in steps:
        if step.kind == "add":
            assert step.column not in names
            names = [*names, step.column]
            continue
        assert step.column in names, step
        if step.kind == "drop":
            names = [name for name in names if name != step.column]
        elif step.kind == "rename":
            assert step.to not in names, step
            names = [step.to if name == step.column else name for name in names]
    return names


@pytest.mark.parametrize(
    "after", [["b", "a", "c"], ["b", "c", "a"], ["b", "c", "d"], ["x", "y", "z"], ["a", "c", "b"]], ids="".join
)
def test_columns_change_names_in_any_way(after: list[str]) -> None:
    steps = altered(columns("a", "b", "c"), columns(*after))
    assert performed(["a", "b", "c"], steps) == after


def test_a_column_that_takes_a_name_which_was_dropped_is_another_one() -> None:
    after = (Column("b", INT, attnum=2), Column("a", INT, attnum=4))
    assert altered(columns("a", "b"), after) == (Alteration("drop", "a"), Alteration("add", "a", "INT64"))


def test_of_a_step_that_may_have_been_done_the_columns_tell() -> None:
    names = ["a", "b", "c"]
    for step in altered(columns("a", "b", "c"), columns("b", "a", "d")):
        assert not step.is_done(frozenset(names))
        names = performed(names, (step,))
        assert step.is_done(frozenset(names))


def test_a_state_is_the_same_when_it_is_read_back() -> None:
    held = (HeldColumn("a", 1, "INT64", source_type="23:-1"),)
    ledger = Ledger((Alteration("add", "b", "INT64"),), 1, held, (Lsn(7), 2), ("a",))
    state = TableState(1, "s", "p", "orders", held, ("a",), (Lsn(5), 1), Lsn(4), "c", True, ledger)
    assert TableState.from_json(state.to_json()) == state
    assert TableState.from_json(replace(state, ledger=None, copied=None).to_json()).copied is None


# -------------------------------------------------------------------------------------------------------------- plans


@dataclass
class Found:
    """As much of frames as a plan asks for."""

    key: tuple[int, ...]
    unchanged: tuple[int, ...] = ()
    truncated_at: tuple[int, int] | None = None
    olds: int = 1

    @property
    def survey(self) -> Any:
        return self


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        (Found((0,)), "TAKE_AWAY PUT"),
        (Found((0,), (1,)), "REFUSE_UNSENT FILL REFUSE_MISSING TAKE_AWAY PUT"),
        (Found((0,), (1,), (5, 1)), "REFUSE_UNSENT REFUSE_MISSING CLEAR PUT"),
        (Found(()), "REFUSE_MISSING KEEP_REST TAKE_AWAY PUT"),
        (Found((), olds=0), "PUT"),
        (Found((), truncated_at=(5, 1)), "CLEAR PUT"),
    ],
    ids=["keyed", "left out", "left out and truncated", "keyless", "appended", "truncated"],
)
def test_a_plan_has_the_steps_that_its_changes_need(found: Any, steps: str) -> None:
    assert [step.name for step in steps_for(found, is_copied=True)] == steps.split()


def plan_of(key: tuple[int, ...], steps: tuple[Step, ...], columns_: tuple[Column, ...]) -> Plan:
    error = MissingRowError("rows are not there: it's a 'test'")
    return Plan("t", "s", "g", columns_, key, (), steps, Lsn(1), Lsn(2), "c", True, error, error)


def test_a_batch_reads_only_the_range_of_its_keys_where_keys_have_an_order() -> None:
    plan = plan_of((0,), (Step.TAKE_AWAY, Step.PUT), (Column("id", INT), Column("x", FLOAT)))
    assert "BETWEEN walrelay_low AND walrelay_high" in Script(plan, BIGQUERY, str).sql()
    assert "BETWEEN (SELECT MIN" in Statements(plan, SNOWFLAKE).statement(Step.TAKE_AWAY)
    by_float = replace(plan, key=(1,))
    assert "BETWEEN" not in Script(by_float, BIGQUERY, str).sql()
    assert "IS_NAN" in Script(by_float, BIGQUERY, str).sql(), "NaN is a key like any other"


def test_an_error_of_ours_comes_back_out_of_bigquerys_text() -> None:
    error = plan_of((), (), ()).missing
    said = literal(error.to_text())
    assert said.startswith("'") and "\n" not in said
    found = in_our_words(Failed("invalidQuery", f"Assertion failed: {error.to_text()} at [3:1]"), "taking a batch")
    assert isinstance(found, MissingRowError) and found.message == error.message


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (Failed("quotaExceeded", ""), DestinationThrottledError),
        (Failed("rateLimitExceeded", ""), DestinationThrottledError),
        (
            Failed("invalidQuery", "Transaction is aborted due to concurrent update against table"),
            DestinationThrottledError,
        ),
        (Failed("backendError", ""), DestinationUnreachableError),
        (Failed("", "", 503), DestinationUnreachableError),
        (Failed("accessDenied", "", 403), DestinationRightsError),
        (Failed("", "", 401), DestinationLoginError),
        (Failed("invalidQuery", "Syntax error near 'a secret value'"), DestinationError),
    ],
    ids=lambda one: getattr(one, "reason", None) or getattr(one, "code", None),
)
def test_bigquerys_failures_have_a_kind_and_never_its_text(failed: Failed, kind: type[DestinationError]) -> None:
    error = in_our_words(failed, "taking a batch")
    assert type(error) is kind and "secret" not in str(error)


def test_every_kind_that_a_service_knows_says_whether_time_heals_it() -> None:
    kinds = {*bigquery_failures.REASONS.values(), *bigquery_failures.CODES.values(), *NUMBERS.values()}
    assert {kind for kind in kinds if kind.retryable} == {DestinationThrottledError, DestinationUnreachableError}


def test_snowflakes_failures_have_a_kind_and_never_its_text() -> None:
    from snowflake.connector.errors import DatabaseError, OperationalError, ProgrammingError

    for raised, kind in (
        (ProgrammingError("a secret value", errno=3001), DestinationRightsError),
        (DatabaseError("a secret value", errno=390100), DestinationLoginError),
        (ProgrammingError("a secret value", errno=625), DestinationThrottledError),
        (OperationalError("a secret value", errno=251999), DestinationUnreachableError),
        (ProgrammingError("a secret value", errno=1), DestinationError),
    ):
        with pytest.raises(WalrelayError) as caught, snowflake_failures("taking a batch"):
            raise raised
        assert type(caught.value) is kind and "secret" not in str(caught.value)


# --------------------------------------------------------------------------------------------------------------- URLs


def test_urls_say_it_all() -> None:
    made = BigQueryDestination.from_url("bigquery://proj/data?location=EU&json=json&staging=gs://b/p")
    assert (made.project, made.dataset, made.place) == ("proj", "data", "proj.data")
    other = SnowflakeDestination.from_url("snowflake://me:p%40ss@org-acc/DB/S?role=R&warehouse=W&names=upper")
    assert other.place == "org-acc/DB/S" and "p@ss" not in repr(other._access)
    assert other._access.arguments()["password"] == "p@ss"


@pytest.mark.parametrize(
    "url",
    [
        "bigquery://proj",
        "bigquery:///data",
        "bigquery://proj/data?json=x",
        "bigquery://proj/data?colour=red",
        "bigquery://proj/data?staging=s3://b",
        "snowflake://acc/db/s",
        "snowflake://me@acc/db/s",
        "snowflake://me:p@acc/db",
        "snowflake://me:p@acc/db/s?names=odd",
        "snowflake://me:p@acc/db/s?port=x",
    ],
)
def test_urls_that_say_too_little_are_refused(url: str) -> None:
    make = BigQueryDestination if url.startswith("bigquery") else SnowflakeDestination
    with pytest.raises(ConfigError) as caught:
        make.from_url(url)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("google.cloud", "bigquery://p/d", "walrelay[bigquery]"),
        ("snowflake.connector", "snowflake://me:p@a/d/s", "walrelay[snowflake]"),
    ],
)
def test_a_missing_package_is_named(module: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith(module)]:
        monkeypatch.delitem(sys.modules, name)
    broken = SimpleNamespace() if module == "google.cloud" else None
    monkeypatch.setitem(sys.modules, module, broken)
    make = BigQueryDestination if url.startswith("bigquery") else SnowflakeDestination
    with pytest.raises(MissingExtraError) as caught:
        make.from_url(url).startup(DestinationContext("p", None))  # type: ignore[arg-type]
    assert extra in caught.value.hint
