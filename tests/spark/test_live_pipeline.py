"""Copy and changes joined: the destination equals the source, whatever happened meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.faults.capture_kit import RestingWorkload
from tests.spark.live_kit import Heard, Live, confirmed, ended, phases, table
from walrelay.changes.batch import EventBatch
from walrelay.changes.rows import TableRows
from walrelay.changes.spark_dialect import DIALECT
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import DestinationContext, SimpleDestination, WriteResult
from walrelay.destinations.capabilities import Capabilities
from walrelay.destinations.duckdb.destination import DuckDBDestination
from walrelay.destinations.memory import MemoryDestination
from walrelay.errors import ConfigError, CopyFailedError, LineageError, SparkJobError
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.progress import Apply
from walrelay.model.schema import TableSchema
from walrelay.pipeline import Pipeline
from walrelay.spark.change_query import ChangeQuery
from walrelay.stores.failures import StoreInUseError
from walrelay.stores.memory import MemoryStore
from walrelay.stores.records import DestinationTableMetadata
from walrelay.testing.assertions import assert_replicated
from walrelay.testing.failpoints import armed
from walrelay.testing.faults import FaultyDestination, LastingFaultError
from walrelay.testing.postgres import EmbeddedPostgres
from walrelay.testing.workload import Workload

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
CHECKPOINTS = Path("/dev/shm")
TWIN = 'public."Keyed"'
"""DuckDB takes it for `public.keyed`."""


@pytest.fixture
def shop(live: Live) -> Live:
    """Three small tables: one keyed, one that is only appended to and has no key, one that is changed whole."""
    live.sql(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
        "CREATE TABLE appended (n int, v text)",
        "CREATE TABLE whole (n int, v text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE keyed, appended, whole",
    )
    change(live, 0)
    return live


CHANGES = 21
"""How many rows a call of `change` changes."""


def change(live: Live, round_: int) -> None:
    """A few transactions in all three tables; each round its own rows."""
    n = 10 * round_
    live.sql(
        f"INSERT INTO keyed SELECT g, 'a' FROM generate_series({n}, {n} + 4) AS g",
        f"INSERT INTO appended SELECT g, 'a' FROM generate_series({n}, {n} + 4) AS g;"
        f" INSERT INTO appended VALUES ({n})",
        f"INSERT INTO whole SELECT g % 2, 'a' FROM generate_series({n}, {n} + 4) AS g",
        f"UPDATE keyed SET v = 'b' WHERE id = {n}; UPDATE keyed SET id = {n} + 9 WHERE id = {n} + 1;"
        f" DELETE FROM keyed WHERE id = {n} + 2",
        "UPDATE whole SET v = 'b' WHERE ctid = (SELECT min(ctid) FROM whole)",
        "DELETE FROM whole WHERE ctid = (SELECT max(ctid) FROM whole)",
    )


def appended(live: Live) -> list[int]:
    """The numbers in the destination's append-only table."""
    with duckdb.connect(str(live.file), read_only=True) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM public.appended ORDER BY n").fetchall()]


# ------------------------------------------------------------------------------------------------- copy and changes


def test_tables_copied_under_a_workload_are_equal_also_after_a_restart(live: Live) -> None:
    # Partitions under their own names are in tests/faults/test_killed_pipeline.py.
    workload = Workload(live.url, seed=11, clients=2, large_rows=500, via_partition_root=True)
    with psycopg.connect(live.url, autocommit=True) as connection:
        workload.create(connection)
    workload.run(transactions=100)
    with live.running() as pipeline:
        with RestingWorkload(workload, burst=10, rest=0.2, sample_every=10**6).running():
            status = live.wait_ready(pipeline)
            more = status.changes + 200
            live.wait(pipeline, lambda status: status.changes > more, "changes are applied")
        assert {str(one.name) for one in status.tables} == set(workload.tables)
        live.wait_current(pipeline)
        assert_replicated(live.source, live.file)
    workload.run(transactions=50)
    # All that is remembered comes from the file of the store, and nothing is copied again.
    summary = live.pipeline().run(until="caught-up")
    assert live.heard.started == [] and summary.tables == ()
    assert summary.changes > 0
    assert_replicated(live.source, live.file)


