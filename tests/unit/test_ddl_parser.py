"""The DDL trigger's messages: what it writes is read in full, and everything else is refused in one way."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walrelay.model.ddl import (
    DdlColumn,
    DdlFailed,
    DdlPublication,
    DdlTable,
    DdlType,
    DdlTypeAttribute,
    TableAltered,
    TableDropped,
    parse_ddl,
)
from walrelay.model.names import TableName

ALTERED: dict[str, Any] = {
    "v": 1,
    "tag": "ALTER TABLE",
    "table": {
        "id": 16384,
        "schema": "public",
        "name": "Tab le",
        "kind": "r",
        "identity": "d",
        "filenode": 4294967295,
        "persistence": "p",
        "columns": [
            {
                "attnum": 2,
                "name": "ünï",
                "type": 23,
                "modifier": -1,
                "not_null": True,
                "generated": "s",
                "expression": "(a + 1)",
                "dims": 0,
            }
        ],
        "natts": 2,
        "key": [2],
        "identity_key": [2],
    },
    "leaves": [[16385, 16390], [16386, None]],
    "types": [
        {"id": 16400, "name": "public.mood", "labels": ["a", "b"], "attributes": None},
        {"id": 16401, "name": "public.pair", "labels": None, "attributes": [[1, "x", 23, -1]]},
    ],
    "publications": [
        {
            "name": "p",
            "insert": True,
            "update": True,
            "delete": False,
            "truncate": True,
            "via_root": False,
            "generated": "s",
            "filter": "(a > 1)",
            "columns": [2],
        }
    ],
}


def parsed(body: Any) -> Any:
    return parse_ddl(json.dumps(body, ensure_ascii=False).encode())


def test_an_altered_table_is_read_in_full() -> None:
    assert parsed(ALTERED) == TableAltered(
        tag="ALTER TABLE",
        table=DdlTable(
            id=16384,
            name=TableName("public", "Tab le"),
            kind="r",
            identity="d",
            filenode=4294967295,
            persistence="p",
            columns=(DdlColumn(2, "ünï", 23, -1, True, "s", "(a + 1)", 0),),
            natts=2,
            key=(2,),
            identity_key=(2,),
        ),
        leaves=((16385, 16390), (16386, None)),
        types=(
            DdlType(16400, "public.mood", ("a", "b"), None),
            DdlType(16401, "public.pair", None, (DdlTypeAttribute(1, "x", 23, -1),)),
        ),
        publications=(DdlPublication("p", True, True, False, True, False, "(a > 1)", (2,), "s"),),
    )


def test_a_dropped_table_and_a_failure_are_read() -> None:
    dropped = {"v": 1, "tag": "DROP TABLE", "dropped": {"id": 7, "schema": "s", "name": "t"}}
    assert parsed(dropped) == TableDropped("DROP TABLE", 7, TableName("s", "t"))
    assert parsed({"v": 1, "tag": "ALTER TYPE", "failed": "55P03"}) == DdlFailed("ALTER TYPE", "55P03")


def test_keys_that_a_later_trigger_adds_are_ignored() -> None:
    body = copy.deepcopy(ALTERED)
    body["more"] = body["table"]["more"] = body["publications"][0]["more"] = {"x": 1}
    assert parsed(body) == parsed(ALTERED)
    del body["publications"][0]["generated"]
    assert parsed(body).publications[0].generated == "n"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in inner for deeper in places(child, (*path, key)))]


PLACES = [path for path in places(ALTERED) if path]


def test_every_key_is_needed_but_one() -> None:
    for path in PLACES:
        if isinstance(path[-1], str) and path[-1] != "generated":
            body = copy.deepcopy(ALTERED)
            parent = body
            for key in path[:-1]:
                parent = parent[key]
            del parent[path[-1]]
            with pytest.raises(ValueError, match="not a DDL message"):
                parsed(body)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"v": 2, "tag": "x", "failed": "00000"}',
        b'{"v": true, "tag": "x", "failed": "00000"}',
        b'{"v": 1, "tag": "x"}',
        b'{"v": 1, "failed": "00000"}',
        b'{"v": 1, "tag": "x", "failed": NaN}',
        b"[" * 200_000,
        b'{"v":' + b"9" * 10_000 + b"}",
    ],
    ids=lambda content: repr(content[:40]),
)
def test_anything_else_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_ddl(content)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 40), 1 << 40),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-1, 5), max_size=4),
    st.dictionaries(st.text(max_size=5), st.none(), max_size=2),
)


@given(path=st.sampled_from(PLACES), value=ODD)
def test_a_message_with_any_value_replaced_is_read_or_refused_in_one_way(path: tuple[Any, ...], value: Any) -> None:
    body = copy.deepcopy(ALTERED)
    parent = body
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    try:
        message = parsed(body)
    except ValueError:
        return
    assert isinstance(message, TableAltered)
    assert 0 < message.table.id < 1 << 32
    assert all(type(column.attnum) is int and column.attnum > 0 for column in message.table.columns)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_refused_in_one_way(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_ddl(content)


@given(st.data())
def test_a_damaged_message_is_read_or_refused_in_one_way(data: st.DataObject) -> None:
    content = bytearray(json.dumps(ALTERED).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for damaged in (bytes(content), bytes(content[:cut])):
        try:
            parse_ddl(damaged)
        except ValueError:
            continue
