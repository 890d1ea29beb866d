"""Changes of one shape, said in another: the typed view, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from walrelay.log.failures import LogSchemaChangedError
from walrelay.log.reader import TableBatch, reading_schema
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, SchemaVersion, TableSchema
from walrelay.spark.change_rows import typed

INT, BIG, TEXT = PgType(23, "int4"), PgType(20, "int8"), PgType(25, "text")


def shape(*columns: Column, name: str = "orders") -> TableSchema:
    return TableSchema(16384, TableName("public", name), columns, primary_key=("id",), identity_columns=("id",))


def number(name: str, attnum: int, type_: PgType = INT) -> Column:
    return Column(name, type_, attnum=attnum)


def changes(schema: TableSchema, *images: dict[str, Any]) -> TableBatch:
    """A change per image: `row`, `old`, `unchanged`."""
    given: dict[str, list[Any]] = {field.name: [None] * len(images) for field in reading_schema(schema)}
    given |= {name: [image.get(name) for image in images] for name in ("row", "old", "unchanged")}
    given |= {name: [1] * len(images) for name in ("commit_lsn", "end_lsn", "ordinal", "xid", "schema_version")}
    columns = [pa.array(given[field.name], field.type) for field in reading_schema(schema)]
    return TableBatch(
        SchemaVersion(schema, 1, Lsn(1)), pa.RecordBatch.from_arrays(columns, schema=reading_schema(schema))
    )


def images(batch: TableBatch, declared: TableSchema, name: str = "row") -> list[dict[str, Any] | None]:
    found = typed(batch, declared, "null")
    found.validate(full=True)
    return found.column(name).to_pylist()  # type: ignore[no-any-return]


def test_a_renamed_column_keeps_its_values_before_and_after() -> None:
    batch = changes(
        shape(number("id", 1), number("paid", 2)), {"row": {"id": 1, "paid": 5}, "old": {"id": 1, "paid": 4}}, {}
    )
    declared = shape(number("id", 1), number("price", 2, BIG))
    assert images(batch, declared) == [{"id": 1, "price": 5}, None]
    assert images(batch, declared, "old") == [{"id": 1, "price": 4}, None]


def test_swapped_names_do_not_exchange_values() -> None:
    batch = changes(shape(number("a", 1), number("b", 2)), {"row": {"a": 10, "b": 20}})
    assert images(batch, shape(number("b", 1), number("a", 2))) == [{"b": 10, "a": 20}]


def test_a_column_added_again_under_the_same_name_is_null_before() -> None:
    """The two shapes look alike."""
    batch = changes(shape(number("id", 1), number("note", 2)), {"row": {"id": 1, "note": 5}})
    assert images(batch, shape(number("id", 1), number("note", 3))) == [{"id": 1, "note": None}]


def test_columns_without_numbers_go_by_name() -> None:
    batch = changes(shape(number("id", 0), number("gone", 0)), {"row": {"id": 1, "gone": 5}})
    assert images(batch, shape(number("note", 0), number("id", 0))) == [{"note": None, "id": 1}]


def test_what_may_be_a_rename_is_refused_by_name() -> None:
    batch = changes(shape(number("id", 1), number("paid", 0)), {"row": {"id": 1, "paid": 5}})
    with pytest.raises(LogSchemaChangedError, match=r"whether column price of public\.orders was paid before"):
        images(batch, shape(number("id", 1), number("price", 2)))


def test_a_value_that_does_not_fit_is_refused_and_not_quoted() -> None:
    batch = changes(shape(number("id", 1), number("paid", 2, TEXT)), {"row": {"id": 1, "paid": "much"}})
    with pytest.raises(LogSchemaChangedError, match=r"column price of public\.orders") as refused:
        images(batch, shape(number("id", 1), number("price", 2)))
    assert "much" not in str(refused.value)


def test_a_shape_without_columns_still_has_rows() -> None:
    batch = changes(shape(number("id", 1)), {"row": {"id": 1}}, {})
    assert images(batch, shape()) == [{}, None]
    nothing = changes(shape(), {"row": {}}, {})
    assert images(nothing, shape(number("id", 1))) == [{"id": None}, None]


def test_unchanged_columns_have_their_declared_names_in_every_row() -> None:
    then = shape(number("id", 1), number("a", 2, TEXT), number("gone", 3, TEXT), number("b", 4, TEXT))
    marked = (["a"], None, ["gone"], ["a", "gone", "b"], [])
    batch = changes(then, *({"row": {"id": 1}, "unchanged": names} for names in marked))
    declared = shape(number("id", 1), number("b", 2, TEXT), number("c", 4, TEXT), number("gone", 5, TEXT))
    assert images(batch, declared, "unchanged") == [["b"], None, None, ["b", "c"], None]
    cut = TableBatch(batch.version, batch.batch.slice(2, 2))
    assert images(cut, declared, "unchanged") == [None, ["b", "c"]]


def test_the_table_keeps_the_name_that_it_had() -> None:
    batch = changes(shape(number("id", 1)), {"row": {"id": 1}})
    assert images(batch, shape(number("id", 1), name="purchases"), "table") == ["public.orders"]
