"""SQL stores come into being once, refuse what is newer, and survive a crash at any statement with the old state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, MetaData, create_engine, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn

from walrelay.model.lsn import Lsn
from walrelay.model.phases import DataSync, Errored, FinishedCopy, Init, NoRetry, Ready
from walrelay.model.progress import Apply, TableSync
from walrelay.stores.failures import StoreNewerSchemaError
from walrelay.stores.postgres import PostgresStore
from walrelay.stores.records import DestinationTableMetadata
from walrelay.stores.sql.migrations import MIGRATIONS
from walrelay.stores.sql.store import SqlStore
from walrelay.stores.sql.tables import SCHEMA, metadata
from walrelay.stores.sqlite import SqliteStore
from walrelay.testing.store_contract import LINEAGE, sample_schema

OPEN = """
import sys
from walrelay.stores.postgres import PostgresStore
from walrelay.stores.sqlite import SqliteStore
where = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
store = (PostgresStore if "://" in where else SqliteStore)(where, sys.argv[2])
"""

# Gives the others time to come in between, once something was made.
LINGER = """
import time
from sqlalchemy import Engine, event
lingered = False
def linger(connection, cursor, statement, *rest):
    global lingered
    if not lingered and statement.split()[0] == "CREATE":
        lingered = True
        time.sleep(1)
