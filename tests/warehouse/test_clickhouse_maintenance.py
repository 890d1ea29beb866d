"""What hides rows that may come again is removed only when it is recorded that they do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.destinations.clickhouse.facts import Facts
from walrelay.destinations.clickhouse.progress import Progress
from walrelay.errors import DestinationUnreachableError
from walrelay.testing.destination_contract import ContractSource

__all__ = ["clickhouse", "place"]
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]
TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, n int);
CREATE TABLE loose (id int, n int);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE PUBLICATION contract FOR TABLE keyed, loose;
"""
UNNEEDED = {"keyed": "countIf(_deleted = 1)", "loose": "countIf(_sign < 0)"}


class Table:
    """A database of ClickHouse that is always maintained, and what is behind its views."""

    def __init__(self, clickhouse: ClickHouse, place: str) -> None:
        self._clickhouse, self._place = clickhouse, place

    @contextmanager
    def opened(self) -> Iterator[ClickHouseDestination]:
        url = self._clickhouse.url(self._place, maintain_every="0s")
        destination = ClickHouseDestination(url, limits=Limits(unneeded_rows=1))
        destination.startup(DestinationContext("maintained", copy_settings()))
        try:
            yield destination
        finally:
            destination.shutdown()

    def unneeded(self) -> dict[str, int]:
        asked = f"SELECT name, comment FROM system.tables WHERE database = '{self._place}' AND engine = 'View'"
        storages = {name: Facts.parse(comment).storage for name, comment in self._clickhouse.ask(asked)}
        found = {}
        for name, storage in storages.items():
            ((count,),) = self._clickhouse.ask(f"SELECT {UNNEEDED[name]} FROM {self._place}.{storage}")
            found[name] = count
        return found

    def ids(self) -> dict[str, list[int]]:
        rows = {name: self._clickhouse.ask(f"SELECT id FROM {self._place}.{name}") for name in UNNEEDED}
        return {name: sorted(id_ for (id_,) in found) for name, found in rows.items()}


def test_nothing_is_removed_before_its_position_is_recorded(
    clickhouse: ClickHouse, place: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go, which is written, and the server is lost before it is recorded. Then it comes again, cut at another
    place: there is a batch at whose end it is not recorded yet."""
    source, table = ContractSource(database, tmp_path, TABLES, ("keyed", "loose")), Table(clickhouse, place)
    try:
        for name in UNNEEDED:
            source.do(f"INSERT INTO {name} SELECT g, 0 FROM generate_series(1, 9) g")
        with table.opened() as destination:
            for name in UNNEEDED:
                source.copy(destination, name)
        begun = source.batch().to
        source.do(*(f"INSERT INTO {name} VALUES (10, 0)" for name in UNNEEDED))
        middle = source.batch().to
        source.do(*(f"DELETE FROM {name} WHERE id <> 5" for name in UNNEEDED))
        end = source.batch().to

        def lost(*_: Any) -> None:
            raise DestinationUnreachableError("the server was lost")

        with table.opened() as destination, monkeypatch.context() as patched:
            patched.setattr(Progress, "record", lost)
            for after, to in ((begun, middle), (middle, end)):
                with pytest.raises(DestinationUnreachableError):
                    destination.write_events(source.batch(after, to))
        assert table.ids() == {"keyed": [5], "loose": [5]}
        assert table.unneeded() == {"keyed": 9, "loose": 9}, "still there"

        with table.opened() as destination:
            destination.write_events(source.batch(begun, middle))
            assert table.ids() == {"keyed": [5], "loose": [5]}, "what went does not come back"
            destination.write_events(source.batch(middle, end))
            assert table.ids() == {"keyed": [5], "loose": [5]}
            assert table.unneeded() == {"keyed": 0, "loose": 0}, "and now nobody needs it"
    finally:
        source.close()
