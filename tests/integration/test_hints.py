"""Every hint about the source is followed as it is written, and then it works (SEMANTICS 26)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.hint_kit import Told, execute, refused, walrelay
from tests.server_kit import wait_for
from walrelay.capture.capture import Capture
from walrelay.config.settings import capture_settings
from walrelay.destinations.duckdb.dialect import DUCKDB
from walrelay.log.reader import LogReader
from walrelay.model.names import TableName
from walrelay.model.phases import Init
from walrelay.model.ranges import CtidRange
from walrelay.postgres.catalog import published_tables, read_schema
from walrelay.postgres.connection import connect
from walrelay.postgres.replication import ReplicationConnection
from walrelay.postgres.rights import naming_grants
from walrelay.postgres.slot import Slot, create_slot, find_slot, in_use
from walrelay.postgres.snapshot import exported_snapshot
from walrelay.postgres.source import PostgresSource
from walrelay.spark.copy_task import CopyTask, land_range
from walrelay.spark.table_source import ReadOptions, TableReader
from walrelay.stores.postgres import PostgresStore
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

PASSWORD = "s3cr3t-passw0rd"


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """One that may be stopped, and that writes no logical WAL at first."""
    with EmbeddedPostgres(settings={"wal_level": "replica", "shared_buffers": "32MB"}) as server:
        yield server


@pytest.fixture
def shop(database: str) -> str:
    execute(
        database,
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id int PRIMARY KEY, note text)",
        "INSERT INTO sales.orders SELECT g, 'o' || g FROM generate_series(1, 50) AS g",
        "CREATE PUBLICATION p FOR TABLE sales.orders",
    )
    return database


@pytest.fixture
def name(database: str) -> Iterator[str]:
    """For slots and roles, which are the whole server's; what is called so is gone afterwards."""
    made = f"hint_{database.rpartition('_')[2]}"
    yield made
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE '{}%'"
    execute(database, drop.format(made))
    if execute(database, f"SELECT FROM pg_roles WHERE rolname = '{made}'"):
        execute(database, f"DROP OWNED BY {made}", f"DROP ROLE {made}")


@pytest.fixture
def reader(shop: str, name: str) -> str:
    """The shop as a role that may only log in."""
    execute(shop, f"CREATE ROLE {name} LOGIN")
    return shop.replace("postgres@", f"{name}@")


def read(url: str, table: str = "sales.orders") -> int:
    """How many rows `spark.read.format("walrelay")` finds."""
    reader = TableReader(ReadOptions.of({"url": url, "table": table}))
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def told_of(text: str) -> Told:
    told = Told()
    told.hint = text
    return told


def copy(url: str) -> int:
    """How many rows of the published columns a copy's tasks read."""
    name = TableName("sales", "orders")
    source = PostgresSource(url, publication="p")
    with naming_grants(source, name), exported_snapshot(source, application="copy", table=name) as snapshot:
        (table,) = published_tables(snapshot.connection, "p")
        schema = read_schema(snapshot.connection, table)
        task = CopyTask(source, schema, snapshot.name, DUCKDB, "null", 65536, 2**28, "copy task", None)
        return sum(land_range(task, CtidRange(leaf)).rows for leaf in schema.leaves)


def capture(url: str, log: Path, slot: str, publication: str = "p") -> LogReader:
    """What `walrelay capture --until caught-up` does in its process."""
    source = PostgresSource(url, publication=publication)
    Capture(source, slot=slot, log=log, settings=capture_settings(retry_delay=0.05)).run("caught-up")
    return LogReader(log)


# ------------------------------------------------------------------------------------------------------- connections