def test_a_truncate_that_comes_while_a_table_is_copied_stops_neither(shop: Live) -> None:
    """It waits for the snapshot's lock, the copy's task waits behind it, and the snapshot for the task."""
    shop.sql("INSERT INTO keyed SELECT g FROM generate_series(100, 200) AS g")
    with shop.running() as pipeline, ThreadPoolExecutor() as pool:
        with armed("copy.during=sleep:1"):
            shop.wait(pipeline, lambda status: table(status, "public.keyed").phase == "data_sync", "it is copied")
            truncated = pool.submit(shop.sql, "TRUNCATE keyed; INSERT INTO keyed VALUES (1)")
            truncated.result(30)
        shop.wait_current(pipeline)
        assert "public.keyed" in shop.heard.retried
        assert_replicated(shop.source, shop.file)


class ChangingFirst(Heard):
    """Stops capture before the first snapshot is taken, and changes the tables: the copies see what the log lacks."""

    def __init__(self, live: Live) -> None:
        super().__init__()
        self.capture: psutil.Process | None = None
        self._live = live
        self._lock = threading.Lock()

    def table_started(self, table: TableName, attempt: int) -> None:
        with self._lock:
            if self.capture is None:
                self.capture = psutil.Process(self._live.capture_pid())
                self.capture.suspend()
                change(self._live, 1)
        super().table_started(table, attempt)


def test_what_the_copy_has_seen_is_not_applied_again_however_late_the_log_comes(shop: Live) -> None:
    listener = ChangingFirst(shop)
    with shop.running(listener=listener) as pipeline:
        shop.wait(pipeline, lambda _: far_enough(pipeline), "all are copied")
        time.sleep(1)  # for those that would not wait
        assert set(phases(pipeline).values()) == {"catchup"}
        assert listener.capture is not None
        listener.capture.resume()
        shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)


def far_enough(pipeline: Pipeline) -> bool:
    found = phases(pipeline).values()
    return bool(found) and all(phase in ("catchup", "sync_done", "ready") for phase in found)


def test_a_copy_whose_spark_worker_is_killed_begins_again(shop: Live) -> None:
    # Small on disk, and long on its way: 600 MB, so that the copy still goes on when it was found.
    shop.sql("INSERT INTO keyed SELECT g, repeat('x', 4000000) FROM generate_series(1001, 1150) AS g")
    with shop.running() as pipeline, psycopg.connect(shop.url, autocommit=True) as connection:
        backend, port = copying_backend(connection)
        os.kill(backend, signal.SIGSTOP)  # the task waits for more
        try:
            worker = next(one for one in psutil.Process().children(recursive=True) if has_port(one, port))
            worker.kill()
            # Before the next attempt sees them: once is enough for so many bytes.
            shop.sql("DELETE FROM keyed WHERE id > 1000")
            change(shop, 1)
        finally:
            os.kill(backend, signal.SIGCONT)
        shop.wait_current(pipeline)
        assert "public.keyed" in shop.heard.retried
        assert_replicated(shop.source, shop.file)


