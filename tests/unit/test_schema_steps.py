"""What DDL has done between two shapes, told by attribute numbers."""

from __future__ import annotations

from dataclasses import replace

from walrelay.changes.steps import SchemaStep, schema_steps
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema

INT4, INT8, TEXT = PgType(23, "int4"), PgType(20, "int8"), PgType(25, "text")
A, B = Column("a", INT4, attnum=1), Column("b", TEXT, attnum=2)
TABLE = TableSchema(7, TableName("public", "t"), (A, B), ("a",))


def test_nothing_has_no_steps() -> None:
    assert schema_steps(TABLE, TABLE) == ()


def test_names_that_change_places_are_two_renames() -> None:
    swapped = (replace(A, name="b"), replace(B, name="a"))
    steps = schema_steps(TABLE, replace(TABLE, columns=swapped))
    assert steps == (SchemaStep("rename", "a", swapped[0]), SchemaStep("rename", "b", swapped[1]))


def test_a_column_dropped_and_added_again_is_another_one() -> None:
    again = Column("b", TEXT, attnum=3)
    steps = schema_steps(TABLE, replace(TABLE, columns=(A, again)))
    assert steps == (SchemaStep("drop", "b"), SchemaStep("add", "b", again))


def test_a_column_may_get_another_name_and_another_type_at_once() -> None:
    now = Column("n", INT8, attnum=1)
    steps = schema_steps(TABLE, replace(TABLE, columns=(now, B)))
    assert steps == (SchemaStep("rename", "a", now), SchemaStep("retype", "a", now))


def test_without_numbers_a_column_is_its_name() -> None:
    unknown = (replace(A, attnum=0), replace(B, name="c", attnum=0))
    steps = schema_steps(TABLE, replace(TABLE, columns=unknown))
    assert steps == (SchemaStep("drop", "b"), SchemaStep("add", "c", unknown[1]))
