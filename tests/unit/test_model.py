"""Names, positions and phases print and parse as Postgres has them."""

from __future__ import annotations

import pytest

from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import Catchup, DataSync, Init, SyncWait, is_persisted


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("orders", "public", "orders"),
        ("Shop.Orders", "shop", "orders"),
        ('"Odd Schema"."Tab""le"', "Odd Schema", 'Tab"le'),
        ('public."a.b"', "public", "a.b"),
    ],
)
def test_table_names_parse_as_sql_does(text: str, schema: str, name: str) -> None:
    assert TableName.parse(text) == TableName(schema, name)


@pytest.mark.parametrize("text", ["", "a.b.c", "a.", ".a", '"open', 'a"b"'])
def test_what_is_no_table_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a table name"):
        TableName.parse(text)


def test_table_names_print_quoted_only_where_needed() -> None:
    assert str(TableName("public", "orders")) == "public.orders"
    assert str(TableName("Odd", 'x"y')) == '"Odd"."x""y"'


def test_an_lsn_prints_and_parses_as_postgres_does() -> None:
    assert str(Lsn(0x16B3748)) == "0/16B3748"
    assert Lsn.parse("16/B374D848") == Lsn(0x16B374D848)
    assert str(Lsn.parse("FFFFFFFF/FFFFFFFF")) == "FFFFFFFF/FFFFFFFF"
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse("123")


def test_only_passing_phases_are_not_persisted() -> None:
    assert [is_persisted(p) for p in (Init(), DataSync(), SyncWait(), Catchup(Lsn(1)))] == [True, True, False, False]
