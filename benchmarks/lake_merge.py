"""Changes into a large table of a lake: walrelay from its log and from the slot, and a MERGE that is written by hand.

The one by hand is given what the changes come to, one row for each key, as Parquet files: it has nothing to do but a
MERGE in `foreachBatch`. All three take the same changes into the same rows, and hold the same afterwards.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.lake_spark import iceberg_session, lake_needs
from benchmarks.machine import describe_machine
from benchmarks.pipeline_run import has_applied, running, status_of, wait_until
from benchmarks.tables import make_bench_table
from walrelay import DeltaDestination, IcebergDestination
from walrelay.config.settings import copy_settings
from walrelay.destinations.base import Destination, DestinationContext
from walrelay.destinations.iceberg.needs import CATALOG
from walrelay.spark.needs import settings_for
from walrelay.spark.session import spark_session, stop_session
from walrelay.testing.destination_contract import ContractSource
from walrelay.testing.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from walrelay.changes.table_changes import TableChanges

GOAL_LOG, GOAL_SLOT = 1.0, 0.6
CHANGES = """
DO $$ BEGIN
    FOR batch IN 1..{batches} LOOP
        UPDATE bench SET amount = (amount + 1) % 1000000, note = 'changed ' || note
        WHERE id IN (SELECT 1 + (random() * {rows})::bigint FROM generate_series(1, 600));
        INSERT INTO bench SELECT {first} + (batch - 1) * 200 + g, customer, status, amount, price, created, day, flag,
            note, uid, tags FROM bench, generate_series(1, 200) g WHERE id = 1;
        DELETE FROM bench WHERE id IN (SELECT 2 + (random() * {rows})::bigint FROM generate_series(1, 200));
        COMMIT;
    END LOOP;
