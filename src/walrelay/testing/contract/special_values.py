"""Values that types of a destination may be unable to hold: held exactly, or treated by policy and counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from walrelay.decode.base import ARROW
from walrelay.destinations.base import Destination
from walrelay.errors import SpecialKeyError, SpecialValueError
from walrelay.model.special import Special
from walrelay.testing.contract.fixtures import Opened, SourceFactory
from walrelay.testing.contract.source import ContractSource
from walrelay.testing.contract.stories import SPECIAL_NAMES, SPECIAL_ROWS, SPECIAL_TABLES, SPECIALS
from walrelay.testing.contract.tables import TablesFixtures, names_table
from walrelay.testing.replay import postgres_text
from walrelay.testing.sample import Row, plain_row

_ENDLESS = ("infinity", "-infinity", "NaN")
_DAY = len("2026-01-01")
_ONE_PLAIN: dict[str, list[Row]] = {"public.plain": [(("id", "1"),)]}
_KEYS = {"by_day": Special.DATE_INFINITY, "by_length": Special.INTERVAL_INFINITY}


class SpecialValuesContract(TablesFixtures):
    """Of the obligation **Values**."""

    @pytest.fixture
    def special_source(self, source_of: SourceFactory) -> ContractSource:
        return source_of(SPECIAL_TABLES, SPECIAL_NAMES)

    def test_special_values_are_held_or_are_null_in_copies_and_in_changes(
        self, special_source: ContractSource, destination: Destination
    ) -> None:
        special_source.do(SPECIAL_ROWS.format(1))
        self.copied(special_source, destination, SPECIAL_NAMES)
        assert self._found(destination) == expected_rows(special_source, destination)
        before = special_source.batch().to
        special_source.do(SPECIAL_ROWS.format(11), "DELETE FROM special WHERE id = 1")
        destination.write_events(special_source.batch(before))
        assert self._found(destination) == expected_rows(special_source, destination)

    def test_special_values_that_it_treated_are_counted_by_table(
        self, special_source: ContractSource, destination: Destination
    ) -> None:
        """What the log itself cannot hold was treated, and counted, when it was captured."""
        self.copied(special_source, destination, SPECIAL_NAMES)
        special_source.do(SPECIAL_ROWS.format(1), "INSERT INTO plain VALUES (1)")
        result = destination.write_events(special_source.batch()).settled()
        found = dict.fromkeys(unheld(destination) & {Special.DATE_INFINITY, Special.INTERVAL_INFINITY}, 2)
        found |= dict.fromkeys(unheld(destination) & {Special.TIMESTAMP_INFINITY}, 3)
        treated = {table: +Counter(counts) for table, counts in result.treated.items() if +Counter(counts)}
        assert treated == ({special_source.schema("special").id: Counter(found)} if found else {})
        begun = special_source.batch().to
        special_source.do("DELETE FROM special WHERE id = 1")
        result = destination.write_events(special_source.batch(begun)).settled()
        assert not any(+Counter(counts) for counts in result.treated.values()), "what goes was counted when it came"

    def test_by_policy_error_a_value_that_it_cannot_hold_stops_its_table_alone(
        self, special_source: ContractSource, opened: Opened
    ) -> None:
        with opened("error") as destination:
            self.copied(special_source, destination, SPECIAL_NAMES)
            special_source.do(SPECIAL_ROWS.format(1), "INSERT INTO plain VALUES (1)")
            if not unheld(destination):
                destination.write_events(special_source.batch())
                assert self._found(destination) == expected_rows(special_source, destination)
                return
            with pytest.raises(SpecialValueError) as caught:
                destination.write_events(special_source.batch())
            assert names_table(caught.value, special_source.schema("special"))
            destination.write_events(special_source.batch(tables=("plain",)))
            assert self.held(destination, ["plain"]) == _ONE_PLAIN
            assert self.rows(destination, "public.special") == []

    @pytest.mark.parametrize("table", list(_KEYS))
    def test_a_key_is_held_exactly_or_refused_by_name(
        self, special_source: ContractSource, destination: Destination, table: str
    ) -> None:
        """Rows with a treated key would no longer be told apart."""
        self.copied(special_source, destination, SPECIAL_NAMES)
        special_source.do(f"INSERT INTO {table} VALUES ('infinity', 1), ('-infinity', 2)")
        special_source.do("INSERT INTO plain VALUES (1)")
        if _KEYS[table] in unheld(destination):
            with pytest.raises(SpecialKeyError) as caught:
                destination.write_events(special_source.batch())
            assert names_table(caught.value, special_source.schema(table))
            destination.write_events(special_source.batch(tables=("plain",)))
            assert self.rows(destination, f"public.{table}") == []
        else:
            destination.write_events(special_source.batch())
            special_source.do(f"DELETE FROM {table} WHERE n = 1")
            destination.write_events(special_source.batch())
            assert [row["n"] for row in self.rows(destination, f"public.{table}")] == [2]
        assert self.held(destination, ["plain"]) == _ONE_PLAIN

    def _found(self, destination: Destination) -> list[Row]:
        return sorted(plain_row(shown(row)) for row in self.rows(destination, "public.special"))


def unheld(destination: Destination) -> frozenset[Special]:
    """What the log holds and the destination does not."""
    return ARROW.holds - destination.dialect.target.holds


def expected_rows(source: ContractSource, destination: Destination) -> list[Row]:
    """What the source holds in `special`, without what the log or the destination cannot hold."""
    holds = destination.dialect.target.holds & ARROW.holds
    rows = (dict(row) for row in source.contents()["public.special"])
    return sorted(
        plain_row(shown({n: v for n, v in row.items() if v not in _ENDLESS or SPECIALS[n] in holds})) for row in rows
    )


def shown(row: dict[str, Any]) -> dict[str, str | None]:
    """A moment by its day, which all print in the same way; of an interval only that it is there: each destination has
    its own type for it."""
    there = {name: value for name, value in row.items() if value is not None}
    return {name: "held" if name == "took" else postgres_text(value)[:_DAY] for name, value in there.items()}
