"""One suite for every destination that holds tables. Subclass it, and it proves the contract of `destinations.base`:

    class TestMyDestination(DestinationContract):
        @pytest.fixture
        def destination_factory(self, tmp_path):
            return lambda: MyDestination(tmp_path / "place")

        def rows(self, destination, table):
            return [dict(row) for row in ...]  # what a reader finds under this name, e.g. "public.orders"

Each call of the factory opens the same place anew. Rows and changes come from a real Postgres through a real log. For
failures that explain themselves, `pytest.register_assert_rewrite("walrelay.testing.destination_contract")` first.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from uuid import uuid4

import psycopg
import pytest

from walrelay.capture.capture import Capture
from walrelay.changes.batch import EventBatch, TableRange
from walrelay.changes.rows import TableRows
from walrelay.config.settings import MiB, copy_settings
from walrelay.destinations.base import Destination, DestinationContext, WriteResult
from walrelay.errors import CopyAgainError
from walrelay.log.reader import LogReader
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.ranges import plan_ranges
from walrelay.model.schema import TableSchema
from walrelay.postgres.catalog import find_table, read_schema
from walrelay.postgres.snapshot import Snapshot, exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.spark.copy_task import CopyTask, land_range
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.replay import postgres_text
from walrelay.testing.sample import Row, plain_row, take_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ContractSource", "DestinationContract", "DestinationFactory"]

DestinationFactory = Callable[[], Destination]
Opened = Callable[[], AbstractContextManager[Destination]]
TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, note text, paid numeric(8, 2));
CREATE TABLE loose (n int, note text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE paired (a int, b text, note text, PRIMARY KEY (a, b));
CREATE TABLE coded (id int PRIMARY KEY, code text NOT NULL UNIQUE, note text);
ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code_key;
CREATE PUBLICATION contract FOR TABLE keyed, loose, paired, coded;
"""
NAMES = ("keyed", "loose", "paired", "coded")
LONG = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 500) g)"
STORIES = {
    "inserts": ["INSERT INTO keyed SELECT g, 'n' || g, g FROM generate_series(1, 50) g"],
    "updates and deletes": [
        "INSERT INTO keyed SELECT g, 'n' || g, NULL FROM generate_series(1, 20) g",
        "UPDATE keyed SET note = 'changed' WHERE id % 2 = 0",
        "DELETE FROM keyed WHERE id % 3 = 0",
        "INSERT INTO keyed VALUES (6, 'again', 1.5)",
    ],
    "keys that move": [
        "INSERT INTO keyed SELECT g, 'n' || g, g FROM generate_series(1, 9) g",
        "UPDATE keyed SET id = id + 100 WHERE id < 4",
        "UPDATE keyed SET id = 1 WHERE id = 9",
        "UPDATE paired SET a = -a",
        "INSERT INTO paired VALUES (1, 'x', 'one'), (1, 'y', 'two')",
        "UPDATE paired SET b = b || '!', note = NULL WHERE b = 'x'",
    ],
    "rows that are named by another index than the primary key": [
        "INSERT INTO coded VALUES (1, 'a', 'one'), (2, 'b', 'two'), (3, 'c', 'three')",
        "UPDATE coded SET id = id + 10",
        "UPDATE coded SET code = 'd', id = 1 WHERE id = 13",
        "DELETE FROM coded WHERE id = 12",
    ],
    "keys that change places": [
        "INSERT INTO keyed VALUES (1, 'one', 1), (2, 'two', 2)",
        "UPDATE keyed SET id = 0 WHERE id = 1; UPDATE keyed SET id = 1 WHERE id = 2;"
        " UPDATE keyed SET id = 2 WHERE id = 0",
    ],
    "truncates": [
        "INSERT INTO keyed VALUES (1, 'before', 1)",
        "INSERT INTO loose VALUES (1, 'before')",
        "TRUNCATE keyed, loose",
        "INSERT INTO keyed VALUES (1, 'after', 2)",
    ],
    "values that are not sent again": [
        f"INSERT INTO keyed VALUES (1, {LONG}, 1), (2, {LONG}, 2)",
        "UPDATE keyed SET paid = paid + 1",
        "UPDATE keyed SET id = id + 10 WHERE id = 2",
        "UPDATE keyed SET paid = 7 WHERE id = 12",
    ],
    "equal rows without a key": [
        "INSERT INTO loose SELECT 1, 'same' FROM generate_series(1, 5)",
        "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose LIMIT 2)",
        "UPDATE loose SET note = NULL WHERE ctid IN (SELECT ctid FROM loose LIMIT 1)",
        "INSERT INTO loose VALUES (NULL, NULL), (1, 'same')",
        "DELETE FROM loose WHERE n IS NULL",
    ],
    "several tables in a transaction": [
        "BEGIN; INSERT INTO keyed VALUES (1, 'a', 1); INSERT INTO loose VALUES (1, 'a'); DELETE FROM keyed; COMMIT",
        "BEGIN; INSERT INTO paired VALUES (1, 'a', 'b'); SAVEPOINT s; DELETE FROM paired; ROLLBACK TO s; COMMIT",
        "BEGIN; INSERT INTO keyed VALUES (5, 'never', 1); ROLLBACK",
    ],
}

