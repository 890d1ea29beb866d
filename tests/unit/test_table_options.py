"""Options of tables: which pattern's hold for a table, and what contradicts itself."""

from __future__ import annotations

import pickle

import pytest

from walrelay.model.names import TableName
from walrelay.model.table_options import (
    Hash,
    KeepLast,
    Rename,
    TableOptions,
    TablePattern,
    WithNull,
    tables_of,
)

ORDERS = TableName("shop", "orders")


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("orders", [("public", "orders")], [("shop", "orders"), ("public", "orders2")]),
        ("shop.orders", [("shop", "orders")], [("public", "orders")]),
        ("Shop.Orders", [("shop", "orders")], [("Shop", "Orders")]),
        ("shop.*", [("shop", "orders"), ("shop", "a.b")], [("shopping", "orders")]),
        ("*.audit_?", [("x", "audit_1")], [("x", "audit_12"), ("x", "audit_")]),
        ("*", [("shop", "orders"), ("Odd", "Tab le")], []),
        ('"Odd.Schema"."a*b"', [("Odd.Schema", "a*b")], [("Odd.Schema", "aXb")]),
        ('shop."Big"*', [("shop", "Bigger")], [("shop", "bigger")]),
    ],
)
def test_a_pattern_names_tables(pattern: str, names: list[tuple[str, str]], others: list[tuple[str, str]]) -> None:
    made = TablePattern.parse(pattern)
    assert [name for name in names if not made.matches(TableName(*name))] == []
    assert [name for name in others if made.matches(TableName(*name))] == []


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", 'a."b', "a..b"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        TablePattern.parse(text)


def test_the_more_exact_pattern_wins_and_of_equal_ones_the_later() -> None:
    patterns = {
        "shop.orders": TableOptions(on_removed="drop"),
        "shop.*": TableOptions(on_removed="keep", soft_deletes=True),
        "*": TableOptions(soft_deletes=False, special_values="clamp"),
        "shop.o*": TableOptions(on_schema_change="copy"),
        "shop.*s": TableOptions(on_schema_change="error"),
    }
    assert tables_of(patterns, ORDERS) == TableOptions(
        on_removed="drop", soft_deletes=True, special_values="clamp", on_schema_change="error"
    )
    assert tables_of(patterns, TableName("other", "x")) == TableOptions(soft_deletes=False, special_values="clamp")
    assert tables_of({}, ORDERS) == TableOptions()


def test_options_that_contradict_each_other_are_refused_also_across_patterns() -> None:
    for wrong in (
        {"columns": ("a",), "leave_out": ("b",)},
        {"soft_deletes": True, "history": "scd2"},
        {"hash": Hash(("a",)), "mask": {"a": WithNull()}},
        {"columns": ("id",), "mask": {"a": WithNull()}},
        {"leave_out": ("a",), "hash": Hash(("a",))},
        {"leave_out": ("a",), "rename": Rename(columns={"a": "b"})},
    ):
        with pytest.raises(ValueError, match=r"cannot both|not both|does not arrive"):
            TableOptions(**wrong)  # type: ignore[arg-type]
    patterns = {"*": TableOptions(soft_deletes=True), "shop.orders": TableOptions(history="changes")}
    with pytest.raises(ValueError, match="history"):
        tables_of(patterns, ORDERS)


def test_names_are_made_of_names() -> None:
    assert Rename(schema="raw", table="{schema}_{table}").name_of(ORDERS) == TableName("raw", "shop_orders")
    assert Rename(columns={"a": "b"}).name_of(ORDERS) == ORDERS
    for wrong in ({"table": "{tabel}"}, {"schema": ""}, {"columns": {"a": "c", "b": "c"}}):
        with pytest.raises(ValueError, match=r"no \{tabel\}|needs a name|both become"):
            Rename(**wrong)  # type: ignore[arg-type]


def test_options_are_values_that_cross_into_other_processes_and_show_no_salt() -> None:
    made = TableOptions(
        rename=Rename(columns={"a": "b"}), hash=Hash(("c",), salt="hunter2"), mask={"d": KeepLast(4), "e": WithNull()}
    )
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(pickle.loads(pickle.dumps(made))) == hash(made)
    assert "hunter2" not in repr(made)
    assert made.said() == ("rename", "hash", "mask")
