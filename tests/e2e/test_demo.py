"""The demo as a user runs it: it ends well, says what it found, and leaves nothing behind, even when interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil
import pytest

from tests.repetitions import some

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

TABLES = (
    "curiosities", "customers", "events", "gift_cards", "order_items", "orders", "payments", "products", "searches",
)  # fmt: skip
LONGEST_WAIT = 240


@dataclass(frozen=True)
class Workplace:
    """A directory to run in, and one for all temporary files, to see what is left in it."""

    here: Path
    temporary: Path

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the demo in a process group of its own, as a shell does."""
        environment = {**os.environ, "TMPDIR": str(self.temporary), "SPARK_LOCAL_DIRS": str(self.temporary)}
        with (self.here / "stdout").open("wb") as stdout, (self.here / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-c", "from walrelay.cli import main; main()", "demo", *arguments],
                cwd=self.here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def said(self, stream: str) -> str:
        return (self.here / stream).read_text()

    def wait_until(self, pattern: str, stream: str, demo: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + LONGEST_WAIT
        while not re.search(pattern, self.said(stream)):
            assert demo.poll() is None, f"the demo ended before it said {pattern}: {self.said('stderr')}"
            assert time.monotonic() < deadline, f"the demo never said {pattern}"
            time.sleep(0.02)

    def left_behind(self) -> list[str]:
        """Files and directories, once there has been time to remove them: the JVM ends a little after us."""
        deadline = time.monotonic() + 20
        while (found := sorted(path.name for path in self.temporary.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found


@pytest.fixture
def workplace() -> Iterator[Workplace]:
    # Not pytest's directory: if we are root, the server runs as another account, which cannot enter it.
    with tempfile.TemporaryDirectory(prefix="demo-test-") as name:
        root = Path(name)
        root.chmod(0o755)
        made = Workplace(root / "here", root / "temporary")
        made.here.mkdir()
        made.temporary.mkdir(mode=0o755)
        yield made


def test_demo_follows_the_shop_through_a_kill_and_finds_source_and_copy_agreeing(workplace: Workplace) -> None:
    demo = workplace.start("--rows", "3000")
    assert demo.wait(LONGEST_WAIT) == 0, workplace.said("stderr")
    stdout, stderr = workplace.said("stdout"), workplace.said("stderr")

    story = (
        r"✔ the shop is filled",
        r"\$ walrelay replicate postgresql://\S+ duckdb:///walrelay-demo.duckdb",
        r"✔ 9 tables copied",
        r"▸ writing 200 transactions/s",
        r"✘ kill -9 \d+: the pipeline is dead",
        r"\$ walrelay replicate",
        r"✔ it went on where it was",
        r"▸ the writer stopped after [\d,]{5,} transactions: [\d,]+ rows inserted, [\d,]+ updated, [\d,]+ deleted",
        r"✔ caught up",
        r"Source and copy, each counted and hashed",
    )
    assert re.search(".*".join(story), stdout, re.DOTALL), stdout
    for table in TABLES:
        assert re.search(rf"✔ +shop\.{table} .*(columns hashed|no rows on either side)", stdout), stdout
        assert re.search(rf"^shop\.{table}: [\d,]+ rows in ", stderr, re.MULTILINE), stderr
    assert stdout.count("✘") == 1  # the kill
    # What the second run did, it did without copying anything again.
    assert len(re.findall(r"^shop\.\w+: [\d,]+ rows in ", stderr, re.MULTILINE)) == len(TABLES)
    assert re.search(r"^[\d,]{5,} changes in ", stderr, re.MULTILINE)
    # Plain text, and nothing of the JVM's or of an interpreter's end.
    assert "\x1b" not in stdout + stderr
    assert not re.search("WARN|Traceback|leaked", stdout + stderr), stderr
    assert str(workplace.here) not in stdout + stderr

    with duckdb.connect(str(workplace.here / "walrelay-demo.duckdb"), read_only=True) as copy:
        added = copy.execute("SELECT count(*) FROM shop.searches WHERE words LIKE 'gift #%'").fetchall()[0][0]
        oldest = copy.execute("SELECT min(id) FROM shop.orders").fetchall()[0][0]
    assert added > 1000
    assert oldest > 1
    assert workplace.left_behind() == []
    assert sorted(path.name for path in workplace.here.iterdir()) == ["stderr", "stdout", "walrelay-demo.duckdb"]


MOMENTS = {
    "filling": ("stdout", "Postgres 18 is up"),
    "starting-the-pipeline": ("stdout", "walrelay replicate"),
    "copying": ("stderr", r"shop\.\w+: [\d,]+ rows"),
    "writing": ("stdout", "writing 200"),
    "starting-again": ("stdout", "The same command again(?s:.)*state"),
}
IN_SHORT = ["filling", "starting-the-pipeline"]
"""Those that come soon; `make kills` also waits for the others."""


@pytest.mark.parametrize("at", some(IN_SHORT, list(MOMENTS)))
def test_interrupted_demo_leaves_no_process_and_no_file(workplace: Workplace, at: str) -> None:
    stream, moment = MOMENTS[at]
    demo = workplace.start("--rows", "20000", "--output", "mine.duckdb")
    workplace.wait_until(moment, stream, demo)
    started = psutil.Process(demo.pid).children(recursive=True)
    assert any("postgres" in process.name() for process in started)

    os.killpg(demo.pid, signal.SIGINT)  # a terminal sends it to all of the group

    assert demo.wait(LONGEST_WAIT) == 130
    assert "stopped" in workplace.said("stderr")
    assert "Traceback" not in workplace.said("stderr")
    _, alive = psutil.wait_procs(started, timeout=20)
    assert alive == []
    assert workplace.left_behind() == []
    assert sorted(path.name for path in workplace.here.iterdir()) == ["stderr", "stdout"]


def test_killed_demo_takes_its_processes_along(workplace: Workplace) -> None:
    demo = workplace.start("--rows", "3000", "--output", "mine.duckdb")
    workplace.wait_until("writing 200", "stdout", demo)
    started = psutil.Process(demo.pid).children(recursive=True)
    assert any("java" in process.name() for process in started)
    demo.kill()
    demo.wait(LONGEST_WAIT)
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []


def test_demo_does_not_replace_a_file_that_it_did_not_make(workplace: Workplace) -> None:
    precious = workplace.here / "precious.duckdb"
    with duckdb.connect(str(precious)) as database:
        database.execute("CREATE TABLE mine AS SELECT 1 AS one")
    demo = workplace.start("--output", "precious.duckdb")
    assert demo.wait(LONGEST_WAIT) == 1
    assert "walrelay did not make it" in workplace.said("stderr")
    with duckdb.connect(str(precious), read_only=True) as database:
        assert database.execute("FROM mine").fetchone() == (1,)