def test_a_server_without_logical_wal_then_one_that_is_down(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_server.url
    execute(url, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with refused("source.wal_level") as told:
        capture(url, tmp_path / "log", "wal_level")
    execute(url, told.statement())
    assert "restart the server" in told.hint
    own_server.stop()
    source = PostgresSource(url)
    with refused("source.unreachable") as told:
        connect(source)
    assert "that the server runs" in told.hint
    with refused("store.unreachable") as told:
        PostgresStore(url, "shop")
    assert "that the store's server runs" in told.hint
    own_server.start()
    connect(source).close()
    PostgresStore(url, "shop").close()
    capture(url, tmp_path / "log", "wal_level")


def test_a_wrong_password(own_server: EmbeddedPostgres) -> None:
    own_server.create_database("secrets")
    url = own_server.require_password("hint_reader", PASSWORD).rpartition("/")[0] + "/secrets"
    wrong = url.replace(PASSWORD, "wr0ng")
    with refused("source.authentication") as told:
        connect(PostgresSource(wrong))
    assert "Check user and password (in the URL" in told.hint
    connect(PostgresSource(url)).close()
    with refused("store.authentication") as told:
        PostgresStore(wrong, "shop")
    assert "Check user and password of the store's URL" in told.hint
    execute(own_server.url, "GRANT CREATE ON DATABASE secrets TO hint_reader")
    PostgresStore(url, "hints").close()


def test_a_store_that_the_role_may_not_make_and_one_that_it_may_not_use(shop: str, reader: str) -> None:
    with refused("store.not_writable") as told:
        PostgresStore(reader, "hints")
    to_make, *_ = told.statements()
    execute(shop, to_make)
    PostgresStore(reader, "hints").close()
    execute(shop, "DROP SCHEMA walrelay CASCADE")
    PostgresStore(shop, "hints").close()
    with refused("store.not_writable") as told:
        PostgresStore(reader, "more")
    _, *to_use = told.statements()
    execute(shop, *to_use)
    with closing(PostgresStore(reader, "more")) as store:
        store.update_table_replication_state(1, Init())


def test_a_database_that_is_not_there(shop: str, postgres18: EmbeddedPostgres) -> None:
    server, _, right = shop.rpartition("/")
    with refused("source.no_such_database") as told:
        connect(PostgresSource(f"{server}/nope"))
    (command,) = told.commands()
    program, *options = command.split()
    listed = subprocess.run(
        [postgres18.bin_dir / program, *options, postgres18.url], capture_output=True, text=True, check=True
    ).stdout
    assert right in listed
    connect(PostgresSource(shop)).close()
    with refused("store.not_found") as told:
        PostgresStore(f"{server}/nope", "shop")
    assert "the database name at the end of its URL" in told.hint
    PostgresStore(shop, "shop").close()


# ------------------------------------------------------------------------------------------------------- publications


def test_a_publication_that_is_not_there_then_an_empty_one(shop: str, name: str, tmp_path: Path) -> None:
    for publication, statements in (("Other one", []), ("empty", ["CREATE PUBLICATION empty"])):
        execute(shop, *statements)
        with refused("source.empty_publication" if statements else "source.no_such_publication") as told:
            capture(shop, tmp_path / publication, f"{name}_{len(publication)}", publication)
        execute(shop, told.statement().replace("…", "sales.orders"))
        capture(shop, tmp_path / publication, f"{name}_{len(publication)}", publication)


def test_a_publication_of_all_tables_where_there_is_none(database: str, name: str, tmp_path: Path) -> None:
    execute(database, "CREATE PUBLICATION p FOR ALL TABLES")
    with refused("source.empty_publication") as told:
        capture(database, tmp_path / "log", name)
    assert "where it is FOR ALL TABLES, or for a schema, create a table" in told.hint
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)")
    capture(database, tmp_path / "log", name)


def test_a_table_that_is_not_there(shop: str) -> None:
    with refused("source.no_such_table") as told:
        read(shop, "orders")
    assert "schema.table" in told.hint
    assert read(shop, "sales.orders") == 50


# ------------------------------------------------------------------------------------------------------------- rights


def test_a_role_that_may_not_read_is_told_each_grant(shop: str, reader: str) -> None:
    """What is missing is told at once: the schema's right as well as the table's."""
    with refused("source.missing_rights") as told:
        read(reader)
    assert len(told.statements()) == 2
    execute(shop, *told.statements())
    assert read(reader) == 50


def test_a_role_that_may_read_the_root_but_not_a_partition(shop: str, reader: str, name: str) -> None:
    execute(
        shop,
        'CREATE TABLE "Events" (id int PRIMARY KEY) PARTITION BY RANGE (id)',
        'CREATE TABLE sales."first ones" PARTITION OF "Events" FOR VALUES FROM (0) TO (10)',
        'INSERT INTO "Events" VALUES (1)',
        f'GRANT SELECT ON "Events" TO {name}',
        f"GRANT USAGE ON SCHEMA sales TO {name}",
    )
    with refused("source.missing_rights") as told:
        read(reader, 'public."Events"')
    execute(shop, told.statement())
    assert read(reader, 'public."Events"') == 1


def test_a_role_that_may_read_some_columns_is_told_which_are_missing(shop: str, reader: str, name: str) -> None:
    """Nobody should have to grant the whole table: preflight knows what the publication wants of it."""
    execute(
        shop,
        "ALTER TABLE sales.orders ADD secret text",
        "ALTER PUBLICATION p SET TABLE sales.orders (id, note)",
        f"GRANT USAGE ON SCHEMA sales TO {name}",
        f"GRANT SELECT (id) ON sales.orders TO {name}",
    )
    with refused("source.missing_rights") as told:
        copy(reader)
    (command,) = told.commands()
    words = [*command.split()[1:], reader, "--publication", "p", "--mode", "copy"]
    with pytest.raises(AssertionError) as caught:
        walrelay(*words)
    printed = told_of(str(caught.value)).statements()
    assert printed and "secret" not in str(printed)
    execute(shop, *printed)
    walrelay(*words)
    assert copy(reader) == 50


def test_a_role_that_may_not_replicate(shop: str, reader: str, name: str, tmp_path: Path) -> None:
    with refused("source.missing_rights") as told:
        capture(reader, tmp_path / "log", name)
    execute(shop, told.statement())
    capture(reader, tmp_path / "log", name)


def test_row_security(shop: str, reader: str, name: str) -> None:
    execute(
        shop,
        "ALTER TABLE sales.orders ENABLE ROW LEVEL SECURITY",
        f"GRANT USAGE ON SCHEMA sales TO {name}",
        f"GRANT SELECT ON sales.orders TO {name}",
    )
    with refused("source.row_security") as told:
        read(reader)
    execute(shop, told.statement())
    assert read(reader) == 50


def test_a_statement_that_the_server_refuses(shop: str, reader: str, name: str) -> None:
    execute(
        shop,
        f"GRANT USAGE ON SCHEMA sales TO {name}",
        f"GRANT SELECT ON sales.orders TO {name}",
        f"ALTER ROLE {name} SET lock_timeout = '10ms'",
    )
    with psycopg.connect(shop) as other:
        other.execute("LOCK TABLE sales.orders IN ACCESS EXCLUSIVE MODE")
        with refused("source.query_failed") as told:
            read(reader)
        assert "lock timeout" in told.message and "Remove the cause there, then run again" in told.hint
    assert read(reader) == 50


def test_a_foreign_table_among_the_partitions(shop: str) -> None:
    execute(
        shop,
        "CREATE FOREIGN DATA WRAPPER nothing",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing",
        "CREATE TABLE events (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10)",
        "CREATE FOREIGN TABLE events_2 PARTITION OF events FOR VALUES FROM (10) TO (20) SERVER elsewhere",
        "INSERT INTO events VALUES (1)",
    )
    with refused("source.unsupported") as told:
        read(shop, "public.events")
    assert "Detach it" in told.hint and "public.events_2" in told.message
    # What was refused must not stand in the way of its remedy: the snapshot's holder had locked the table.
    execute(shop, "SET lock_timeout = '60s'", "ALTER TABLE events DETACH PARTITION events_2")
    assert read(shop, "public.events") == 1


# -------------------------------------------------------------------------------------------------------------- slots


def test_a_slot_of_that_name(shop: str, name: str) -> None:
    with connect(PostgresSource(shop)) as connection:
        create_slot(connection, name)
        with refused("source.slot_exists") as told:
            create_slot(connection, name)
        assert "another name" in told.hint
        create_slot(connection, f"{name}_2")


def test_a_slot_that_is_of_no_use(shop: str, name: str, tmp_path: Path) -> None:
    execute(shop, f"SELECT pg_create_physical_replication_slot('{name}')")
    with refused("source.slot_unusable") as told:
        capture(shop, tmp_path / "log", name)
    assert "Choose another name for the slot" in told.hint
    execute(shop, f"SELECT pg_create_logical_replication_slot('{name}_2', 'pgoutput', false, true)")
    with refused("source.slot_unusable") as told:
        capture(shop, tmp_path / "log", f"{name}_2")
    assert "Let walrelay make its own slot" in told.hint
    capture(shop, tmp_path / "log", f"{name}_3")


def _reader(slot: Slot | None) -> int | None:
    return None if slot is None else slot.active_pid


def test_a_slot_that_another_process_reads(shop: str, name: str, tmp_path: Path) -> None:
    source = PostgresSource(shop, publication="p")
    head = capture(shop, tmp_path / "log", name).head()
    with ReplicationConnection(source) as other, connect(source) as connection:
        other.start(name, "p", head)
        wait_for(lambda: _reader(find_slot(connection, name)) is not None, "the other one reads")
        slot = find_slot(connection, name)
        assert slot is not None
        with refused("source.slot_in_use") as told:
            raise in_use(slot)  # as capture does, which then waits for as long as it takes
        execute(shop, told.statement())
        capture(shop, tmp_path / "log", name)


def test_changes_that_are_lost_to_a_capture_alone(shop: str, name: str, tmp_path: Path) -> None:
    """`walrelay capture` copies nothing: its part of the hint is another slot and another log."""
    capture(shop, tmp_path / "log", name)
    execute(
        shop,
        "INSERT INTO sales.orders VALUES (1001)",
        f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())",
    )
    with refused("source.slot_ahead") as told:
        capture(shop, tmp_path / "log", name)
    execute(shop, f"SELECT pg_drop_replication_slot('{name}')")
    with refused("source.slot_missing") as gone:
        capture(shop, tmp_path / "log", name)
    for hint in (told.hint, gone.hint):
        assert "`walrelay capture`, which copies nothing, begins with another --slot and another --log" in hint
    capture(shop, tmp_path / "log_2", f"{name}_2")
    with refused("source.other_server") as told:
        capture(shop, tmp_path / "log_2", f"{name}_3")
    assert f"Use --slot {name}_2, or another --log directory" in told.hint
    execute(shop, "INSERT INTO sales.orders VALUES (1002)")
    assert len(list(capture(shop, tmp_path / "log_2", f"{name}_2").changes())) == 1
    capture(shop, tmp_path / "log_3", f"{name}_3")