def test_a_query_whose_python_process_is_killed_is_begun_again(shop: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    batch = ChangeQuery._batch

    def counted(query: ChangeQuery, frame: Any, number: int) -> None:
        batches.append(number)
        batch(query, frame, number)

    monkeypatch.setattr(ChangeQuery, "_batch", counted)
    with shop.running() as pipeline:
        looking_at_the_log().kill()  # while it starts
        for number in (1, 2):
            change(shop, number)
            shop.wait(pipeline, lambda _: bool(batches), "Spark has called")
            shop.wait_current(pipeline)
            assert_replicated(shop.source, shop.file)
            looking_at_the_log().kill()  # while it is at work
            batches.clear()


def looking_at_the_log() -> psutil.Process:
    """The process that Spark asks how far the log is, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if any("python_streaming_source_runner" in word for word in process.cmdline()):
                    return process
        time.sleep(0.1)
    raise AssertionError("no query looks at the log")


def copying_backend(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """The server's process that sends rows of the large table, caught in the act, and its client's port."""
    question = (
        "SELECT pid, client_port FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT%keyed%' AND state = 'active'"
    )
    deadline = time.monotonic() + 60
    while (row := connection.execute(question + " AND pid <> pg_backend_pid()").fetchone()) is None:
        assert time.monotonic() < deadline, "it was never copied"
    return int(row[0]), int(row[1])


def has_port(process: psutil.Process, port: int) -> bool:
    try:
        return any(one.laddr.port == port for one in process.net_connections("tcp4") if one.laddr)
    except psutil.Error:
        return False


# --------------------------------------------------------------------------------------------- tables come and leave


def test_tables_may_join_and_leave_the_publication_while_it_runs(shop: Live) -> None:
    with shop.running() as pipeline:
        shop.wait_current(pipeline)
        shop.sql("CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)")
        shop.sql("ALTER PUBLICATION p ADD TABLE late", "INSERT INTO late VALUES (2)")
        shop.wait_ready(pipeline, "public.late")
        shop.sql("INSERT INTO late VALUES (3)")
        shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)

        shop.sql("ALTER PUBLICATION p DROP TABLE appended")
        shop.wait(pipeline, lambda _: "public.appended" not in phases(pipeline), "it has left")
        kept = appended(shop)
        assert len(kept) == 6, "the destination's rows stay"
        shop.sql("INSERT INTO appended VALUES (77)", "INSERT INTO keyed VALUES (77)")
        shop.wait_current(pipeline)
        assert appended(shop) == kept
        assert_replicated(shop.source, shop.file)

        # One that comes back is copied: nobody knows what happened meanwhile.
        shop.sql("ALTER PUBLICATION p ADD TABLE appended")
        shop.wait_ready(pipeline, "public.appended")
        shop.sql("INSERT INTO appended VALUES (78)")
        shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)

        # A publication without tables looks like a mistake: nothing is forgotten. But nobody was told of what happened
        # to the tables meanwhile, so each is copied once they are back.
        began, shown = list(shop.heard.started), phases(pipeline)
        shop.sql("ALTER PUBLICATION p DROP TABLE keyed, appended, whole, late")
        looked = live_looks(pipeline)
        shop.wait(pipeline, lambda _: live_looks(pipeline) > looked + 2, "it has looked")
        assert phases(pipeline) == shown
        shop.sql("INSERT INTO appended VALUES (79)", "DELETE FROM keyed WHERE id = 77")
        shop.sql("ALTER PUBLICATION p ADD TABLE keyed, appended, whole, late", "INSERT INTO appended VALUES (80)")
        shop.wait_current(pipeline)
        again = ["public.appended", "public.keyed", "public.late", "public.whole"]
        assert sorted(shop.heard.started[len(began) :]) == again
        assert_replicated(shop.source, shop.file)


def live_looks(pipeline: Pipeline) -> float:
    assert pipeline._live is not None and pipeline._live._tables is not None
    return pipeline._live._tables.discovery.looked_at * 10


# ------------------------------------------------------------------------------------------------------ failures


def test_a_table_that_fails_says_why_and_the_others_go_on_also_after_a_restart(shop: Live) -> None:
    shop.sql('CREATE TABLE "Keyed" (id int PRIMARY KEY)', "CREATE TABLE late (id int PRIMARY KEY)")
    shop.sql('ALTER PUBLICATION p ADD TABLE "Keyed", late')
    destination = FaultyDestination(DuckDBDestination(shop.file))
    destination.reject("write_table_rows", table="public.whole", error=LastingFaultError)
    destination.reject("write_table_rows", table="public.late")
    held = destination.hold("write_table_rows", table=TWIN)
    with shop.running(destination, settings=copy_settings(retry_delay=60)) as pipeline:
        shop.wait_ready(pipeline, "public.keyed", "public.appended")
        held.release()
        status = shop.wait(
            pipeline,
            lambda status: {table(status, name).phase for name in ("public.whole", "public.late", TWIN)} == {"errored"},
            "all three have failed",
        )
        assert table(status, "public.whole").reason == "write_table_rows was rejected"
        assert table(status, "public.whole").solution == LastingFaultError.default_hint
        assert f"DuckDB cannot tell {TWIN} from public.keyed" in str(table(status, TWIN).reason)
        assert "Rename one of them" in str(table(status, TWIN).solution)
        change(shop, 1)
        shop.wait_current(pipeline, "public.keyed", "public.appended")
        assert len(appended(shop)) == 12
        assert shop.heard.started.count("public.whole") == 1, "not tried again"
    with pytest.raises(CopyFailedError) as caught:
        shop.pipeline().run(until="caught-up")
    # Every start tries again what had failed, since its cause may be gone; here that of one is not.
    summary = caught.value.summary
    assert {str(one.name) for one in summary.failed} == {TWIN}
    assert {str(one.name) for one in summary.tables if one.error is None} == {"public.late", "public.whole"}
    assert caught.value.context["code"] == "destination.name_clash"


def test_a_table_that_fails_for_a_while_is_tried_again_wherever_it_stands(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    destination.reject("write_table_rows", table="public.keyed", times=2)
    held = destination.hold("write_table_rows", table="public.appended", times=1)
    destination.reject("write_events", table="public.appended", times=2)
    with shop.running(destination) as pipeline:
        assert held.reached.wait(30)
        change(shop, 1)
        held.release()
        shop.wait_current(pipeline)
        assert shop.heard.retried.count("public.keyed") == 2
        # Of the two that fail, one may be a catch-up with other tables, after which each is tried alone at once.
        assert shop.heard.retried.count("public.appended") in (1, 2)
        assert_replicated(shop.source, shop.file)
        destination.reject("write_events", table="public.whole", times=3)
        change(shop, 2)
        shop.wait(pipeline, lambda _: shop.heard.retried.count("public.whole") == 3, "it fails")
        # No later change wakes it: the time alone does.
        shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)
        change(shop, 3)
        shop.wait_current(pipeline)
        assert shop.heard.retried.count("public.whole") == 3
        assert_replicated(shop.source, shop.file)


def test_a_lost_answer_applies_nothing_twice(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    held = destination.hold("write_table_rows", table="public.appended", times=1)
    destination.lose_response("write_events", table="public.appended", times=2)
    with shop.running(destination) as pipeline:
        assert held.reached.wait(30)
        change(shop, 1)
        held.release()
        shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)
        for number, names_table in enumerate((False, True), 2):
            # A named table is put aside and tried again alone; without a name the whole batch is.
            destination.lose_response("write_events", table="public.appended", times=2, names_table=names_table)
            change(shop, number)
            shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)
    assert len(appended(shop)) == 4 * 6
    assert destination.calls["write_events"] > 6


def test_what_is_only_accepted_is_sent_again_until_it_is_durable(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    destination.only_accept("write_table_rows", table="public.keyed", times=2)
    held = destination.hold("write_table_rows", table="public.appended", times=1)
    destination.only_accept("write_events", table="public.appended", times=3)
    with shop.running(destination) as pipeline:
        assert held.reached.wait(30)
        change(shop, 1)
        shop.wait_logged(pipeline)  # it waits there for the catch-up
        held.release()
        shop.wait_current(pipeline)
        assert shop.heard.retried.count("public.keyed") == 2
        # Some of the three may be catch-ups with other tables, after which each is sent alone at once.
        assert "public.appended" in shop.heard.retried, "it did not count as caught up"
        destination.only_accept("write_events", times=2)
        change(shop, 2)
        shop.wait_current(pipeline)
        assert sum("did not make that durable" in notice for notice in shop.heard.notices) == 2
        assert_replicated(shop.source, shop.file)
    assert len(appended(shop)) == 3 * 6


class Lakehouse(SimpleDestination):
    """Uses Spark, the shapes and the ledger, as somebody's own destination may."""

    name = "lakehouse"
    capabilities = Capabilities(takes_changes=True)
    dialect = DIALECT

    def __init__(self) -> None:
        self.copied: dict[str, int] = {}
        self.columns: dict[str, list[str]] = {}

    def startup(self, context: DestinationContext) -> None:
        self.context = context

    def write_table_rows(self, schema: TableSchema, rows: TableRows) -> WriteResult:
        assert rows.snapshot_lsn is not None
        entry = DestinationTableMetadata(str(schema.name), rows.snapshot_lsn, (True,) * len(schema.columns))
        self.context.store.store_destination_table_metadata(schema.id, entry)
        self.copied[str(schema.name)] = self.context.spark().read.parquet(*rows.paths()).count()
        self.context.store.store_destination_table_metadata(schema.id, entry.applied())
        return WriteResult(durable=True, rows=rows.rows_total)

    def write_events(self, batch: EventBatch) -> WriteResult:
        for part in batch.tables():
            known = self.context.store.get_table_schema(part.schema.id, batch.to)
            assert known is not None
            self.columns[str(part.schema.name)] = [column.name for column in known.schema.columns]
        return WriteResult(durable=True, rows=sum(one.batch.num_rows for one in batch.batches()))


def test_a_destination_has_spark_the_shapes_and_a_ledger_at_hand(shop: Live) -> None:
    destination, store = Lakehouse(), shop.store()
    with shop.running(destination, store=store) as pipeline:
        shop.wait_current(pipeline)
        change(shop, 1)
        shop.sql("ALTER TABLE keyed ADD COLUMN more int", "UPDATE keyed SET more = 1")
        shop.wait_current(pipeline)
    assert destination.copied == {"public.keyed": 4, "public.appended": 6, "public.whole": 4}
    assert destination.columns == {
        "public.keyed": ["id", "v", "more"],
        "public.appended": ["n", "v"],
        "public.whole": ["n", "v"],
    }
    for id_, name in store.get_table_mappings().items():
        entry = store.get_applied_destination_table_metadata(id_)
        assert entry is not None and entry.destination_table == name


def test_a_destination_that_is_held_or_slow_loses_nothing(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    with shop.running(destination) as pipeline:
        shop.wait_current(pipeline)
        held = destination.hold("write_events")
        try:
            # An idle source is confirmed up to its end, but not beyond what is held now.
            before = ended(shop)
            change(shop, 1)
            held.reached.wait(30)
            change(shop, 2)
            status = shop.wait(pipeline, lambda status: (status.lag_seconds or 0) > 0.2, "it lags")
            assert status.position is not None and confirmed(shop) <= max(before, status.position), "not yet forgotten"
        finally:
            held.release()
        destination.slow("write_events", 0.1)
        for number in range(3, 8):
            change(shop, number)
        shop.wait_current(pipeline)
        assert_replicated(shop.source, shop.file)


# ------------------------------------------------------------------------------------------------- what may get lost


def test_without_sparks_checkpoint_it_goes_on_or_ends_by_name_and_goes_on_the_next_time(shop: Live) -> None:
    """Progress is the store's and the destination's. Whether Spark makes its directory again depends on the moment."""

    def checkpoints() -> set[Path]:
        return set(CHECKPOINTS.glob(f"walrelay-*/run-{os.getpid()}-*/checkpoint"))

    before = checkpoints()
    pipeline = shop.pipeline()
    pipeline.start()
    shop.wait(
        pipeline, lambda _: any(list(made.glob("commits/*")) for made in checkpoints() - before), "Spark has begun"
    )
    shop.wait_current(pipeline)
    (checkpoint,) = checkpoints() - before
    shutil.rmtree(checkpoint)
    change(shop, 1)
    try:
        shop.wait_current(pipeline)
        pipeline.shutdown()
        pipeline.wait()
    except SparkJobError as error:
        assert "the streaming query ended" in error.message
    change(shop, 2)
    shop.pipeline().run(until="caught-up")
    assert shop.heard.started == []
    assert_replicated(shop.source, shop.file)


def test_an_older_copy_of_the_file_is_brought_up_from_the_log_and_a_lost_one_is_copied_again(shop: Live) -> None:
    older = shop.file.with_name("older.duckdb")
    change(shop, 1)
    shop.pipeline().run(until="caught-up")
    shutil.copy(shop.file, older)
    change(shop, 2)
    shop.pipeline().run(until="caught-up")
    change(shop, 3)
    shutil.copy(older, shop.file)
    shop.pipeline().run(until="caught-up")
    assert shop.heard.started == [] and shop.heard.notices == []
    assert_replicated(shop.source, shop.file)

    shop.file.unlink()
    change(shop, 4)
    summary = shop.pipeline().run(until="caught-up")
    assert len(summary.tables) == 3
    assert "the destination has lost public.keyed; it is copied again" in shop.heard.notices
    assert_replicated(shop.source, shop.file)


def test_a_log_of_another_slot_is_refused_by_name(shop: Live) -> None:
    shop.store().update_durable_progress(Apply(), Lineage("earlier", "7", 1, Lsn(1)), Lsn(2))
    with pytest.raises(LineageError, match="what is remembered belongs to slot earlier"):
        shop.pipeline().run(until="caught-up")


def test_a_server_that_crashes_is_waited_out(tmp_path: Path, spark: SparkSession) -> None:
    with EmbeddedPostgres(durable=True) as server:
        live = Live(server.url, tmp_path, spark)
        live.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t", "INSERT INTO t VALUES (1)")
        with live.running() as pipeline:
            live.wait_current(pipeline)
            server.stop("immediate")
            time.sleep(3.0)  # long enough for a look at the publication to fail
            server.start()
            live.sql("INSERT INTO t VALUES (2)")
            live.wait_current(pipeline)
            # A table that joins now is found and copied.
            live.sql("CREATE TABLE late (n int)", "INSERT INTO late VALUES (1)", "ALTER PUBLICATION p ADD TABLE late")
            live.wait_current(pipeline, "public.late")
        assert_replicated(live.source, live.file)


# ------------------------------------------------------------------------------------------------------ its handles


def test_it_is_started_watched_and_stopped_and_runs_only_once_at_a_time(shop: Live) -> None:
    pipeline = shop.pipeline()
    assert pipeline.status() is None
    pipeline.start()
    with pytest.raises(ConfigError, match="started already"):
        pipeline.start()
    assert pipeline.wait(0) is None
    status = shop.wait_current(pipeline)
    assert [str(one.name) for one in status.tables] == ["public.appended", "public.keyed", "public.whole"]
    status = shop.wait(pipeline, lambda status: status.capture is not None, "capture has said something")
    assert status.capture is not None and status.capture.slot == shop.slot
    change(shop, 1)
    status = shop.wait_current(pipeline)
    assert status.position == status.log_end and status.lag_seconds == 0 and status.changes > 10
    # A second one of the same id is refused, and does the first no harm.
    with pytest.raises(StoreInUseError, match=str(os.getpid())):
        shop.pipeline(DuckDBDestination(shop.file.with_name("other.duckdb"))).run(until="caught-up")
    pipeline.shutdown()
    summary = pipeline.wait()
    assert summary is not None and summary.changes == status.changes and summary.rows == 5 + 6 + 4 - 1
    # The same object can be started again, stopped before it has begun, and asked for its end within the block.
    pipeline.start()
    pipeline.shutdown()
    assert pipeline.wait(60) is not None
    with pipeline:
        pipeline.shutdown()
        assert pipeline.wait(60) is not None
    assert_replicated(shop.source, shop.file)


def test_what_ends_it_is_raised_by_who_waits(shop: Live) -> None:
    destination = FaultyDestination(DuckDBDestination(shop.file))
    pipeline = shop.pipeline(destination)
    pipeline.start()
    shop.wait_ready(pipeline)
    destination.reject("write_events", error=LastingFaultError)
    change(shop, 1)
    with pytest.raises(LastingFaultError, match="write_events was rejected"):
        pipeline.wait(60)
    destination.heal()
    shop.pipeline(destination).run(until="caught-up")
    assert_replicated(shop.source, destination)


def test_changes_alone_come_in_commit_order_each_once(shop: Live) -> None:
    destination = MemoryDestination()
    store = MemoryStore()
    with shop.running(destination, store=store, mode="changes") as pipeline:
        shop.wait(
            pipeline, lambda status: status.capture is not None and status.capture.state == "streaming", "it runs"
        )
        for number in range(1, 4):
            change(shop, number)
        shop.wait(pipeline, lambda status: len(destination.changes) >= 3 * CHANGES, "all have come")
    change(shop, 4)
    shop.pipeline(destination, store=store, mode="changes").run(until="caught-up")
    positions = [(one.commit_lsn, one.ordinal) for one in destination.changes]
    assert positions == sorted(set(positions))
    inserted = [one.row["n"] for one in destination.changes if one.table.name == "appended" and one.row]
    assert inserted == [n for number in range(1, 5) for n in (*range(10 * number, 10 * number + 5), 10 * number)]


def test_both_into_memory(shop: Live) -> None:
    destination = MemoryDestination()
    with shop.running(destination, store=MemoryStore()) as pipeline:
        shop.wait_ready(pipeline)
        change(shop, 1)
        shop.wait_current(pipeline)
        assert_replicated(shop.source, destination)
