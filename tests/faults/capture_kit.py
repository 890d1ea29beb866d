"""What the crash tests of capture share: processes that start at once, a watcher, a workload that rests, the checks."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg

from walrelay.capture import child as capture_child
from walrelay.log.failures import LogNotFoundError
from walrelay.log.manifest import DATA, MANIFEST, Entry
from walrelay.log.reader import LogReader
from walrelay.log.readers import ReaderPositions
from walrelay.model.lsn import Lsn
from walrelay.postgres.source import PostgresSource
from walrelay.testing.failpoints import ENVIRONMENT
from walrelay.testing.replay import replay
from walrelay.testing.sample import Sample
from walrelay.testing.workload import Workload

SMALL: dict[str, Any] = {
    "segment_bytes": 256 * 1024,
    "memory_bytes": 1024 * 1024,
    "segment_age": 0.02,
    "segment_age_busy": 0.1,
    "retry_delay": 0.05,
}
"""Many segments, and spills."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.faults.capture_preload"])


def streaming_early(url: str) -> PostgresSource:
    """A source whose server streams every transaction of more than 64 kB while it runs."""
    extra = urllib.parse.quote("-c logical_decoding_work_mem=64kB")
    return PostgresSource(f"{url}{'&' if '?' in url else '?'}options={extra}", publication="p")


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 180) -> None:
    """Wait for it; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


# ------------------------------------------------------------------------------------------------------- processes


@dataclass(frozen=True)
class CaptureTask:
    """A capture that can be started many times, each time as the child process that the supervisor would start."""

    source: PostgresSource
    slot: str
    log: Path
    settings: dict[str, Any] = field(default_factory=lambda: dict(SMALL))

    def start(self, *, failpoints: str = "", until: str | None = None) -> BaseProcess:
        """Fork it from a process that has imported everything: it works within some ten milliseconds."""
        task = {
            "url": self.source.url,
            "publication": self.source.publication,
            "slot": self.slot,
            "log": str(self.log),
            "until": until,
            "settings": self.settings,
        }
        process = _FORKS.Process(
            target=_become_child, args=(json.dumps(task), failpoints, str(self._said)), daemon=True
        )
        process.start()
        return process

    def run(self, **options: Any) -> int:
        """Start it and wait for its end: the exit code."""
        process = self.start(**options)
        process.join(300)
        assert process.exitcode is not None, f"capture did not end; it said {self.said()}"
        return process.exitcode

    def said(self) -> list[dict[str, str]]:
        """All that the processes have said, in order."""
        if not self._said.exists():
            return []
        return [json.loads(line) for line in self._said.read_text().splitlines() if line.startswith("{")]

    def errors(self) -> list[str]:
        """What the processes have said that is no notice: named failures, and traces of unnamed ones."""
        if not self._said.exists():
            return []
        return [line for line in self._said.read_text().splitlines() if not line.startswith('{"notice"')]

    @property
    def _said(self) -> Path:
        return self.log.with_name(f"{self.log.name}.said")


def _become_child(task: str, failpoints: str, said: str) -> None:
    """In the forked process: the child's real main, with standard input and output as the supervisor gives them."""
    ours, theirs = os.pipe()
    os.write(theirs, task.encode() + b"\n")  # `theirs` stays open: the input must not end
    os.dup2(ours, 0)
    told = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(told, 1)
    os.dup2(told, 2)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.environ[ENVIRONMENT] = failpoints
    sys.exit(capture_child.main())


# --------------------------------------------------------------------------------------------------------- watcher


class Watcher:
    """Looks all the time whether the slot was confirmed only up to what the log holds (SEMANTICS 3).

    First at the slot, then at the log: the log only grows, so what it holds then is at least what it held. With
    `reader`, the log must not be compacted, and the slot must stay where that reader is, or at most go to the next
    commit of which the reader has not heard.
    """

    def __init__(self, url: str, slot: str, log: Path, *, reader: str | None = None) -> None:
        self._url = url
        self._slot = slot
        self._log = LogReader(log)
        self._reader = reader
        self._positions = ReaderPositions(self._log.storage)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self.looks = 0
        self.moves = 0
        self.failures: list[str] = []

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            assert self.failures == []
            assert self.looks > 100 and self.moves > 2, f"looked {self.looks} times, saw it move {self.moves} times"

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                    self._watch(connection)
            except psycopg.OperationalError:
                self._stop.wait(0.05)  # the server is away
            except BaseException as error:
                self.failures.append(f"the watcher failed: {error!r}")
                return

    def _watch(self, connection: psycopg.Connection[Any]) -> None:
        last = Lsn(0)
        while not self._stop.wait(0.004):
            row = connection.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (self._slot,)
            ).fetchone()
            try:
                bound = self._bound()
            except LogNotFoundError:
                continue  # the slot is there a moment earlier
            if row is None or row[0] is None:
                continue
            confirmed = Lsn.parse(row[0])
            self.looks += 1
            self.moves += confirmed > last
            last = confirmed
            if confirmed > bound:
                self.failures.append(f"the slot was confirmed up to {confirmed}, but only {bound} is safe")

    def _bound(self) -> Lsn:
        if self._reader is None:
            return self._log.head()
        position = self._positions.positions().get(self._reader, self._log.lineage().created_lsn)
        head = self._log.head()
        unheard = [entry for entry in self._log.entries(Lsn(0)) if entry.end_lsn > position]
        if not unheard:
            return max(head, position)
        return max(position, min(file.first_lsn for file in unheard[0].files))


