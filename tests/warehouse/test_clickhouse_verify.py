"""`verify` of ClickHouse finds every planted difference by its key, none where there is none, and mends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_verify import ROWS as THINGS
from tests.integration.test_verify import TABLES as TABLES_OF_THINGS
from tests.integration.verify_kit import Followed
from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, place
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.destinations.clickhouse.facts import Facts
from walrelay.verify.report import TableResult

__all__ = ["clickhouse", "place"]
pytestmark = [pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(600)]
TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b text, tags text[]);"
    " CREATE TABLE nested (id int PRIMARY KEY, feels mood, span int4range, spans int4multirange, twin pair, wide"
    " numeric(50, 2), paid money, moods mood[], stay tstzrange, days date[]);"
    + TABLES_OF_THINGS.replace("CREATE TABLE bare ();", "").replace(", bare;", ", nested;")
)
ROWS = (
    THINGS.replace("INSERT INTO bare DEFAULT VALUES;", "")
    + """
INSERT INTO nested SELECT i, 'ok', '[1,5)', '{[1,2),[5,9)}', '(1,"","{x,NULL}")', 1.10, 12.5, '{ok,NULL}',
    '[2020-01-01,2021-01-01)', '{2020-01-01,NULL}' FROM generate_series(1, 40) AS i;
"""
)
PLANTED = {
    "things": [
        ("name", "NULL"),
        ("name", "''"),
        ("name", "concat({c}, ' ')"),
        ("name", "upper({c})"),
        ("code", "'ab'"),
        ("price", "{c} + toDecimal32('0.01', 2)"),
        ("exact", "'1.5'"),
        ("moment", "{c} + INTERVAL 1 MICROSECOND"),
        ("local", "{c} - INTERVAL 1 MICROSECOND"),
        ("day", "{c} + 1"),
        ("ratio", "-0.0"),
        ("part", "toFloat32(0.50000006)"),
        ("took", "CAST((0, 28, 10800500000), 'Tuple(months Int32, days Int32, microseconds Int64)')"),
        ("tags", "['a', '', NULL]"),
        ("tags", "[]"),
        ("tags_null", "true"),
        ("grid", "[[1, 2], [3, 5]]"),
        ("plain", """'{{"a":1}}'"""),
        ("binary_json", """'{{"a": 1.0}}'"""),
        ("raw", "unhex('00FE')"),
        ("token", "toUUID('00000000-0000-4000-8000-000000000001')"),
        ("flag", "NULL"),
        ("large", "toInt64(9007199254740992)"),
        ("clock", "'12:00:00'"),
    ],
    "nested": [
        ("feels", "'sad'"),
        ("span", "CAST((1, 6, true, false, false), '{t}')"),
        ("span", "CAST((NULL, NULL, false, false, true), '{t}')"),
        ("spans", "arraySlice({c}, 1, 1)"),
        ("twin", "CAST((1, NULL, tuple(['x', NULL])), '{t}')"),
        ("twin", "CAST((1, '', NULL), '{t}')"),
        ("wide", "toDecimal256('1.11', 2)"),
        ("paid", "toDecimal128('12.51', 2)"),
        ("moods", "['ok', 'ok']"),
        ("stay", "CAST((toDateTime64('2020-01-01 00:00:00', 6, 'UTC'), NULL, true, false, false), '{t}')"),
        ("days", "[toDate32('2020-01-01')]"),
    ],
}
"""Each in a row of its own: the first in row 1, and so on. `{c}` is the column, and `{t}` its type, in ClickHouse."""
ALTERED = ("things", "nested", "pairs", "tokens", "words", "loose")


class Compared(Followed):
    """Tables that a database of ClickHouse has from a source, and what is asked of it."""

    def __init__(self, url: str, clickhouse: ClickHouse, place: str, directory: Path) -> None:
        super().__init__(url, directory, ClickHouseDestination(clickhouse.url(place)))
        self.clickhouse, self.place = clickhouse, place
        self.facts: dict[str, Facts] = {}

    def follow(self) -> None:
        super().follow()
        asked = f"SELECT name, comment FROM system.tables WHERE database = '{self.place}' AND engine = 'View'"
        self.facts = {name: Facts.parse(comment) for name, comment in self.clickhouse.ask(asked)}

    def compare(self, *, repair: bool = False) -> dict[str, TableResult]:
        return {one.name.name: one for one in self.verify(repair=repair).tables}

    def behind(self, table: str, *statements: str) -> None:
        """Behind everybody's back, in the table behind the view: `{s}` is that, `{name}` what a column is called."""
        facts, client = self.facts[table], self.clickhouse.client()
        names = {one.held.name: one.name for one in facts.columns}
        names |= {f"{one.held.name}_null": one.mark for one in facts.columns if one.marked}
        for statement in statements:
            said = statement.format(s=f"{self.place}.{facts.storage}", **names)
            client.command(said, settings={"mutations_sync": 2})
        client.close()

    def contents(self) -> dict[str, Counter[str]]:
        """What a reader of the views finds."""
        return {
            table: Counter(map(repr, self.clickhouse.ask(f"SELECT * FROM {self.place}.{table}"))) for table in ALTERED
        }


