"""Values of an altered type: said exactly in the new one, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from walrelay.changes.spark_dialect import SPARK
from walrelay.decode.exact import InexactError, exact_column
from walrelay.decode.registry import arrow_type
from walrelay.model.schema import Column, PgType, TypeField

INT2, INT4, INT8 = (PgType(0, name) for name in ("int2", "int4", "int8"))
FLOAT4, FLOAT8, BOOL, TEXT, BYTEA = (PgType(0, name) for name in ("float4", "float8", "bool", "text", "bytea"))
DATE, TIMESTAMP, TIMESTAMPTZ, BIT, ANY_NUMERIC = (
    PgType(0, name) for name in ("date", "timestamp", "timestamptz", "bit", "numeric")
)
NOON = dt.datetime(2026, 1, 31, 12)
NAN = float("nan")


def numeric(precision: int, scale: int) -> PgType:
    return PgType(0, "numeric", modifier=((precision << 16) | scale) + 4)


def array(element: PgType, dimensions: int = 1) -> PgType:
    return PgType(0, f"_{element.name}", "array", element=element, dimensions=dimensions)


def composite(**parts: PgType) -> PgType:
    fields = tuple(TypeField(name, type_) for name, type_ in parts.items())
    return PgType(0, "pair", "composite", schema="public", fields=fields)


def converted(values: list[Any], before: PgType, after: PgType) -> list[Any]:
    wanted = arrow_type(after, SPARK)
    made = exact_column(pa.array(values, arrow_type(before, SPARK)), Column("v", before), Column("v", after), wanted)
    made.validate(full=True)
    assert made.type == wanted
    return made.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("before", "values", "after", "said"),
    [
        (INT4, [7, None, -(2**31)], INT8, [7, None, -(2**31)]),
        (INT8, [7, None], INT2, [7, None]),
        (INT4, [7, None], numeric(8, 2), [Decimal("7.00"), None]),
        (INT8, [2**63 - 1, None], numeric(38, 19), [Decimal("9223372036854775807." + "0" * 19), None]),
        (INT4, [7, None], ANY_NUMERIC, ["7", None]),
        (INT8, [2**53, None], FLOAT8, [2.0**53, None]),
        (INT4, [0, 1, None], BOOL, [False, True, None]),
        (INT4, [7, None], TEXT, ["7", None]),
        (BOOL, [True, None], INT4, [1, None]),
        (BOOL, [True, False, None], TEXT, ["true", "false", None]),
        (numeric(8, 2), [Decimal("1.50"), None], numeric(12, 4), [Decimal("1.5000"), None]),
        (numeric(8, 2), [Decimal("1.50"), None], numeric(4, 1), [Decimal("1.5"), None]),
        (numeric(12, 10), [Decimal("0.0000001"), Decimal(0), None], TEXT, ["0.0000001000", "0.0000000000", None]),
        (numeric(8, 2), [Decimal("7.00"), None], INT4, [7, None]),
        (ANY_NUMERIC, ["1.50", None], numeric(8, 2), [Decimal("1.50"), None]),
        (FLOAT4, [0.5, NAN, None], FLOAT8, [0.5, NAN, None]),
        (FLOAT8, [0.5, None], FLOAT4, [0.5, None]),
        (FLOAT8, [7.0, None], INT4, [7, None]),
        (FLOAT8, [1.1, None], numeric(8, 2), [Decimal("1.10"), None]),
        (TEXT, ["42", None], INT4, [42, None]),
        (TEXT, ["1.5", None], numeric(8, 2), [Decimal("1.50"), None]),
        (TEXT, ["2026-01-31", None], DATE, [dt.date(2026, 1, 31), None]),
        (TEXT, ["2026-01-31 12:00:00", None], TIMESTAMP, [NOON, None]),
        (DATE, [dt.date(2026, 1, 31), None], TIMESTAMP, [dt.datetime(2026, 1, 31), None]),
        (TIMESTAMP, [dt.datetime(2026, 1, 31), None], DATE, [dt.date(2026, 1, 31), None]),
        (BYTEA, [None, None], TEXT, [None, None]),
        (array(INT4), [[1, None], None, []], array(INT8), [[1, None], None, []]),
        (array(INT4, 2), [[[1], [2]], None], array(TEXT, 2), [[["1"], ["2"]], None]),
        (composite(a=INT4), [{"a": 1}, None], composite(a=INT8, b=TEXT), [{"a": 1, "b": None}, None]),
        (composite(a=INT4, b=INT4), [{"a": 1, "b": 2}, None], composite(b=INT8), [{"b": 2}, None]),
    ],
    ids=lambda one: one.name if isinstance(one, PgType) else "",
)
def test_what_can_be_said_exactly_is(before: PgType, values: list[Any], after: PgType, said: list[Any]) -> None:
    assert str(converted(values, before, after)) == str(said)


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        (INT8, 3_000_000_000, INT4),
        (INT8, 2**53 + 1, FLOAT8),
        (INT4, 2, BOOL),
        (INT4, 10_000_000, numeric(8, 2)),
        (INT4, 7, TIMESTAMP),
        (numeric(8, 2), Decimal("1.55"), numeric(8, 1)),
        (numeric(8, 2), Decimal("1.50"), INT4),
        (numeric(8, 2), Decimal("0.10"), FLOAT8),
        (ANY_NUMERIC, "0.1", FLOAT8),
        (ANY_NUMERIC, "NaN", numeric(8, 2)),
        (FLOAT8, 1.1, FLOAT4),
        (FLOAT8, 1e300, FLOAT4),
        (FLOAT8, 1.123, numeric(8, 2)),
        (FLOAT8, NAN, numeric(8, 2)),
        (FLOAT8, 0.1, ANY_NUMERIC),
        (FLOAT8, 1.5, INT4),
        (FLOAT8, 0.1, TEXT),
        (TEXT, "many", INT4),
        (TEXT, "1.555", numeric(8, 2)),
        (TEXT, "0.1", FLOAT8),
        (TEXT, "infinity", DATE),
        (TIMESTAMP, NOON, DATE),
        (TIMESTAMP, NOON, TIMESTAMPTZ),
        (TIMESTAMPTZ, NOON.replace(tzinfo=dt.UTC), TIMESTAMP),
        (DATE, dt.date(2026, 1, 31), TIMESTAMPTZ),
        (BYTEA, b"ab", TEXT),
        (TEXT, "ab", BYTEA),
        (BIT, "101", INT4),
        (array(INT4), [1], INT4),
        (array(INT4), [1], array(INT4, 2)),
        (array(INT8), [2**40], array(INT4)),
        (composite(a=INT4, b=INT4), {"a": 1, "b": 2}, composite(a=INT4, c=INT4)),
    ],
    ids=lambda one: one.name if isinstance(one, PgType) else "",
)
def test_what_cannot_be_said_exactly_is_refused(before: PgType, value: Any, after: PgType) -> None:
    with pytest.raises(InexactError):
        converted([None, value], before, after)


def test_a_column_that_came_as_text_is_not_parsed() -> None:
    with pytest.raises(InexactError):
        exact_column(pa.array(["1"]), Column("v", INT4, as_text=True), Column("v", INT4), pa.int32())


def test_a_refusal_does_not_quote_the_value() -> None:
    with pytest.raises(InexactError) as refused:
        converted(["secret"], TEXT, INT4)
    assert "secret" not in str(refused.value) and refused.value.__cause__ is None
    assert refused.value.__suppress_context__
