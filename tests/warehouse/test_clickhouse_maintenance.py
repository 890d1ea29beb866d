"""What hides rows that may come again is removed only when it is recorded that they do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.histories import INT4, INT8, Row, SmallLog
from tests.warehouse.clickhouse_kit import ClickHouse, clickhouse, place
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.clickhouse.apply import Limits
from walrelay.destinations.clickhouse.destination import ClickHouseDestination
from walrelay.destinations.clickhouse.facts import Facts
from walrelay.destinations.clickhouse.progress import Progress
from walrelay.errors import DestinationUnreachableError
from walrelay.model.names import TableName
from walrelay.model.schema import Column, TableSchema

__all__ = ["clickhouse", "place"]
pytestmark = pytest.mark.timeout(600)
ID, N = Column("id", INT8, attnum=1), Column("n", INT4, attnum=2)
KEYED = TableSchema(1, TableName("public", "keyed"), (ID, N), ("id",), identity="default", identity_columns=("id",))
LOOSE = TableSchema(2, TableName("public", "loose"), (ID, N), (), identity="full", identity_columns=("id", "n"))
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


def put(id_: int) -> list[tuple[TableSchema, int, Row]]:
    return [(one, 1, {"op": "insert", "row": {"id": id_, "n": 0}}) for one in (KEYED, LOOSE)]


def taken(id_: int) -> list[tuple[TableSchema, int, Row]]:
    named = {"old": {"id": id_, "n": None}, "old_kind": "key"}
    whole = {"old": {"id": id_, "n": 0}, "old_kind": "row"}
    return [(KEYED, 1, {"op": "delete", **named}), (LOOSE, 1, {"op": "delete", **whole})]


def test_nothing_is_removed_before_its_position_is_recorded(
    clickhouse: ClickHouse, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go and come, which is written, and the server is lost before it is recorded. Then it comes again, cut at
    another place: there is a batch at whose end it is not recorded yet."""
    table, log = Table(clickhouse, place), SmallLog(tmp_path / "log")
    middle = log.commit([change for id_ in range(1, 10) for change in put(id_)])
    end = log.commit([*(change for id_ in range(1, 10) if id_ != 5 for change in taken(id_)), *put(20)])
    log.close_segment()

    def lost(*_: Any) -> None:
        raise DestinationUnreachableError("the server was lost")

    with table.opened() as destination, monkeypatch.context() as patched:
        patched.setattr(Progress, "record", lost)
        for after, to in ((log.start, middle), (middle, end)):
            with pytest.raises(DestinationUnreachableError):
                destination.write_events(log.batch(after, to))
    assert table.ids() == {name: [5, 20] for name in UNNEEDED}
    assert table.unneeded() == dict.fromkeys(UNNEEDED, 8), "still there"

    with table.opened() as destination:
        destination.write_events(log.batch(log.start, middle))
        assert table.ids() == {name: [5, 20] for name in UNNEEDED}, "what went does not come back"
        assert table.unneeded() == dict.fromkeys(UNNEEDED, 8), "it may come again"
        destination.write_events(log.batch(middle, end))
        assert table.ids() == {name: [5, 20] for name in UNNEEDED}
        assert table.unneeded() == dict.fromkeys(UNNEEDED, 0), "and now nobody needs it"