END $$
"""
MERGE = """
MERGE INTO {table} AS t USING {view} AS s ON t.id = s.id
WHEN MATCHED AND s.gone THEN DELETE
WHEN MATCHED THEN UPDATE SET {updates}
WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({columns}) VALUES ({values})
"""
SUM = "SELECT count(*), sum(id), sum(amount), sum(length(note)) FROM {table}"


@dataclass
class Merges:
    """Into one format, seconds of each round."""

    format: str
    changes: int = 0
    by_hand: list[float] = field(default_factory=list)
    from_log: list[float] = field(default_factory=list)
    from_slot: list[float] = field(default_factory=list)

    def ratio(self, ours: list[float]) -> float:
        return statistics.median(self.by_hand) / statistics.median(ours)


@dataclass(frozen=True)
class Format:
    """How a lake of it is opened, and how its tables are called and made by hand."""

    name: str
    destination: Callable[[Path], Destination]
    session: Callable[[SparkSession, Path], SparkSession]
    ours: Callable[[Path], str]
    theirs: Callable[[Path], str]
    made: str


FORMATS = (
    Format(
        "delta",
        lambda lake: DeltaDestination(lake, maintain_every=None),
        lambda spark, _: spark.newSession(),
        lambda lake: f"delta.`{lake / 'public' / 'bench'}`",
        lambda lake: f"delta.`{lake / 'hand' / 'bench'}`",
        "USING delta",
    ),
    Format(
        "iceberg",
        lambda lake: IcebergDestination(lake, maintain_every=None),
        iceberg_session,
        lambda lake: f"{CATALOG}.public.bench",
        lambda lake: f"{CATALOG}.hand.bench",
        "USING iceberg TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')",
    ),
)


def measure_merges(rows: int, changes: int, repeat: int, formats: list[str], console: Console) -> list[Merges]:
    # Capture is stopped for minutes while others are measured: the server must not give it up meanwhile.
    settings = {"max_wal_size": "16GB", "wal_sender_timeout": "0"}
    found = []
    for format_ in (one for one in FORMATS if one.name in formats):
        with (
            tempfile.TemporaryDirectory(prefix="walrelay-bench-") as name,
            EmbeddedPostgres(settings=settings) as server,
        ):
            directory = Path(name)
            with console.status(f"{format_.name}: making {rows:,} rows"):
                make_bench_table(server.url, rows)
            spark = spark_session(settings=settings_for(lake_needs(directory), {}))
            found.append(_one_format(format_, server.url, directory, spark, rows, changes, repeat, console))
            stop_session()
    return found


def _one_format(
    format_: Format,
    url: str,
    directory: Path,
    spark: SparkSession,
    rows: int,
    changes: int,
    repeat: int,
    console: Console,
) -> Merges:
    merges, lake = Merges(format_.name), directory / "lake"
    source = ContractSource(url, directory, "CREATE PUBLICATION contract FOR TABLE bench", ("bench",))
    with (
        _opened(format_.destination(lake), spark) as destination,
        running(
            url,
            "bench",
            into=lambda at: format_.destination(at / "lake"),
            settings=copy_settings(every=0.2),
            spark=spark,
        ) as (pipeline, own),
    ):
        with console.status(f"{format_.name}: copying"):
            source.copy(destination, "bench")
            hand = format_.session(spark, lake)
            hand.sql(f"CREATE TABLE {format_.theirs(lake)} {format_.made} AS SELECT * FROM {format_.ours(lake)}")
        capture, position = status_of(pipeline).capture, source.batch().to
        assert capture is not None
        for number in range(repeat + 1):
            with console.status(f"{format_.name}, round {number}: making changes"):
                os.kill(capture.pid, signal.SIGSTOP)
                before = status_of(pipeline).changes
                first = 10 * rows + number * changes
                source.do(CHANGES.format(batches=changes // 1000, rows=rows, first=first), "CHECKPOINT")
                batch = source.batch(position)
                collapsed = directory / f"changes-{number}"
                _collapse(batch.tables()[0], format_.session(spark, lake), collapsed)
            with console.status(f"{format_.name}, round {number}: from the log"):
                from_log = _timed(lambda batch=batch: destination.write_events(batch))  # type: ignore[misc]
            with console.status(f"{format_.name}, round {number}: by hand"):
                by_hand = _timed(lambda at=collapsed: _by_hand(hand, format_.theirs(lake), at))  # type: ignore[misc]
            with console.status(f"{format_.name}, round {number}: from the slot"):
                begun = time.monotonic()
                os.kill(capture.pid, signal.SIGCONT)
                wait_until(pipeline, lambda end=batch.to: has_applied(pipeline, end))  # type: ignore[misc]
                from_slot = time.monotonic() - begun
            merges.changes = status_of(pipeline).changes - before
            position = batch.to
            _compare(format_, spark, lake, own / "lake")
            console.print(
                f"[dim]{format_.name} {number}: log {from_log:.1f}, hand {by_hand:.1f}, slot {from_slot:.1f} s[/]"
            )
            if number:
                merges.from_log.append(from_log)
                merges.by_hand.append(by_hand)
                merges.from_slot.append(from_slot)
    source.close()
    return merges


@contextmanager
def _opened(destination: Destination, spark: SparkSession) -> Iterator[Destination]:
    destination.startup(DestinationContext("by_log", copy_settings(), spark=lambda: spark))
    try:
        yield destination
    finally:
        destination.shutdown()


def _collapse(part: TableChanges, session: SparkSession, directory: Path) -> None:
    """What somebody would write who knows that no key moves."""
    session.conf.set("spark.sql.session.timeZone", "UTC")
    part.dataframe(session).createOrReplaceTempView("changes")
    session.sql(
        """
        SELECT id, op = 'delete' AS gone, row.* EXCEPT (id) FROM (
            SELECT *, coalesce(row.id, old.id) AS id,
                row_number() OVER (PARTITION BY coalesce(row.id, old.id) ORDER BY commit_lsn DESC, ordinal DESC) AS nth
            FROM changes)
        WHERE nth = 1
        """
    ).write.parquet(str(directory))


def _by_hand(session: SparkSession, table: str, changes: Path) -> None:
    schema = session.read.parquet(str(changes)).schema
    columns = [name for name in schema.names if name != "gone"]

    def merge(frame: DataFrame, _: int) -> None:
        frame.createOrReplaceTempView("comes")
        frame.sparkSession.sql(
            MERGE.format(
                table=table,
                view="comes",
                updates=", ".join(f"t.{name} = s.{name}" for name in columns),
                columns=", ".join(columns),
                values=", ".join(f"s.{name}" for name in columns),
            )
        )

    reading = session.readStream.schema(schema).parquet(str(changes))
    query = reading.writeStream.foreachBatch(merge).option("checkpointLocation", f"{changes}-seen")
    query.trigger(availableNow=True).start().awaitTermination()


def _timed(work: Callable[[], Any]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def _compare(format_: Format, spark: SparkSession, lake: Path, own: Path) -> None:
    sums = [
        format_.session(spark, at).sql(SUM.format(table=table)).collect()
        for at, table in (
            (lake, format_.ours(lake)),
            (lake, format_.theirs(lake)),
            (own, format_.ours(own)),
        )
    ]
    assert sums[0] == sums[1] == sums[2], sums


def merges_as_json(found: list[Merges]) -> dict[str, Any]:
    return {
        "machine": describe_machine(),
        "merges": [
            {**asdict(one), "log_ratio": one.ratio(one.from_log), "slot_ratio": one.ratio(one.from_slot)}
            for one in found
        ],
    }


def show_merges(found: list[Merges], console: Console) -> None:
    table = RichTable(title="Changes into a lake, against a MERGE by hand of what they come to")
    for heading in ("format", "changes", "by hand s", "from the log s", "ratio", "from the slot s", "ratio"):
        table.add_column(heading, justify="left" if heading == "format" else "right")
    for one in found:
        table.add_row(
            one.format,
            f"{one.changes:,}",
            f"{statistics.median(one.by_hand):.1f}",
            f"{statistics.median(one.from_log):.1f}",
            f"{one.ratio(one.from_log):.2f} (goal ≥ {GOAL_LOG})",
            f"{statistics.median(one.from_slot):.1f}",
            f"{one.ratio(one.from_slot):.2f} (goal ≥ {GOAL_SLOT})",
        )
    console.print(table)