event.listen(Engine, "after_cursor_execute", linger)
"""

# Kills itself right after the N-th statement that changes something has been executed.
DIE = """
import os, signal
from sqlalchemy import Engine, event
left = int(sys.argv[3])
def count(connection, cursor, statement, *rest):
    global left
    if statement.split()[0] in ("INSERT", "DELETE", "UPDATE", "CREATE"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
"""

# What is written, and after which of its statements the process dies: between two of them, where there are two.
WRITES = {
    "bulk": ("store.update_table_replication_states({1: Ready(), 2: Ready()})", 3),
    "rollback": ("store.rollback_table_replication_state(1)", 1),
    "progress": ("store.update_durable_progress(Apply(), LINEAGE, Lsn(500))", 1),
    "metadata": ("store.store_destination_table_metadata(1, DestinationTableMetadata('new', Lsn(9), (True,)))", 1),
    "mapping": ("store.store_table_mapping(1, 'new')", 1),
    "schema": ("store.store_table_schema(sample_schema(1, 'new'), Lsn(10))", 1),
    "prune": ("store.prune_table_schemas({1: Lsn(99)})", 1),
    "clear": ("store.clear_table_copy_state(1)", 2),
    "delete": ("store.delete_table_pipeline_state(1)", 3),
}
NAMES = """
from walrelay.model.lsn import Lsn
from walrelay.model.phases import Ready
from walrelay.model.progress import Apply
from walrelay.stores.records import DestinationTableMetadata
from walrelay.testing.store_contract import LINEAGE, sample_schema
"""


class Place:
    """A database for stores, seen from outside."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.schema = SCHEMA if "://" in where else None

    def open(self, pipeline_id: str = "orders") -> SqlStore:
        return (PostgresStore if self.schema else SqliteStore)(self.where, pipeline_id)

    def engine(self) -> Engine:
        scheme = self.where.replace("postgresql://", "postgresql+psycopg://") if self.schema else None
        return create_engine(scheme or f"sqlite:///{self.where}")

    def execute(self, statement: str) -> None:
        engine = self.engine()
        with engine.begin() as connection:
            connection.execute(text(statement.replace("SCHEMA.", f"{self.schema}." if self.schema else "")))
        engine.dispose()

    def migrations(self) -> list[int]:
        engine = self.engine()
        table = f"{self.schema}.store_migrations" if self.schema else "store_migrations"
        with engine.connect() as connection:
            found = connection.execute(text("SELECT number FROM " + table)).scalars().all()
        engine.dispose()
        return sorted(found)

    def tables(self) -> list[str]:
        engine = self.engine()
        found = inspect(engine).get_table_names(schema=self.schema)
        engine.dispose()
        return found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(str(tmp_path / "state.db") if request.param == "sqlite" else request.getfixturevalue("database"))


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *arguments]
        pipe = subprocess.PIPE
        children.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_processes_that_open_a_new_store_at_once_make_it_once(
    place: Place, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    children = [spawn(LINGER + OPEN, place.where, pipeline) for pipeline in ("orders", "orders", "shop")]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        _, said = child.communicate(timeout=60)
        assert child.returncode == 0, said
    assert place.migrations() == list(range(1, len(MIGRATIONS) + 1))
    with closing(place.open()) as store:
        assert store.get_table_replication_states() == {}


def test_the_migrations_make_the_tables_that_the_code_uses(place: Place) -> None:
    place.open().close()
    engine = place.engine()
    found = MetaData(schema=place.schema)
    found.reflect(engine)
    inspector = inspect(engine)

    def shape(column: ReflectedColumn) -> tuple[str, str, bool]:
        return column["name"], str(column["type"]), column["nullable"]

    for table in metadata.tables.values():
        columns = [shape(column) for column in inspector.get_columns(table.name, schema=place.schema)]
        assert columns == [(column.name, str(column.type), bool(column.nullable)) for column in table.columns]
        key = inspector.get_pk_constraint(table.name, schema=place.schema)["constrained_columns"]
        assert key == [column.name for column in table.primary_key.columns]
    assert sorted(table.name for table in found.tables.values()) == sorted(
        table.name for table in metadata.tables.values()
    )
    engine.dispose()


def test_a_store_of_a_newer_version_is_refused_by_name_and_left_alone(place: Place) -> None:
    with closing(place.open()) as store:
        store.update_table_replication_state(1, Ready())
    place.execute("INSERT INTO SCHEMA.store_migrations VALUES (99, 'from the future', 'later')")
    with pytest.raises(StoreNewerSchemaError, match="schema version 99; this walrelay knows versions up to"):
        place.open()
    assert place.migrations()[-1] == 99
    place.execute("DELETE FROM SCHEMA.store_migrations WHERE number = 99")
    with closing(place.open()) as store:
        assert store.get_table_replication_state(1) == Ready()


@pytest.mark.parametrize("statement", [1, 8])
def test_a_crash_while_migrating_leaves_nothing_half_made(
    place: Place, spawn: Callable[..., subprocess.Popen[str]], statement: int
) -> None:
    code = OPEN.replace("store =", f"{DIE}\nevent.listen(Engine, 'after_cursor_execute', count)\nstore =")
    child = spawn(code, place.where, "orders", str(statement))
    _, said = child.communicate("\n", timeout=60)
    assert child.returncode == -9, said
    assert place.tables() == []
    with closing(place.open()) as store:
        assert store.load_table_replication_states() == 0
    assert place.migrations() == list(range(1, len(MIGRATIONS) + 1))


@pytest.mark.parametrize("write", WRITES)
def test_a_crash_in_the_middle_of_a_write_leaves_the_old_state(
    place: Place, spawn: Callable[..., subprocess.Popen[str]], write: str
) -> None:
    before = _filled(place)
    act, statement = WRITES[write]
    code = f"{NAMES}{OPEN}{DIE}\nevent.listen(Engine, 'after_cursor_execute', count)\n{act}"
    child = spawn(code, place.where, "orders", str(statement))
    _, said = child.communicate("\n", timeout=60)
    assert child.returncode == -9, said
    assert _seen(place) == before
    with closing(place.open()) as store:  # and it is not in the way
        assert store.rollback_table_replication_state(1) == FinishedCopy()


def _filled(place: Place) -> object:
    with closing(place.open()) as store:
        for table in (1, 2):
            for phase in (Init(), DataSync(), FinishedCopy(), Errored("broken", None, NoRetry())):
                store.update_table_replication_state(table, phase)
            store.store_table_schema(sample_schema(table), Lsn(10))
            store.store_table_schema(sample_schema(table), Lsn(20))
            store.store_table_mapping(table, f"t{table}")
            store.store_destination_table_metadata(table, DestinationTableMetadata("old", Lsn(8), (False,)).applied())
            store.update_durable_progress(TableSync(table), LINEAGE, Lsn(7))
        store.update_durable_progress(Apply(), LINEAGE, Lsn(100))
    return _seen(place)


def _seen(place: Place) -> object:
    """Every row that the place holds."""
    engine = place.engine()
    found = {}
    with engine.connect() as connection:
        for table in metadata.tables.values():
            copy = table.to_metadata(MetaData(), schema=place.schema)
            found[table.name] = sorted(map(repr, connection.execute(copy.select()).all()))
    engine.dispose()
    return found
