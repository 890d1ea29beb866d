"""The log on a real S3 server (rclone's): the same promises as on a disk."""

from __future__ import annotations

import http.client
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.test_log_compaction import read_all, write_segment
from walrelay.capture.capture import Capture
from walrelay.log.compaction import CompactionSettings, Compactor
from walrelay.log.failures import LogGoneError, LogInUseError, LogNotWritableError, LogUnreachableError
from walrelay.log.identity import claim, read_lineage
from walrelay.log.lease import LIFE, Clock, acquire
from walrelay.log.manifest import Manifest, data_path
from walrelay.log.reader import LogReader
from walrelay.log.readers import ReaderPositions
from walrelay.log.retention import Retention
from walrelay.log.storage import Storage, open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.postgres.source import PostgresSource

KEY, SECRET = "walrelay-test", "open-sesame-open"


class Front(BaseHTTPRequestHandler):
    """Stands before rclone and takes the empty objects that pyarrow writes in the name of a directory.

    S3 keeps them like any other object; rclone takes them for files that are to replace the directory.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    behind = 0

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "PUT" and self.path.partition("?")[0].endswith("/"):
            self._answer(200, [("ETag", '"d41d8cd98f00b204e9800998ecf8427e"')], b"")
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=30)
        # The headers as they came, Host included: they are signed.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        self._answer(answer.status, answer.getheaders(), answer.read())
        connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

    def log_message(self, format: str, *args: object) -> None:
        pass


class S3Server:
    """rclone's S3 server over a directory; buckets are its subdirectories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        behind = _free_port()
        self._front = ThreadingHTTPServer(("127.0.0.1", 0), type("FrontOfThis", (Front,), {"behind": behind}))
        self.port = self._front.server_port
        threading.Thread(target=self._front.serve_forever, daemon=True).start()
        many = root / "bucket" / "many" / "data"
        many.mkdir(parents=True)
        for number in range(2500):
            (many / f"{number:05d}").touch()
        command = [_rclone(), "serve", "s3", "--addr", f"127.0.0.1:{behind}", "--auth-key", f"{KEY},{SECRET}"]
        command += ["--config", os.devnull, str(root)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", behind)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError("rclone did not start")

    def url(self, bucket: str = "bucket", prefix: str = "log", port: int | None = None) -> str:
        options = f"max_attempts=1&endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=us-east-1"
        return f"s3://{bucket}/{prefix}?{options}"

    def stop(self) -> None:
        self._front.shutdown()
        self._front.server_close()
        self._process.kill()
        self._process.wait()


def _rclone() -> str:
    beside = Path(sys.executable).with_name("rclone")
    found = str(beside) if beside.exists() else shutil.which("rclone")
    assert found, "rclone is missing: run `make env`"
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # rclone knows no trailing checksums.
        environment.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        environment.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
        running = S3Server(tmp_path_factory.mktemp("s3"))
        yield running
        running.stop()


@pytest.fixture
def storage(server: S3Server) -> Storage:
    return open_storage(server.url(prefix=f"some/where/{uuid4().hex}"))


def test_files_are_put_read_listed_and_deleted(storage: Storage) -> None:
    assert not storage.local
    assert storage.list("manifest") == []
    storage.put("manifest/b", b"1" * 100)
    storage.put("manifest/b", b"2")
    storage.put("manifest/a", b"")
    storage.put("manifest/deeper/c", b"")
    assert storage.read("manifest/b") == b"2"
    assert storage.read("manifest/a") == b""
    assert storage.list("manifest") == ["a", "b"]
    storage.delete("manifest/b")
    storage.delete("manifest/b")
    assert storage.list("manifest") == ["a"]
    for missing in ("manifest/b", "no/where"):
        with pytest.raises(FileNotFoundError):
            storage.read(missing)
        with pytest.raises(FileNotFoundError):
            storage.open(missing).read()
    storage.sync("manifest")
    assert pickle.loads(pickle.dumps(storage)).read("manifest/a") == b""


def test_a_data_file_of_several_parts_is_there_when_it_is_finished(storage: Storage) -> None:
    table = pa.table({"a": [os.urandom(1024) for _ in range(20_000)]})
    sink = storage.sink("data/a.parquet")
    with pq.ParquetWriter(sink.file, table.schema, compression="none") as writer:
        writer.write_table(table, row_group_size=4000)
    assert storage.list("data") == []
    size = sink.finish()
    assert storage.list("data") == ["a.parquet"]
    with storage.open("data/a.parquet") as file:
        assert file.size() == size > 20_000_000
        assert pq.ParquetFile(file).read() == table


def test_an_abandoned_file_is_gone(storage: Storage) -> None:
    storage.put("data/kept", b"")
    sink = storage.sink("data/half")
    sink.file.write(b"x" * 100)
    sink.abandon()
    assert storage.list("data") == ["kept"]


def test_a_listing_of_many_pages_is_whole(server: S3Server) -> None:
    storage = open_storage(server.url(prefix="many"))
    assert storage.list("data") == [f"{number:05d}" for number in range(2500)]


def test_a_log_is_written_merged_shortened_and_read(storage: Storage) -> None:
    lineage = Lineage("walrelay", "7301234567890123456", 1, Lsn(20))
    claim(storage, lineage)
    assert read_lineage(storage) == lineage
    manifest = Manifest(storage)
    now = [0.0]
    for sequence in range(1, 41):
        write_segment(storage, manifest, sequence, [1, 2])
    expected = read_all(storage)
    compactor = Compactor(storage, manifest, 1, CompactionSettings(grace_seconds=10), clock=lambda: now[0])
    assert compactor.run_once() == 2
    assert read_all(storage) == expected
    now[0] += 10
    compactor.run_once()
    assert len(storage.list("manifest")) == 2 + 8
    assert len(storage.list("data")) == 2 * 10
    assert read_all(storage) == expected
    storage.put(data_path(41, 41, 1, 1, 1), b"never published")
    assert Compactor(storage, manifest, 2).sweep_orphans() == 1

    readers = ReaderPositions(storage)
    readers.record("lake", Lsn(3219))
    retention = Retention(storage, manifest, readers, max_age=timedelta(0))
    assert retention.run_once(now=1e9) == 1
    readers.record("lake", Lsn(100))
    assert readers.slowest() == Lsn(3219)
    assert [entry.first for entry in manifest.entries()] == [17, *range(33, 41)]
    left = {table: [change for change in changes if change["xid"] > 16] for table, changes in expected.items()}
    assert read_all(storage) == left
    with pytest.raises(LogGoneError):
        manifest.between(Lsn(1000), Lsn(9999))


def test_the_lease_is_held_refused_expires_and_is_taken_over(storage: Storage) -> None:
    shift = [0.0]
    clock = Clock(wall=lambda: time.time() + shift[0], monotonic=lambda: time.monotonic() + shift[0])
    first = acquire(storage, "first", clock=clock)
    with pytest.raises(LogInUseError, match=r"first \(process .*more seconds"):
        acquire(storage, "second", clock=clock)
    shift[0] += LIFE / 2
    first.check()
    shift[0] += LIFE / 2 + 5
    with pytest.raises(LogInUseError):
        acquire(storage, "second", clock=clock)
    shift[0] += LIFE
    with acquire(storage, "second", clock=clock) as second:
        assert second.epoch == 2
        with pytest.raises(LogInUseError, match="second"):
            first.check()
    with acquire(storage, "third", clock=clock) as third:
        assert third.epoch == 3


def test_a_server_that_is_not_there_is_unreachable_and_worth_another_try(server: S3Server) -> None:
    with pytest.raises(LogUnreachableError) as failed:
        open_storage(server.url(port=_free_port())).read("log.json")
    assert failed.value.retryable
    assert "s3://bucket/log/log.json" in failed.value.message


def test_a_missing_bucket_is_not_writable(server: S3Server) -> None:
    missing = open_storage(server.url(bucket="nobody"))
    with pytest.raises(LogNotWritableError):
        missing.put("log.json", b"")
    with pytest.raises(FileNotFoundError):
        missing.read("log.json")


def test_wrong_credentials_are_refused_without_being_shown(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    refused = open_storage(server.url())
    for attempt in (lambda: refused.put("a", b""), lambda: refused.read("a"), lambda: refused.list("a")):
        with pytest.raises(LogNotWritableError) as failed:
            attempt()
        assert "not-the-secret" not in str(failed.value) and KEY not in str(failed.value)


def test_a_store_without_trailing_checksums_gets_a_hint(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    with pytest.raises(LogNotWritableError, match="AWS_REQUEST_CHECKSUM_CALCULATION"):
        open_storage(server.url()).put("a", b"x")


def test_changes_are_captured_to_the_store_and_read_back(server: S3Server, database: str) -> None:
    url = server.url(prefix=f"captured/{uuid4().hex}")
    slot = f"s3_{uuid4().hex[:10]}"
    source = PostgresSource(database, publication="p")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, body text); CREATE PUBLICATION p FOR TABLE t")
        Capture(source, slot=slot, log=url).run(until="caught-up")
        for number in range(3):
            connection.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(%s::int, %s::int) g",
                               (number * 1000, number * 1000 + 999))  # fmt: skip
            Capture(source, slot=slot, log=url).run(until="caught-up")
        confirmed = find_slot_of(connection, slot)
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    reader = LogReader(url)
    changes = list(reader.changes())
    assert [change.row["id"] for change in changes if change.row] == list(range(3000))
    assert confirmed <= reader.head()


def find_slot_of(connection: psycopg.Connection[tuple[str]], slot: str) -> Lsn:
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (slot,)
    ).fetchone()
    assert row is not None
    return Lsn.parse(row[0])
