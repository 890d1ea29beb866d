"""A local log's files: whole or not there, durable when told so, and failures by name."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walrelay.errors import ConfigError, WalrelayError, from_text
from walrelay.log import failures
from walrelay.log.failures import (
    LogDiskFullError,
    LogError,
    LogNotWritableError,
    LogUnreachableError,
    log_failure,
)
from walrelay.log.storage import LocalStorage, ObjectStorage, Storage, open_storage, public_url


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "deep" / "log")


def watch(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[tuple[str, str]]:
    """Record calls of these os functions, each with what it was called on: a directory, a file, or the paths."""
    calls: list[tuple[str, str]] = []

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            on = str(args[0])
            if isinstance(args[0], int):
                on = str(Path(f"/proc/self/fd/{args[0]}").readlink())
            calls.append((name, on))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, wrapped)

    for name in names:
        wrap(name)
    return calls


def test_put_makes_the_body_durable_before_the_name_and_the_name_before_it_returns(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("manifest/other", b"")
    calls = watch(monkeypatch, "fsync", "rename")
    storage.put("manifest/a.json", b"{}")
    directory = str(tmp_path / "deep/log/manifest")
    temporary = calls[0][1]
    assert temporary.startswith(directory + "/.a.json")
    assert calls == [("fsync", temporary), ("rename", temporary), ("fsync", directory)]


def test_new_directories_are_durable_in_their_parents(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watch(monkeypatch, "fsync")
    storage.put("manifest/a.json", b"{}")
    synced = [path for _, path in calls]
    assert synced[:3] == [str(tmp_path), str(tmp_path / "deep"), str(tmp_path / "deep/log")]


def test_a_data_file_is_synced_when_it_is_finished(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = watch(monkeypatch, "fsync")
    sink = storage.sink("data/a.parquet")
    calls.clear()
    table = pa.table({"a": [1, 2, 3]})
    with pq.ParquetWriter(sink.file, table.schema) as writer:
        writer.write_table(table)
    assert calls == []
    size = sink.finish()
    assert calls == [("fsync", storage.location("data/a.parquet"))]
    storage.sync("data")
    assert calls[1:] == [("fsync", storage.location("data"))]
    assert size == Path(storage.location("data/a.parquet")).stat().st_size
    assert pq.ParquetFile(storage.open("data/a.parquet")).read() == table


def test_put_replaces_and_leaves_nothing_else(storage: Storage) -> None:
    storage.put("a", b"1" * 5000)
    storage.put("a", b"2")
    assert storage.read("a") == b"2"
    assert os.listdir(storage.location("")) == ["a"]  # noqa: PTH208


def test_a_put_that_fails_leaves_the_old_body_and_no_temporary_file(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("a", b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LogDiskFullError):
        storage.put("a", b"new")
    monkeypatch.undo()
    assert storage.read("a") == b"old"
    assert os.listdir(storage.location("")) == ["a"]  # noqa: PTH208


def test_a_listing_is_sorted_and_has_neither_directories_nor_files_being_put(storage: Storage) -> None:
    for name in ("b", "a", "c/d"):
        storage.put(f"x/{name}", b"")
    Path(storage.location("x/.e.123.tmp")).write_bytes(b"")
    assert storage.list("x") == ["a", "b"]
    assert storage.list("nowhere") == []


def test_what_is_not_there_is_file_not_found_and_can_be_deleted(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("nothing")
    with pytest.raises(FileNotFoundError):
        storage.open("nothing")
    storage.delete("nothing")
    storage.delete("no/where")


def test_an_abandoned_file_is_gone(storage: Storage) -> None:
    sink = storage.sink("data/a.parquet")
    sink.file.write(b"half")
    sink.abandon()
    sink.abandon()
    assert storage.list("data") == []
    kept = storage.sink("data/b.parquet")
    kept.finish()
    kept.abandon()
    assert storage.list("data") == ["b.parquet"]


def test_an_open_file_can_be_read_after_it_was_deleted(storage: Storage) -> None:
    storage.put("a", b"body")
    file = storage.open("a")
    storage.delete("a")
    assert file.read() == b"body"


def test_a_directory_that_cannot_be_made_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LogNotWritableError, match="file"):
        open_storage(tmp_path / "file" / "log").put("a", b"")


def test_local_paths_and_file_urls_are_the_same_place(tmp_path: Path) -> None:
    open_storage(f"file://{tmp_path}/lo%20g").put("a", b"1")
    assert open_storage(str(tmp_path / "lo g")).read("a") == b"1"
    assert isinstance(pickle.loads(pickle.dumps(open_storage(tmp_path))), LocalStorage)


def test_a_scheme_without_atomic_puts_is_refused() -> None:
    with pytest.raises(ConfigError, match="hdfs"):
        open_storage("hdfs://host/log")


def test_secrets_in_a_url_are_never_shown() -> None:
    url = "s3://me:sesame@bucket/log?endpoint_override=127.0.0.1:1&scheme=http&region=none"
    storage = open_storage(url)
    assert isinstance(storage, ObjectStorage)
    assert "sesame" not in repr(storage) + storage.location("a")
    assert storage.location("data/a") == "s3://bucket/log/data/a"
    for option in ("nonsense=1", "request_timeout=soon", "scheme=gopher", "max_attempts=0.5"):
        with pytest.raises(ConfigError, match=r"option|URL") as refused:
            open_storage(f"{url}&{option}")
        assert "sesame" not in str(refused.value) + repr(refused.value.__cause__)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "x"), LogDiskFullError),
        (OSError(errno.EDQUOT, "x"), LogDiskFullError),
        (OSError("[errno 28] No space left on device"), LogDiskFullError),
        (OSError(errno.EROFS, "x"), LogNotWritableError),
        (PermissionError(errno.EACCES, "x"), LogNotWritableError),
        (FileNotFoundError(errno.ENOENT, "x"), LogNotWritableError),
        (OSError("AWS Error ACCESS_DENIED during PutObject operation: secret"), LogNotWritableError),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: secret"), LogNotWritableError),
        (OSError("AWS Error UNKNOWN (HTTP status 411) during UploadPart operation: secret"), LogNotWritableError),
        (OSError("AWS Error NETWORK_CONNECTION during PutObject operation: secret"), LogUnreachableError),
        (OSError("AWS Error SLOW_DOWN (HTTP status 503) during PutObject operation: secret"), LogUnreachableError),
        (OSError(errno.EIO, "x"), LogUnreachableError),
    ],
)
def test_failures_have_names_and_do_not_quote_the_store(error: OSError, expected: type[LogError]) -> None:
    named = log_failure(error, "s3://bucket/log/a")
    assert type(named) is expected
    assert "secret" not in str(named)
    assert "s3://bucket/log/a" in named.message


def test_every_failure_of_the_log_survives_spark_and_says_what_to_do() -> None:
    kinds = [kind for kind in vars(failures).values() if isinstance(kind, type) and issubclass(kind, LogError)]
    kinds.remove(LogError)
    assert {kind.code for kind in kinds} >= {
        "log.disk_full",
        "log.not_writable",
        "log.unreachable",
        "log.in_use",
        "log.damaged",
        "log.newer_format",
        "log.gone",
        "log.other_lineage",
    }
    for kind in kinds:
        error = kind("it happened", context={"lsn": "0/1"})
        rebuilt = from_text(f"java.lang.Exception: {error.to_text()}\n at ...")
        assert type(rebuilt) is kind
        assert str(rebuilt) == str(error)
        assert kind.default_hint
        assert isinstance(pickle.loads(pickle.dumps(error)), kind)
        assert isinstance(error, WalrelayError)


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    shown = "s3://bucket/log?region=none&scheme=http"
    assert public_url("s3://me:sesame@bucket/log?region=none&scheme=http") == shown
    assert public_url(shown + "&session_token=sesame&secret_key=sesame") == shown
    for plain in (
        shown,
        "/var/lib/a@b:c",
        "log",
        "s3://bucket/log",
        "s3://bucket/log?endpoint_override=127.0.0.1:9000",
    ):
        assert public_url(plain) == plain
