"""Hints of a pipeline that copies are followed as they are written, and then it works (SEMANTICS 26)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.hint_kit import Told, execute, refused, walrelay
from tests.spark.live_kit import Live
from walrelay.config.settings import copy_settings
from walrelay.control.agreement import compare
from walrelay.errors import CopyFailedError
from walrelay.postgres.source import PostgresSource
from walrelay.stores.memory import MemoryStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STRICT = copy_settings(retry_delay=0.05, retries=1, special_values="error")


@pytest.fixture
def reader(live: Live) -> Iterator[str]:
    """The role by which the pipeline asks; it may replicate, and nothing else."""
    role = f"reader_{live.slot}"
    execute(live.url, f"CREATE ROLE {role} LOGIN REPLICATION")
    live.source = PostgresSource(live.url.replace("postgres@", f"{role}@"), publication="p")
    yield role
    execute(live.url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def failures(live: Live) -> dict[str, Told]:
    """What a run says of each table that fails."""
    with pytest.raises(CopyFailedError) as caught:
        live.pipeline(settings=STRICT).run(until="caught-up")
    found: dict[str, Told] = {}
    for report in caught.value.summary.failed:
        with refused(EXPECTED[report.name.name]) as found[report.name.name]:
            raise report.error
    with refused("pipeline.copy_failed") as told:
        raise caught.value
    assert told.hint in {one.hint for one in found.values()}
    return found


EXPECTED = {
    "closed": "source.missing_rights",
    "hidden": "source.row_security",
    "nan": "value.special",
    "nan_key": "value.special_key",
    "taken": "destination.name_clash",
}


def test_tables_that_fail_are_brought_back_by_their_hints(live: Live, reader: str, tmp_path: Path) -> None:
    execute(
        live.url,
        "CREATE TABLE closed (id int PRIMARY KEY)",
        "CREATE TABLE hidden (id int PRIMARY KEY)",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE nan (id int PRIMARY KEY, n numeric(8, 2))",
        "INSERT INTO nan VALUES (1, 'NaN')",
        "CREATE TABLE nan_key (id numeric(8, 2) PRIMARY KEY)",
        "INSERT INTO nan_key VALUES ('NaN')",
        "CREATE TABLE taken (id int PRIMARY KEY)",
        f"GRANT SELECT ON hidden, nan, nan_key, taken TO {reader}",
        "CREATE PUBLICATION p FOR TABLE closed, hidden, nan, nan_key, taken",
    )
    with duckdb.connect(str(live.file)) as file:
        file.execute("CREATE SCHEMA public; CREATE TABLE public.taken (mine int)")
    told = failures(live)
    assert set(told) == set(EXPECTED)
    execute(live.url, told["closed"].statement(), told["hidden"].statement())
    assert "correct the value at the source" in told["nan"].hint
    execute(live.url, "UPDATE nan SET n = 1")
    assert "change the key's values at the source" in told["nan_key"].hint
    execute(live.url, "UPDATE nan_key SET id = 1")
    assert "Drop or rename it" in told["taken"].hint
    with duckdb.connect(str(live.file)) as file:
        file.execute("ALTER TABLE public.taken RENAME TO mine")
    live.pipeline(settings=STRICT).run(until="caught-up")
    assert all(one.agrees for one in compare(live.source, live.file))

    walrelay("pause", "--state", tmp_path)
    with refused("pipeline.paused") as paused:
        live.pipeline().run(until="caught-up")
    (command,) = paused.commands()
    walrelay(*(str(tmp_path) if word == "DIR" else word for word in command.split()[1:]))
    live.pipeline().run(until="caught-up")

    with refused("pipeline.kept_current") as kept:
        live.pipeline(mode="copy").run()
    assert "copy with a state, or an id, of its own" in kept.hint
    with refused("destination.other_pipeline") as other:
        live.pipeline(mode="copy", store=MemoryStore()).run()
    assert "choose another file" in other.hint
    live.file = tmp_path / "another.duckdb"
    live.pipeline(mode="copy", store=MemoryStore()).run()


START = """
import sys
from walrelay.errors import WalrelayError
from walrelay.spark.session import spark_session
try:
    session = spark_session(settings={"spark.driver.memory": sys.argv[1]})
except WalrelayError as error:
    print(error.to_text())
else:
    print(session.range(3).count())
    session.stop()
"""


def start(memory: str) -> str:
    """A Spark of its own: the tests' session is there already."""
    done = subprocess.run([sys.executable, "-c", START, memory], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_setting_with_which_spark_does_not_start() -> None:
    with refused("spark.no_start") as told:
        raise RuntimeError(start("1zz"))
    assert "Correct the --spark setting" in told.hint and "-Xmx1zz" in told.hint
    assert start("512m") == "3\n"