@pytest.fixture
def compared(database: str, clickhouse: ClickHouse, place: str, tmp_path: Path) -> Iterator[Compared]:
    made = Compared(database, clickhouse, place, tmp_path)
    made.sql(TABLES)
    made.follow()
    made.sql(ROWS)
    made.follow()
    # Versions, tombstones and rows that are taken away again.
    made.sql(
        "UPDATE things SET large = large WHERE id % 2 = 0; UPDATE nested SET id = id + 100 WHERE id = 40",
        "DELETE FROM things WHERE id BETWEEN 210 AND 219; DELETE FROM words WHERE v = 6",
        "DELETE FROM loose WHERE a = 30; UPDATE loose SET b = 'new' WHERE a = 31",
    )
    made.follow()
    yield made
    made.close()


def plant(compared: Compared) -> None:
    for table, planted in PLANTED.items():
        compared.behind(table, _altering(compared.facts[table], planted))
    last = "(SELECT max(_version) + 1 FROM {s})"
    compared.behind(
        "things",
        "ALTER TABLE {s} DELETE WHERE {id} = 200",
        "INSERT INTO {s} ({id}, {name}) VALUES (1000, 'extra')",
        "ALTER TABLE {s} DELETE WHERE {id} = 210 AND _deleted = 1",  # deleted, and shown again
        "INSERT INTO {s} ({id}, {name}) VALUES (210, 'shown')",
        f"INSERT INTO {{s}} ({{id}}, _version, _deleted) SELECT 202, {last}, 1",  # there, and hidden
        f"INSERT INTO {{s}} ({{id}}, _version) SELECT 203, {last}",
    )
    compared.behind(
        "loose",
        "INSERT INTO {s} ({a}, {b}, _version, _sign) VALUES (10, 'row', 999998, 1), (1000, 'row', 999999, 1)",
        "INSERT INTO {s} ({a}, {b}, _version, _sign) VALUES (20, 'row', 999999, -1)",
        "ALTER TABLE {s} UPDATE {b} = '' WHERE {a} = 40",
        "ALTER TABLE {s} DELETE WHERE {a} = 31 AND _sign = -1",  # taken away, and shown again
    )
    compared.behind("pairs", "ALTER TABLE {s} UPDATE {v} = 'w' WHERE {a} = 3 AND {b} = 'p3'")
    compared.behind("tokens", "ALTER TABLE {s} DELETE WHERE {v} = 7")
    compared.behind(
        "words",
        "ALTER TABLE {s} UPDATE {v} = 0 WHERE {word} = 'A'",
        "ALTER TABLE {s} DELETE WHERE {word} = 'a '",
        "INSERT INTO {s} ({word}, {v}) VALUES (' a', 5)",
        "INSERT INTO {s} ({word}, {v}) VALUES ('eins', NULL)",
    )


