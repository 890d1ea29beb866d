"""A DuckDB file follows tables that get each other's names, however the log is cut into batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.renaming_kit import Renaming, held
from walrelay.capture.capture import Capture
from walrelay.changes.batch import EventBatch
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableId, TableName
from walrelay.postgres.connection import connect
from walrelay.postgres.identity import source_id, table_names
from walrelay.postgres.slot import drop_slot

pytestmark = pytest.mark.timeout(240)


class Road:
    """The changes of a source, through a log, into a file."""

    def __init__(self, database: str, directory: Path) -> None:
        self.renaming = Renaming(database)
        self.file = directory / "out.duckdb"
        self.asks = True
        self._log = directory / "log"
        self._slot = f"renamed_{uuid4().hex[:10]}"
        self._at: Lsn | None = None

    def capture(self) -> LogReader:
        Capture(self.renaming.source, slot=self._slot, log=self._log).run(until="caught-up")
        return LogReader(self._log)

    def take(self, *, commit_by_commit: bool, again: bool = False) -> None:
        """What is new in the log; `again`: with all that was taken before, as after a crash."""
        log = self.capture()
        ends = sorted({change.end_lsn for change in log.changes()} | {log.end()})
        with self._opened() as destination:
            for end in ends if commit_by_commit else ends[-1:]:
                after = log.start() if again or self._at is None else self._at
                if end > after:
                    destination.write_events(EventBatch(log, after, end))
                    self._at = max(end, self._at or end)

    @contextmanager
    def _opened(self) -> Iterator[DuckDBDestination]:
        with connect(self.renaming.source) as connection:
            identity = source_id(connection)

        def names(tables: Collection[TableId]) -> dict[TableId, TableName] | None:
            if not self.asks:
                return None
            with connect(self.renaming.source) as connection:
                return table_names(connection, tables)

        destination = DuckDBDestination(self.file)
        destination.startup(
            DestinationContext(
                "p", copy_settings(), mode="changes", source_id=identity, pipeline_name="p-1", names=names
            )
        )
        try:
            yield destination
        finally:
            destination.shutdown()

    def close(self) -> None:
        with connect(self.renaming.source) as connection:
            drop_slot(connection, self._slot)


@pytest.fixture
def road(database: str, tmp_path: Path) -> Iterator[Road]:
    made = Road(database, tmp_path)
    made.renaming.make()
    made.capture()
    made.renaming.fill()
    yield made
    made.close()


@pytest.mark.parametrize("commit_by_commit", [False, True], ids=["in one batch", "commit by commit"])
def test_names_that_change_hands_take_their_rows_along(road: Road, commit_by_commit: bool) -> None:
    road.take(commit_by_commit=commit_by_commit)
    road.renaming.check(road.file)
    for n in (100, 200):
        road.renaming.rename_all(n, at_once=n == 100)
        road.take(commit_by_commit=commit_by_commit)
        road.renaming.check(road.file)
    for n in (300, 400, 500):  # a backlog
        road.renaming.rename_all(n, at_once=n == 400)
    road.take(commit_by_commit=commit_by_commit, again=not commit_by_commit)
    road.renaming.check(road.file)
    road.renaming.write_all(600)
    road.take(commit_by_commit=commit_by_commit)
    road.renaming.check(road.file)


def test_what_had_to_be_put_aside_gets_its_name_once_the_source_can_be_asked(road: Road) -> None:
    road.take(commit_by_commit=False)
    road.renaming.rename_all(100, at_once=True)
    road.asks = False
    road.take(commit_by_commit=False)
    aside = "SELECT count(*) FROM duckdb_tables() WHERE table_name SIMILAR TO '.* [0-9]+'"
    assert held(road.file, aside) != [(0,)]
    road.asks = True
    road.take(commit_by_commit=False)
    road.renaming.check(road.file)