ALTERED = [
    "INSERT INTO keyed VALUES (1, 'a', 1), (2, 'b', 2)",
    "ALTER TABLE keyed ADD COLUMN more int; INSERT INTO keyed VALUES (3, 'c', 3, 4)",
    "ALTER TABLE keyed RENAME COLUMN note TO words; UPDATE keyed SET words = 'd', more = 1 WHERE id = 1",
    "ALTER TABLE keyed DROP COLUMN paid; INSERT INTO keyed VALUES (4, 'e', 5); DELETE FROM keyed WHERE id = 2",
]


class ContractSource:
    """A database with some tables, its log, and what a pipeline would hand to a destination. `ddl` makes the tables and
    their publication `contract`."""

    def __init__(self, url: str, directory: Path, ddl: str = TABLES, names: tuple[str, ...] = NAMES) -> None:
        self.source = PostgresSource(url, publication="contract")
        self._names = names
        self._log = directory / "log"
        self._directory = directory
        self._schemas: dict[str, TableSchema] = {}
        self._slot = f"contract_{uuid4().hex[:12]}"
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(cast(Any, ddl))
        self.capture()

    def do(self, *statements: str) -> None:
        """Each is a transaction, or several; they are in the log afterwards."""
        for statement in statements:
            self.connection.execute(cast(Any, statement))
        self.capture()

    def capture(self) -> LogReader:
        Capture(self.source, slot=self._slot, log=self._log).run(until="caught-up")
        return LogReader(self._log)

    def close(self) -> None:
        self.connection.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        self.connection.close()

    def schema(self, table: str) -> TableSchema:
        if table not in self._schemas:
            with exported_snapshot(self.source, application="walrelay contract") as snapshot:
                self._schemas[table] = _schema(snapshot, table)
        return self._schemas[table]

    def copy(self, destination: Destination, table: str, snapshot: Snapshot | None = None) -> WriteResult:
        """Copy a table, as of now or under a snapshot."""
        if snapshot is None:
            with exported_snapshot(self.source, application="walrelay contract") as now:
                return self.copy(destination, table, now)
        schema = _schema(snapshot, table)
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        task = CopyTask(
            source=self.source,
            schema=schema,
            snapshot=snapshot.name,
            target=destination.dialect.target,
            special_values="null",
            chunk_bytes=MiB,
            file_bytes=64 * MiB,
            application="walrelay contract",
            directory=str(directory),
            keeps_files=destination.capabilities.keeps_files,
        )
        landed = [
            land_range(task, part) for part in plan_ranges(schema, range_bytes=64 * MiB, max_ranges=16, parallelism=1)
        ]
        files = tuple(file for result in landed for file in result.files)
        rows = TableRows(schema, files, task.target, sum(result.rows for result in landed), snapshot.lsn)
        try:
            destination.drop_table_for_copy(schema)
            return destination.write_table_rows(schema, rows)
        finally:
            shutil.rmtree(directory)

    def batch(self, after: Lsn | None = None, to: Lsn | None = None, unseen_by: str | None = None) -> EventBatch:
        """All tables, from one position to another."""
        log = LogReader(self._log)
        start = after if after is not None else log.start()
        ranges = tuple(TableRange(self.schema(table).id, start, unseen_by) for table in self._names)
        return EventBatch(log, start, to if to is not None else log.end(), ranges, location=str(self._log))

    def commits(self) -> list[Lsn]:
        """Where each transaction ends."""
        return sorted({change.end_lsn for change in LogReader(self._log).changes()})

    def contents(self) -> dict[str, list[Row]]:
        """What the source holds, by table."""
        sample = take_sample(self.connection, "contract")
        return {
            name: sorted(plain_row(dict(zip(table.columns, row, strict=True))) for row in table.rows)
            for name, table in sample.tables.items()
        }


