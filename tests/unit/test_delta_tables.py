"""Which Delta tables of a lake are whose, and where they stand; without Spark, which only later commits need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.delta.actions import metadata, transaction
from walrelay.destinations.delta.format import DeltaFormat
from walrelay.destinations.delta.shape import altered, fresh
from walrelay.destinations.delta.table import DeltaFacts, create
from walrelay.destinations.lake.format import Held, Place
from walrelay.destinations.lake.tables import Tables
from walrelay.errors import NameClashError, OtherPipelineError, OtherSourceError
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema, TypeField

NO_SPARK: Any = None
INT4, TEXT, STAMP = PgType(23, "int4"), PgType(25, "text"), PgType(1114, "timestamp")
PAIR = PgType(9, "pair", kind="composite", fields=(TypeField("a", INT4), TypeField("b", TEXT)))
COLUMNS = (Column("id", INT4, attnum=1), Column("a, b", TEXT, attnum=2), Column("pair", PAIR, attnum=3))


def orders(name: str = "orders", id_: int = 7) -> TableSchema:
    return TableSchema(id_, TableName("public", name), COLUMNS, ("id",))


def context(**other: object) -> DestinationContext:
    made = DestinationContext(
        "shop", copy_settings(), source_id="s1", source_name="here", pipeline_name="shop-1", mode="both"
    )
    return replace(made, **other)  # type: ignore[arg-type]


class WithoutSpark(DeltaFormat):
    """Spark need not be told of what is moved here: there is none."""

    def _told(self, spark: SparkSession, path: Path) -> None:
        pass


def of(root: Path, **other: object) -> Tables:
    return Tables(str(root), WithoutSpark(root), context(**other))


def made(root: Path, tables: Tables, schema: TableSchema) -> Held:
    place = tables.place(schema)
    fields, mapping = fresh(schema, None)
    marks = tables.marks(schema, (Lsn(5), 0), Lsn(5))
    actions = [transaction(tables.app(schema.id), 12)]
    create(root / place.schema / place.name, metadata(None, fields, {**mapping, **marks}), actions)
    return tables.made(schema.id, place)


def test_a_table_is_found_again_with_all_that_it_says(tmp_path: Path) -> None:
    made(tmp_path, of(tmp_path), orders())
    held = of(tmp_path).held(7)
    assert held is not None and held.place == Place("public", "orders")
    assert held.facts.applied == 12 and held.copied == Lsn(5) and held.shape_place == (Lsn(5), 0)
    assert [(one.name, one.attnum, one.source_type) for one in held.facts.columns] == [
        ("id", 1, "23:-1"),
        ("a, b", 2, "25:-1"),
        ("pair", 3, "9:-1"),
    ]


def test_a_table_is_made_once_and_readable_by_others(tmp_path: Path) -> None:
    tables = of(tmp_path)
    schema = orders()
    made(tmp_path, tables, replace(schema, columns=(*COLUMNS, Column("at", STAMP, attnum=4))))
    with pytest.raises(FileExistsError):
        made(tmp_path, tables, schema)
    found = deltalake.DeltaTable(str(tmp_path / "public" / "orders"))
    assert [field.name for field in found.schema().fields] == ["id", "a, b", "pair", "at"]
    read = deltalake.QueryBuilder().register("t", found).execute("SELECT * FROM t").read_all()
    assert (read.num_columns, read.num_rows) == (4, 0)
    assert not list((tmp_path / "public" / "orders" / "_delta_log").glob(".*"))


def test_what_is_not_ours_is_refused_by_name(tmp_path: Path) -> None:
    made(tmp_path, of(tmp_path), orders())
    with pytest.raises(OtherSourceError, match="s1"):
        of(tmp_path, source_id="s2").place(orders())
    with pytest.raises(OtherPipelineError, match="shop-1"):
        of(tmp_path, pipeline_name="other-2", pipeline_id="other").refuse_stranger(orders(), copying=True)
    with pytest.raises(OtherPipelineError, match="copy without changes"):
        of(tmp_path, pipeline_name=None, mode="copy").refuse_stranger(orders(), copying=True)
    heard: list[str] = []
    anew = of(tmp_path, pipeline_name="shop-2", notify=heard.append)
    anew.refuse_stranger(orders(), copying=True)
    assert len(heard) == 1 and "takes it over" in heard[0]
    with pytest.raises(OtherPipelineError):
        anew.refuse_stranger(orders(), copying=False)
    deltalake.write_deltalake(str(tmp_path / "public" / "theirs"), pa.table({"id": [1]}))
    with pytest.raises(NameClashError, match="theirs"):
        of(tmp_path).place(orders("theirs", 8))


def test_tables_that_exchange_their_names_are_moved(tmp_path: Path) -> None:
    tables = of(tmp_path)
    made(tmp_path, tables, orders("a", 1))
    made(tmp_path, tables, orders("b", 2))
    tables.follow_name(NO_SPARK, orders("b", 1))
    tables.follow_name(NO_SPARK, orders("a", 2))
    again = of(tmp_path)
    assert [again.held(table).place.name for table in (1, 2)] == ["b", "a"]  # type: ignore[union-attr]


def test_a_table_made_anew_under_a_name_gets_the_place_of_the_one_that_was_dropped(tmp_path: Path) -> None:
    made(tmp_path, of(tmp_path), orders("a", 1))
    unknown, gone = of(tmp_path), of(tmp_path, names=lambda _: {})
    gone.follow_name(NO_SPARK, orders("a", 2))
    taken = gone.held(2)
    assert taken is not None and taken.place.name == "a" and taken.facts.applied is None and gone.held(1) is None
    # Where nobody can say whether the other is gone, nothing of it is lost.
    unknown.follow_name(NO_SPARK, orders("a", 2))
    assert unknown.held(2) is None and unknown.held(1).place.name == "a 1"  # type: ignore[union-attr]


def test_columns_that_stay_keep_their_place_in_the_files(tmp_path: Path) -> None:
    facts = made(tmp_path, of(tmp_path), orders()).facts
    assert isinstance(facts, DeltaFacts)
    columns = (Column("id", INT4, attnum=1), Column("pair", TEXT, attnum=4), Column("twin", PAIR, attnum=3))
    fields, mapping = altered(replace(orders(), columns=columns), facts)
    before = {field["name"]: field["metadata"] for field in facts.schema["fields"]}
    name, number = "delta.columnMapping.physicalName", "delta.columnMapping.id"
    after = {field["name"]: field["metadata"] for field in fields}
    assert after["id"][name] == "id" and after["twin"][name] == "pair", "what was renamed is still where it was"
    assert after["twin"][number] == before["pair"][number]
    assert after["pair"][name].startswith("col-"), "a column that has got an older one's name is another"
    assert after["pair"][number] == int(facts.properties["delta.columnMapping.maxColumnId"]) + 1
    assert mapping["delta.columnMapping.maxColumnId"] == str(after["pair"][number])