# -------------------------------------------------------------------------------------------------------- workload


class RestingWorkload:
    """A workload in bursts, so that slow checks afterwards have not too much to do, with samples in between."""

    def __init__(self, workload: Workload, *, burst: int = 40, rest: float = 0.15, sample_every: int = 8) -> None:
        self.workload = workload
        self.samples: list[Sample] = []
        self.committed = 0
        self._burst = burst
        self._rest = rest
        self._sample_every = sample_every
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._failures: list[BaseException] = []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is committed in the block."""
        with self._turn:
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="bursts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._failures:
            raise self._failures[0]
        self.sample()

    def sample(self) -> None:
        """Take one; try again while the server is away."""
        for attempt in range(100):
            try:
                with psycopg.connect(self.workload.url, autocommit=True, connect_timeout=5) as connection:
                    self.samples.append(self.workload.sample(connection))
                    return
            except psycopg.OperationalError:
                if attempt == 99:
                    raise
                time.sleep(0.1)

    def _run(self) -> None:
        try:
            bursts = 0
            while not self._stop.is_set():
                with self._turn:
                    self.committed += self.workload.run(transactions=self._burst, stop=self._stop).committed
                bursts += 1
                if bursts % self._sample_every == 0:
                    self.sample()
                self._stop.wait(self._rest)
        except BaseException as error:
            self._failures.append(error)


def create_tables(url: str, *, seed: int, clients: int = 3, large_rows: int = 6_000) -> Workload:
    """The workload's tables and publication, in a fresh database, and noise that is not published."""
    workload = Workload(url, seed=seed, clients=clients, large_rows=large_rows)
    with psycopg.connect(url, autocommit=True) as connection:
        workload.create(connection)
        connection.execute("CREATE TABLE noise (id int)")
    return workload


def large_transaction(url: str, rows: int = 15_000) -> None:
    """One that has to be spilled; it leaves nothing behind in the workload's tables."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO items (id, label, amount, body) SELECT 90000000 + g, 'spilled', 0, md5(g::text)"
            " FROM generate_series(1, %s) AS g",
            (rows,),
        )
        connection.execute("DELETE FROM items WHERE id > 90000000")


@contextmanager
def help_to_pass(name: str, url: str, bursts: RestingWorkload) -> Iterator[None]:
    """Not every step is taken all the time: some need a large transaction, or a source that is idle."""
    if name == "spill.write":
        with repeating(lambda: large_transaction(url)):
            yield
    elif name == "head.before_advance":
        with bursts.paused(), repeating(lambda: commit_unpublished(url)):
            yield
    else:
        yield


def commit_unpublished(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO noise VALUES (1)")


@contextmanager
def repeating(action: Callable[[], object]) -> Iterator[None]:
    """Do it again and again while the block runs."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.1):
            action()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# ---------------------------------------------------------------------------------------------------------- checks


def assert_log_is_whole(log: Path, bursts: RestingWorkload) -> None:
    """Every commit once and in order; every sample, and the append-only ledger, found again; nothing left over."""
    changes = list(LogReader(log).changes())
    positions = [(change.commit_lsn, change.ordinal) for change in changes]
    assert all(one < next_ for one, next_ in pairwise(positions)), "each once, in order"
    assert len({change.xid for change in changes}) >= bursts.committed // 2, "the workload came through"
    for sample in bursts.samples:
        assert replay(changes, bursts.workload.keys, sample).differences(sample) == []
    numbers: dict[int, list[int]] = defaultdict(list)
    for change in changes:
        if change.table.name == "ledger":
            assert change.op == "insert" and change.row is not None
            numbers[change.row["client"]].append(change.row["n"])
    last = bursts.samples[-1].tables["public.ledger"]
    assert sum(map(len, numbers.values())) == len(last.rows) > 0
    for client, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), f"client {client}: a gap, a double or a wrong order"
    assert_nothing_is_left_over(log)


def assert_nothing_is_left_over(log: Path) -> None:
    """For a log that a capture has opened and closed cleanly since the last crash."""
    entries = [Entry.from_json(path.read_bytes(), path.name) for path in (log / MANIFEST).glob("[0-9]*.json")]
    named = {file.path for entry in entries for file in entry.files}
    assert {f"{DATA}/{path.name}" for path in (log / DATA).iterdir()} == named
    spill = log / "spill"
    assert not spill.exists() or list(spill.iterdir()) == []