def _altering(facts: Facts, planted: list[tuple[str, str]]) -> str:
    """One mutation for all of them."""
    types = {one.held.name: one.held.type for one in facts.columns}
    by_column: dict[str, list[str]] = {}
    for row, (name, value) in enumerate(planted, start=1):
        said = value.replace("{c}", f"{{{name}}}").replace("{t}", f"Nullable({types.get(name)})".replace("'", "\\'"))
        by_column.setdefault(name, []).append(f"{{id}} = {row}, {said}")
    steps = (f"{{{name}}} = multiIf({', '.join(ways)}, {{{name}}})" for name, ways in by_column.items())
    return f"ALTER TABLE {{s}} UPDATE {', '.join(steps)} WHERE {{id}} <= {len(planted)}"


def told(result: TableResult) -> dict[int, tuple[str, tuple[str, ...]]]:
    return {int(one.key["id"] or 0): (one.kind, one.columns) for one in result.differences}


def assert_all_found(found: dict[str, TableResult]) -> None:
    changed = {
        table: {row: ("changed", (name.removesuffix("_null"),)) for row, (name, _) in enumerate(planted, start=1)}
        for table, planted in PLANTED.items()
    }
    things = told(found["things"])
    assert things.pop(203)[0] == "changed"
    assert things == {
        **changed["things"], 200: ("missing", ()), 1000: ("extra", ()), 210: ("extra", ()), 202: ("missing", ()),
    }  # fmt: skip
    assert told(found["nested"]) == changed["nested"]
    loose = Counter((one.kind, one.source_rows, one.destination_rows) for one in found["loose"].differences)
    assert loose == {
        ("extra", 2, 3): 1, ("extra", 0, 1): 1, ("missing", 2, 1): 1, ("missing", 2, 0): 1, ("extra", 0, 2): 2,
    }  # fmt: skip
    others = {name: [str(row) for row in found[name].differences] for name in ("pairs", "tokens", "words", "empty")}
    assert {name: sorted(rows) for name, rows in others.items()} == {
        "empty": [],
        "pairs": ["(a = 3, b = p3) differs in v"],
        "tokens": ["(id = 00000000-0000-4000-8000-000000000007) is missing"],
        "words": [
            "(word =  a) is too many",
            "(word = A) differs in v",
            "(word = a ) is missing",
            "(word = eins) is too many",
        ],
    }


def test_every_planted_difference_is_found_by_its_key_and_mended(compared: Compared) -> None:
    assert {name: (one.status, one.reason) for name, one in compared.compare().items()} == dict.fromkeys(
        [*ALTERED, "empty"], ("equal", None)
    )
    before = compared.contents()
    plant(compared)
    planted = compared.contents()
    assert all(planted[table] != before[table] for table in ALTERED), "readers of the views see what was planted"

    found = compared.compare()
    assert {name: one.status for name, one in found.items()} == {
        **dict.fromkeys(ALTERED, "different"),
        "empty": "equal",
    }
    assert_all_found(found)
    assert compared.contents() == planted, "looking changes nothing"

    mended = compared.compare(repair=True)
    assert {one.status for one in mended.values()} == {"equal"}, mended
    assert compared.contents() == before, "by a reader's own word"
    assert {one.status for one in compared.compare().values()} == {"equal"}
    left = compared.clickhouse.ask(
        f"SELECT name FROM system.tables WHERE database = '{compared.place}' AND name LIKE '%look%'"
    )
    assert not left, "clones are gone"

    # The same rows once more, before any change has come; and then changes come, which count.
    compared.behind(
        "things",
        "ALTER TABLE {s} UPDATE {name} = 'again' WHERE {id} IN (1, 2)",
        "ALTER TABLE {s} DELETE WHERE {id} = 200",
        "INSERT INTO {s} ({id}, _version) SELECT 1000, (SELECT max(_version) + 1 FROM {s})",
    )
    again = told(compared.compare()["things"])
    assert again == {1: ("changed", ("name",)), 2: ("changed", ("name",)), 200: ("missing", ()), 1000: ("extra", ())}
    assert {one.status for one in compared.compare(repair=True).values()} == {"equal"}
    assert compared.contents() == before
    compared.sql("UPDATE things SET name = 'on' WHERE id < 5; DELETE FROM things WHERE id = 200; DELETE FROM loose")
    compared.follow()
    assert {name: (one.status, one.reason) for name, one in compared.compare().items()} == dict.fromkeys(
        [*ALTERED, "empty"], ("equal", None)
    )