def _schema(snapshot: Snapshot, table: str) -> TableSchema:
    return read_schema(snapshot.connection, find_table(snapshot.connection, TableName("public", table)), "bytes")


class DestinationContract:
    """The obligations of a destination that materializes, each as a test."""

    durable: ClassVar[bool] = True
    """False for one that forgets when it is let go: it is then not opened again."""

    @pytest.fixture
    def destination_factory(self) -> DestinationFactory:
        raise NotImplementedError("a fixture that gives the destinations under test")

    def rows(self, destination: Destination, table: str) -> list[dict[str, Any]]:
        """What a reader finds in a table; raises when there is none."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def contract_server(cls) -> Iterator[EmbeddedPostgres]:
        with EmbeddedPostgres() as server:
            yield server

    @pytest.fixture
    def source(self, contract_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[ContractSource]:
        source = ContractSource(contract_server.create_database(f"contract_{uuid4().hex[:12]}"), tmp_path)
        yield source
        source.close()

    @pytest.fixture
    def spark(self) -> SparkSession | None:
        """The session for a destination that wants one."""
        return None

    @pytest.fixture
    def opened(self, spark: SparkSession | None, destination_factory: DestinationFactory) -> Opened:
        return lambda: _open(destination_factory, spark)

    @pytest.fixture
    def destination(self, opened: Opened) -> Iterator[Destination]:
        with opened() as found:
            yield found

    def held(self, destination: Destination) -> dict[str, list[Row]]:
        return {
            name: sorted(_as_text(row) for row in self.rows(destination, name))
            for name in (f"public.{table}" for table in NAMES)
        }

    def copied(self, source: ContractSource, destination: Destination) -> None:
        with exported_snapshot(source.source, application="walrelay contract") as snapshot:
            for table in NAMES:
                assert source.copy(destination, table, snapshot).durable

    # ------------------------------------------------------------------------------------------------------- copies

    def test_it_says_what_it_is(self, destination: Destination) -> None:
        assert isinstance(destination, Destination)
        able = destination.capabilities
        assert able.materializes and able.takes_changes and able.lands_files and able.keeps_progress

    def test_no_rows_still_make_a_table(self, source: ContractSource, destination: Destination) -> None:
        self.copied(source, destination)
        assert self.held(destination) == {f"public.{table}": [] for table in NAMES}

    def test_a_copy_takes_the_place_of_what_was_there(self, source: ContractSource, destination: Destination) -> None:
        source.do("INSERT INTO keyed VALUES (1, 'old', NULL), (2, 'old', 2)")
        assert source.copy(destination, "keyed").rows == 2
        source.do("DELETE FROM keyed", "INSERT INTO keyed VALUES (2, 'new', 3)")
        assert source.copy(destination, "keyed").rows == 1
        assert source.copy(destination, "keyed").rows == 1  # it may come again
        assert [_as_text(row) for row in self.rows(destination, "public.keyed")] == source.contents()["public.keyed"]

    def test_tables_are_copied_side_by_side(self, source: ContractSource, destination: Destination) -> None:
        source.do("INSERT INTO keyed SELECT g FROM generate_series(1, 200) g", "INSERT INTO loose SELECT id FROM keyed")
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda table: source.copy(destination, table), NAMES * 2))
        assert self.held(destination) == source.contents()

    def test_before_a_copy_it_forgets_how_far_the_table_was(
        self, source: ContractSource, destination: Destination
    ) -> None:
        self.copied(source, destination)
        source.do("INSERT INTO keyed VALUES (1, 'x', 1)")
        destination.write_events(source.batch())
        schema = source.schema("keyed")
        assert destination.applied_lsn(schema.id) is not None
        destination.drop_table_for_copy(schema)
        destination.drop_table_for_copy(schema)
        assert destination.applied_lsn(schema.id) is None
        assert destination.applied_lsn(source.schema("loose").id) is not None

    # ------------------------------------------------------------------------------------------------------ changes

    @pytest.mark.parametrize("cut", ["in one batch", "commit by commit"])
    @pytest.mark.parametrize("story", list(STORIES))
    def test_changes_lead_to_what_the_source_holds(
        self, source: ContractSource, destination: Destination, story: str, cut: str
    ) -> None:
        self.copied(source, destination)
        source.do(*STORIES[story])
        position = source.batch().after
        for end in source.commits() if cut == "commit by commit" else [source.batch().to]:
            result = destination.write_events(source.batch(position, end))
            assert result.durable
            position = end
        assert self.held(destination) == source.contents()

    @pytest.mark.parametrize("story", list(STORIES))
    def test_a_batch_may_come_again(self, source: ContractSource, destination: Destination, story: str) -> None:
        """Wholly, or as part of a longer one: after a crash nobody knows what had been taken."""
        self.copied(source, destination)
        source.do(*STORIES[story])
        for end in source.commits():
            destination.write_events(source.batch(None, end))
            destination.write_events(source.batch(None, end))
        assert self.held(destination) == source.contents()

    def test_an_altered_table_is_followed_or_asked_for_again(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Several shapes in one batch. Who cannot follow says which table it is, and is given a copy."""
        self.copied(source, destination)
        source.do(*ALTERED)
        try:
            destination.write_events(source.batch())
        except CopyAgainError as error:
            names = {error.context.get("table"), error.context.get("table_id")}
            assert names & {"public.keyed", source.schema("keyed").id}, "the others are to go on without it"
            source.copy(destination, "keyed")
        assert self.held(destination) == source.contents()

    def test_it_knows_how_far_each_table_is(self, source: ContractSource, destination: Destination) -> None:
        self.copied(source, destination)
        source.do("INSERT INTO keyed VALUES (1, 'x', 1)")
        first = source.batch()
        destination.write_events(first)
        assert {destination.applied_lsn(one.table) for one in first.ranges or ()} == {first.to}
        source.do("INSERT INTO keyed VALUES (2, 'x', 1)")
        destination.write_events(source.batch(first.to))
        destination.write_events(first)  # an old one takes nothing back
        assert {destination.applied_lsn(one.table) for one in first.ranges or ()} == {source.batch().to}
        assert self.held(destination) == source.contents()

    def test_a_table_that_catches_up_takes_what_its_snapshot_has_not_seen(
        self, source: ContractSource, destination: Destination
    ) -> None:
        """Transactions that were open while it was copied; what the snapshot saw is in the log too."""
        source.do("INSERT INTO loose VALUES (1, 'seen')")
        with psycopg.connect(source.source.conninfo) as other:
            other.execute("INSERT INTO loose VALUES (2, 'open'); UPDATE loose SET note = 'open' WHERE n = 1")
            with exported_snapshot(source.source, application="walrelay contract") as snapshot:
                for table in NAMES:
                    source.copy(destination, table, snapshot)
                visible = snapshot.visible
        source.do("INSERT INTO loose VALUES (3, 'later')")
        destination.write_events(source.batch(unseen_by=visible))
        assert self.held(destination) == source.contents()

    # --------------------------------------------------------------------------------------------------------- life

    def test_what_was_durable_is_there_when_it_is_opened_again(self, source: ContractSource, opened: Opened) -> None:
        if not self.durable:
            pytest.skip("it forgets when it is let go")
        with opened() as destination:
            self.copied(source, destination)
            source.do(*STORIES["updates and deletes"])
            destination.write_events(source.batch())
        with opened() as destination:
            assert destination.applied_lsn(source.schema("keyed").id) == source.batch().to
            destination.write_events(source.batch())
            assert self.held(destination) == source.contents()

    def test_it_can_be_let_go_more_than_once(self, destination: Destination) -> None:
        destination.shutdown()
        destination.shutdown()


@contextmanager
def _open(factory: DestinationFactory, spark: SparkSession | None) -> Iterator[Destination]:
    destination = factory()
    context = DestinationContext("contract", copy_settings())
    if spark is not None:
        context = replace(context, spark=lambda: spark)
    destination.startup(context)
    try:
        yield destination
    finally:
        destination.shutdown()


def _as_text(row: dict[str, Any]) -> Row:
    return plain_row({name: None if value is None else postgres_text(value) for name, value in row.items()})
