"""Values that are hidden: a digest is that of hashlib, a mask shows what it should, and a salt is shown nowhere."""

from __future__ import annotations

import hashlib
import pickle

import pyarrow as pa
import pytest

from walrelay.decode.sha256 import sha256_hex
from walrelay.model.names import TableName
from walrelay.model.schema import Column, PgType, TableSchema
from walrelay.model.table_options import Hash, KeepLast, TableOptions, WithConstant, WithNull
from walrelay.shaping.constants import constant_type
from walrelay.shaping.plan import plan_for
from walrelay.shaping.shaping import Shaping
from walrelay.shaping.values import hidden

VALUES = [None, "", "a", "x" * 55, "y" * 56, "z" * 63, "w" * 64, "é" * 100, None, "q" * 1000, *map(str, range(200))]


@pytest.mark.parametrize("salt", [b"", b"pepper", b"s" * 55, b"s" * 64, b"s" * 200])
def test_a_digest_is_what_hashlib_says(salt: bytes) -> None:
    wanted = [None if one is None else hashlib.sha256(salt + one.encode()).hexdigest() for one in VALUES]
    for kind in (pa.string(), pa.large_string()):
        array = pa.array(VALUES, kind)
        assert sha256_hex(array, salt).to_pylist() == wanted
        assert sha256_hex(array.slice(3, 9), salt).to_pylist() == wanted[3:12]
    raw = pa.array([None if one is None else one.encode() for one in VALUES])
    assert sha256_hex(raw, salt).to_pylist() == wanted
    assert sha256_hex(pa.array([], pa.string()), salt).to_pylist() == []


def test_only_the_last_characters_stay_and_of_short_texts_none() -> None:
    given = pa.array(["abcdef", "ab", None, "é1234", "abc", ""])
    assert hidden(given, KeepLast(3), pa.string()).to_pylist() == ["***def", "**", None, "**234", "***", ""]


def test_a_constant_takes_the_column_s_own_type_where_that_holds_it() -> None:
    def kind(name: str, value: str | int | float | bool) -> str:
        return constant_type(Column("c", PgType(1, name)), value).name

    assert [kind("int4", 7), kind("date", "1970-01-01"), kind("text", "x"), kind("bool", True)] == [
        "int4",
        "date",
        "text",
        "bool",
    ]
    assert [kind("int4", "x"), kind("int2", 70_000), kind("date", "soon"), kind("uuid", "x"), kind("text", 1)] == [
        "text",
        "int8",
        "text",
        "text",
        "int8",
    ]
    held = hidden(pa.array([5, None], pa.int32()), WithConstant(0), pa.int32())
    assert held.to_pylist() == [0, None]
    assert hidden(pa.array([5, None]), WithNull(), pa.int64()).to_pylist() == [None, None]


SCHEMA = TableSchema(
    7, TableName("public", "t"), (Column("id", PgType(23, "int4"), attnum=1), Column("a", PgType(25, "text"), attnum=2))
)


def test_the_salt_is_in_no_text_of_what_holds_it() -> None:
    options = TableOptions(hash=Hash(("a",), salt="hunter2"))
    plan = plan_for(SCHEMA, options)
    shaping = Shaping({"t": options})
    assert "hunter2" not in f"{options!r} {plan!r} {plan.shaped!r} {shaping.fingerprint(SCHEMA.name)}"
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert shaping.fingerprint(SCHEMA.name) != Shaping({"t": TableOptions(hash=Hash(("a",)))}).fingerprint(SCHEMA.name)


def test_a_hidden_column_of_another_type_or_with_another_mask_is_another_column() -> None:
    def number(type_: PgType, options: TableOptions) -> int:
        schema = TableSchema(7, SCHEMA.name, (Column("a", type_, attnum=2),))
        return plan_for(schema, options).shaped.columns[0].attnum

    hashed = TableOptions(hash=Hash(("a",)))
    seen = {
        number(PgType(25, "text"), hashed),
        number(PgType(20, "int8"), hashed),
        number(PgType(25, "text"), TableOptions(mask={"a": KeepLast(2)})),
        number(PgType(25, "text"), TableOptions()),
    }
    assert len(seen) == 4
    assert plan_for(SCHEMA, hashed).shaped.columns[1].filled
