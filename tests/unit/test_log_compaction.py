"""Compaction: few files, little memory, and the same changes for every reader at every instant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walrelay.log.compaction import CompactionSettings, Compactor
from walrelay.log.concatenation import UnlikeSchemaError, concatenate
from walrelay.log.failures import LogDamagedError, LogDiskFullError, LogInUseError
from walrelay.log.manifest import DataFile, Entry, Manifest, SentPart, data_path
from walrelay.log.storage import LocalSink, LocalStorage, Storage
from walrelay.model.lsn import Lsn

WORD = pa.dictionary(pa.int8(), pa.string())
ROW = pa.struct([("id", pa.int64()), ("note", pa.string()), ("price", pa.decimal128(10, 2))])
FIELDS = {
    "commit_lsn": pa.int64(),
    "end_lsn": pa.int64(),
    "ordinal": pa.int64(),
    "xid": pa.int64(),
    "commit_time": pa.timestamp("us", "UTC"),
    "op": WORD,
    "schema_version": pa.int32(),
    "row": ROW,
    "old": ROW,
    "old_kind": WORD,
    "unchanged": pa.list_(pa.string()),
}
OPS = ("insert", "update", "delete", "truncate")
Change = dict[str, Any]


def changes_of(sequence: int, table: int, count: int) -> list[Change]:
    """Some changes; which kinds there are, and so which optional columns, differs from segment to segment."""
    made: list[Change] = []
    for ordinal in range(count):
        op = OPS[(sequence + ordinal) % 4] if sequence % 3 else "insert"
        number = sequence * 1000 + ordinal
        has_row, has_old = op in ("insert", "update"), op in ("update", "delete") and sequence % 5 > 0
        made.append(
            {
                "commit_lsn": sequence * 100 + 10,
                "end_lsn": sequence * 100 + 20,
                "ordinal": ordinal,
                "xid": sequence,
                "commit_time": None,
                "op": op,
                "schema_version": 1,
                "row": {"id": number, "note": f"note {table}" * (ordinal % 3), "price": None} if has_row else None,
                "old": {"id": number, "note": None, "price": None} if has_old else None,
                "old_kind": "key" if has_old else None,
                "unchanged": ["note"] if op == "update" and sequence % 7 == 0 else None,
            }
        )
    return made


def as_table(changes: Sequence[Change]) -> pa.Table:
    optional = [c for c in ("old", "old_kind", "unchanged") if all(change[c] is None for change in changes)]
    columns = {
        name: pa.array([change[name] for change in changes], kind) if kind != WORD else word(changes, name)
        for name, kind in FIELDS.items()
        if name not in optional
    }
    return pa.table(columns)


def word(changes: Sequence[Change], name: str) -> pa.Array:
    return pa.array([change[name] for change in changes], pa.string()).dictionary_encode().cast(WORD)


def write_table(storage: Storage, path: str, table: pa.Table) -> int:
    sink = storage.sink(path)
    with pq.ParquetWriter(sink.file, table.schema) as writer:
        writer.write_table(table)
    return sink.finish()


def write_segment(
    storage: Storage, manifest: Manifest, sequence: int, tables: Sequence[int], *, epoch: int = 1
) -> None:
    files = []
    for table in tables:
        changes = changes_of(sequence, table, 3)
        path = data_path(sequence, sequence, epoch, table, 1)
        size = write_table(storage, path, as_table(changes))
        lsn = Lsn(sequence * 100 + 10)
        files.append(DataFile(path, table, f"public.t{table}", 1, len(changes), size, lsn, lsn))
    manifest.publish(segment(sequence, files))


def segment(sequence: int, files: Sequence[DataFile]) -> Entry:
    return Entry(
        first=sequence,
        last=sequence,
        start_lsn=Lsn(sequence * 100 - 80),
        end_lsn=Lsn(sequence * 100 + 20),
        transactions=1,
        rows=sum(file.rows for file in files),
        bytes=sum(file.bytes for file in files),
        commit_time=sequence,
        created_at=float(sequence),
        files=tuple(files),
        parts=(SentPart(sequence, 1, Lsn(sequence * 100 + 10)),),
    )


def read_all(storage: Storage, manifest: Manifest | None = None) -> dict[int | None, list[Change]]:
    """All changes by table as a reader sees them: an absent column is NULL."""
    found: dict[int | None, list[Change]] = {}
    for entry in (manifest or Manifest(storage)).entries():
        for file in entry.files:
            rows = pq.ParquetFile(storage.open(file.path)).read().to_pylist()
            assert len(rows) == file.rows
            assert {row["commit_lsn"] for row in rows} >= {file.first_lsn, file.last_lsn}
            found.setdefault(file.table, []).extend({name: row.get(name) for name in FIELDS} for row in rows)
    return found


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


# ------------------------------------------------------------------------------------------------- concatenation


def test_a_column_that_a_file_lacks_becomes_null(storage: LocalStorage) -> None:
    parts = [changes_of(n, 1, 5) for n in range(3, 13)]
    tables = [as_table(part) for part in parts]
    assert len({tuple(table.schema.names) for table in tables}) > 2
    paths = [f"data/{n}" for n in range(len(parts))]
    for path, table in zip(paths, tables, strict=True):
        write_table(storage, path, table)
    rows, size = concatenate(storage, paths, "data/all")
    merged = pq.ParquetFile(storage.open("data/all"))
    assert (rows, size) == (50, Path(storage.location("data/all")).stat().st_size)
    assert merged.schema_arrow.names == list(FIELDS)
    assert merged.schema_arrow.types == list(FIELDS.values())
    assert merged.read().to_pylist() == [change for part in parts for change in part]
    assert merged.metadata.row_group(0).column(0).statistics.min == 310


def test_columns_that_no_file_has_stay_away(storage: LocalStorage) -> None:
    for n in (3, 6):
        write_table(storage, f"data/{n}", as_table(changes_of(n, 1, 2)))
    concatenate(storage, ["data/3", "data/6"], "data/all")
    assert "old" not in pq.ParquetFile(storage.open("data/all")).schema_arrow.names


def test_row_groups_are_of_the_size_asked_for(storage: LocalStorage) -> None:
    table = pa.table({"commit_lsn": pa.array(range(100_000), pa.int64())})
    for n in range(4):
        write_table(storage, f"data/{n}", table)
    concatenate(storage, [f"data/{n}" for n in range(4)], "data/all", group_bytes=1024 * 1024)
    groups = pq.ParquetFile(storage.open("data/all")).metadata
    sizes = [groups.row_group(n).num_rows * 8 for n in range(groups.num_row_groups)]
    assert sum(sizes) == 4 * 800_000
    assert len(sizes) == 4 and max(sizes) < 1.1 * 1024 * 1024


def test_files_of_other_types_are_not_put_together(storage: LocalStorage) -> None:
    write_table(storage, "data/0", pa.table({"row": pa.array([1], pa.int32())}))
    write_table(storage, "data/1", pa.table({"row": pa.array([1], pa.int64())}))
    with pytest.raises(UnlikeSchemaError) as refused:
        concatenate(storage, ["data/0", "data/0", "data/1"], "data/all")
    assert refused.value.index == 2
    assert storage.list("data") == ["0", "1"]


def test_a_file_that_is_no_parquet_is_named_and_nothing_is_left(storage: LocalStorage) -> None:
    write_table(storage, "data/0", as_table(changes_of(1, 1, 3)))
    body = storage.read("data/0")
    for n, damaged in enumerate((b"", b"PAR1", body[:-20], b"\0" * 40 + body[40:])):
        storage.put("data/bad", damaged)
        with pytest.raises(LogDamagedError, match=r"data/bad"):
            concatenate(storage, ["data/0", "data/bad"], f"data/all{n}")
    assert storage.list("data") == ["0", "bad"]


MEMORY = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
from walrelay.log.concatenation import concatenate
from walrelay.log.storage import LocalStorage
storage = LocalStorage(Path(sys.argv[1]))
rng = np.random.default_rng(1)
for n in range(4):
    sink = storage.sink(f"data/{n}")
    with pq.ParquetWriter(sink.file, pa.schema([("commit_lsn", pa.int64()), ("row", pa.binary())])) as writer:
        rows, size = 20_000_000 // int(sys.argv[2]), int(sys.argv[2])
        ids = pa.array(np.arange(rows))
        row = pa.array([rng.bytes(size) for _ in range(rows)], pa.binary())
        writer.write_table(pa.table([ids, row], names=["commit_lsn", "row"]))
        del ids, row
    sink.finish()
pool = pa.system_memory_pool()
pa.set_memory_pool(pool)
before = pool.bytes_allocated()
concatenate(storage, [f"data/{n}" for n in range(4)], "data/all")
print((pool.max_memory() - before) // 2**20)
"""


@pytest.mark.parametrize("row_bytes", [1_000, 200_000])
def test_a_large_merge_takes_little_memory(tmp_path: Path, row_bytes: int) -> None:
    """80 MB of changes, in row groups of 20 MB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), str(row_bytes)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert int(done.stdout) < 64


# ---------------------------------------------------------------------------------------------------- compaction


def test_hundreds_of_segments_become_few_and_say_the_same(storage: LocalStorage) -> None:
    clock = Time()
    manifest = Manifest(storage)
    compactor = Compactor(storage, manifest, epoch=1, clock=clock)
    for sequence in range(1, 301):
        write_segment(storage, manifest, sequence, [2] if sequence % 4 else [1, 2])
        if sequence % 10 == 0:
            clock.now += 1
            compactor.run_once()
    expected = {
        table: [c for n in range(1, 301) if table == 2 or n % 4 == 0 for c in changes_of(n, table, 3)]
        for table in (1, 2)
    }
    assert read_all(storage) == expected
    clock.now += 10
    assert compactor.run_once() == 0
    assert read_all(storage) == expected
    # 300 = 1 × 256 + 2 × 16 + 12
    assert [e.last - e.first + 1 for e in manifest.entries()] == [256, 16, 16] + [1] * 12
    assert len(storage.list("manifest")) == 15
    assert len(storage.list("data")) == 15 + 3 + 3
    merged = manifest.entries()[0]
    assert (merged.start_lsn, merged.end_lsn, merged.transactions) == (Lsn(20), Lsn(25_620), 256)
    assert (merged.rows, merged.commit_time, merged.created_at) == (256 * 3 + 64 * 3, 256, 256.0)
    assert [part.leaf for part in merged.parts] == list(range(1, 257))


class Watched(LocalStorage):
    """Lets an onlooker act before and after everything that changes the log."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.look: Any = None
        self.steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.look is not None:
            look, self.look = self.look, None
            look()
            self.look = look

    def put(self, path: str, body: bytes) -> None:
        self._step()
        super().put(path, body)
        self._step()

    def delete(self, path: str) -> None:
        super().delete(path)
        self._step()

    def sink(self, path: str) -> LocalSink:
        sink = super().sink(path)
        self._step()
        return sink


def test_readers_see_the_same_changes_after_every_single_step(tmp_path: Path) -> None:
    storage = Watched(tmp_path)
    manifest = Manifest(storage)
    for sequence in range(1, 23):
        write_segment(storage, manifest, sequence, [1])
    expected = read_all(storage)
    old_reader = Manifest(storage)

    def look() -> None:
        assert read_all(storage) == expected
        assert read_all(storage, old_reader) == expected

    storage.look = look
    storage.steps = 0
    clock = Time()
    compactor = Compactor(storage, manifest, 1, CompactionSettings(fan_in=4), clock=clock)
    assert compactor.run_once() == 5 + 1
    clock.now += 9.9
    compactor.run_once()
    assert len(storage.list("manifest")) == 22 + 6
    clock.now += 0.2
    compactor.run_once()
    assert len(storage.list("manifest")) == len(storage.list("data")) == 1 + 1 + 2
    assert storage.steps == 6 * 3 + 2 * 24


def test_one_who_listed_before_the_merge_can_read_through_the_grace_period(storage: LocalStorage) -> None:
    manifest = Manifest(storage)
    for sequence in range(1, 17):
        write_segment(storage, manifest, sequence, [1])
    listed = manifest.entries()
    Compactor(storage, manifest, 1).run_once()
    assert len(manifest.entries()) == 1
    for entry in listed:
        storage.open(entry.files[0].path).close()


def test_what_a_crash_left_behind_is_cleaned_up_by_the_next_writer(storage: LocalStorage) -> None:
    manifest = Manifest(storage)
    for sequence in range(1, 17):
        write_segment(storage, manifest, sequence, [1])
    expected = read_all(storage)
    Compactor(storage, manifest, 1).run_once()  # and dies before the grace period ends
    write_table(storage, data_path(17, 17, 1, 1, 1), as_table(changes_of(17, 1, 3)))  # written, never published
    write_table(storage, data_path(17, 17, 2, 1, 1), as_table(changes_of(17, 1, 3)))  # of the writer that lives
    storage.put("data/notes.txt", b"not ours")
    clock = Time()
    compactor = Compactor(storage, Manifest(storage), 2, clock=clock)
    assert compactor.sweep_orphans() == 1
    compactor.run_once()
    assert len(storage.list("manifest")) == 17
    clock.now += 10
    compactor.run_once()
    assert len(storage.list("manifest")) == 1
    kept = [data_path(1, 16, 1, 1, 1), data_path(17, 17, 2, 1, 1), "data/notes.txt"]
    assert sorted(f"data/{name}" for name in storage.list("data")) == sorted(kept)
    assert read_all(storage) == expected


def test_files_whose_entries_were_deleted_before_a_crash_are_swept(storage: LocalStorage) -> None:
    manifest = Manifest(storage)
    for sequence in range(1, 18):
        write_segment(storage, manifest, sequence, [1])
    Compactor(storage, manifest, 1).run_once()
    expected = read_all(storage)
    for sequence in range(1, 17):
        storage.delete(segment(sequence, []).path)
    assert Compactor(storage, Manifest(storage), 2).sweep_orphans() == 16
    assert read_all(storage) == expected


def test_a_failed_merge_leaves_nothing_and_can_be_tried_again(storage: LocalStorage) -> None:
    manifest = Manifest(storage)
    for sequence in range(1, 17):
        write_segment(storage, manifest, sequence, [1, 2])
    expected = read_all(storage)
    before = storage.list("data")
    full = [2]

    def join(storage: Storage, paths: Sequence[str], target: str) -> tuple[int, int]:
        full[0] -= 1
        if full[0] == 0:
            raise LogDiskFullError("full")
        return concatenate(storage, paths, target)

    clock = Time()
    compactor = Compactor(storage, manifest, 1, clock=clock, join=join)
    with pytest.raises(LogDiskFullError):
        compactor.run_once()
    assert storage.list("data") == before
    assert compactor.run_once() == 1
    for _ in range(3):
        clock.now += 10
        compactor.run_once()
        assert read_all(storage) == expected
    assert len(storage.list("data")) == 2


def test_one_that_lost_the_lease_publishes_and_deletes_nothing(storage: LocalStorage) -> None:
    manifest = Manifest(storage)
    for sequence in range(1, 17):
        write_segment(storage, manifest, sequence, [1])
    before = storage.list("manifest"), storage.list("data")

    def lost() -> None:
        raise LogInUseError("lost")

    with pytest.raises(LogInUseError):
        Compactor(storage, manifest, 1, check=lost).run_once()
    assert (storage.list("manifest"), storage.list("data")) == before
    Compactor(storage, manifest, 1).run_once()
    settings = CompactionSettings(grace_seconds=0)
    with pytest.raises(LogInUseError):
        Compactor(storage, manifest, 1, settings, check=lost).run_once()
    with pytest.raises(LogInUseError):
        storage.put(data_path(99, 99, 1, 1, 1), b"")
        Compactor(storage, manifest, 2, check=lost).sweep_orphans()
    assert len(storage.list("manifest")) == 17


def test_a_missing_or_short_data_file_is_a_damaged_log(storage: LocalStorage) -> None:
    manifest = Manifest(storage)
    for sequence in range(1, 17):
        write_segment(storage, manifest, sequence, [1])
    path = data_path(5, 5, 1, 1, 1)
    write_table(storage, path, as_table(changes_of(5, 1, 2)))
    with pytest.raises(LogDamagedError, match=r"47 rows.*48"):
        Compactor(storage, manifest, 1).run_once()
    storage.delete(path)
    with pytest.raises(LogDamagedError, match="missing"):
        Compactor(storage, manifest, 1).run_once()
    assert len(storage.list("data")) == 15


def test_nothing_is_merged_across_a_change_of_types_within_a_version(storage: LocalStorage) -> None:
    """As a new release of walrelay may cause: both sides are merged on their own, and all stays readable."""
    manifest = Manifest(storage)
    for sequence in range(1, 41):
        write_segment(storage, manifest, sequence, [1])
    for sequence in range(20, 41):
        path = data_path(sequence, sequence, 1, 1, 1)
        table = as_table(changes_of(sequence, 1, 3))
        position = table.schema.get_field_index("xid")
        write_table(storage, path, table.set_column(position, "xid", table["xid"].cast(pa.int32())))
    expected = read_all(storage)
    Compactor(storage, manifest, 1).run_once()
    assert [(e.first, e.last) for e in manifest.entries()] == [
        (1, 16),
        *((n, n) for n in range(17, 20)),
        (20, 35),
        *((n, n) for n in range(36, 41)),
    ]
    assert read_all(storage) == expected


# ---------------------------------------------------------------------------------------------------- simulation


class Memory:
    """Names and sizes only."""

    local = False

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {"manifest": {}, "data": {}}

    def put(self, path: str, body: bytes) -> None:
        directory, name = path.split("/")
        self.files[directory][name] = body

    def read(self, path: str) -> bytes:
        directory, name = path.split("/")
        if name not in self.files[directory]:
            raise FileNotFoundError(path)
        return self.files[directory][name]

    def list(self, directory: str) -> list[str]:
        return sorted(self.files[directory])

    def delete(self, path: str) -> None:
        directory, name = path.split("/")
        self.files[directory].pop(name, None)

    def sync(self, directory: str) -> None:
        pass

    def location(self, path: str) -> str:
        return path

    def sink(self, path: str) -> Any:
        raise NotImplementedError

    def open(self, path: str) -> Any:
        raise NotImplementedError


class Simulation:
    """Ten segments a second with one table in each; merging adds up sizes and nothing else."""

    def __init__(self) -> None:
        self.storage = Memory()
        self.manifest = Manifest(self.storage)
        self.clock = Time()
        self.sizes: dict[str, tuple[int, int]] = {}
        self.merged_bytes = 0
        self.compactor = Compactor(self.storage, self.manifest, 1, clock=self.clock, join=self._join)
        self.sequence = 0

    def _join(self, storage: Storage, paths: Sequence[str], target: str) -> tuple[int, int]:
        rows, size = (sum(part) for part in zip(*(self.sizes[path] for path in paths), strict=True))
        self.sizes[target] = rows, size
        self.merged_bytes += size
        storage.put(target, b"")
        return rows, size

    def add(self, size: int) -> None:
        self.sequence += 1
        path = data_path(self.sequence, self.sequence, 1, 7, 1)
        self.sizes[path] = 1, size
        self.storage.put(path, b"")
        lsn = Lsn(self.sequence * 100 + 10)
        self.manifest.publish(segment(self.sequence, [DataFile(path, 7, "public.t", 1, 1, size, lsn, lsn)]))

    def second(self, *sizes: int) -> int:
        """One second with segments of these sizes; how many files there are after it."""
        for size in sizes:
            self.add(size)
        self.clock.now += 1
        self.compactor.run_once()
        return len(self.storage.files["data"])


def test_an_hour_of_ten_small_segments_a_second_stays_below_two_hundred_files() -> None:
    simulation = Simulation()
    most = max(simulation.second(*[1000] * 10) for _ in range(3600))
    assert most <= 200
    entries = simulation.manifest.entries()
    assert sum(entry.rows for entry in entries) == 36_000
    assert len(entries) <= 60
    for _ in range(20):
        simulation.second()
    assert len(simulation.storage.files["data"]) == len(simulation.manifest.entries())
    # Each change was rewritten once per tier: 16, 256, 4096.
    assert simulation.merged_bytes < 3 * 36_000 * 1000


def test_no_merged_entry_is_too_large_and_big_ones_are_left_alone() -> None:
    mib = 1024 * 1024
    simulation = Simulation()
    for _ in range(100):
        simulation.second(3 * mib, mib, 5 * mib)
    for entry in simulation.manifest.entries():
        assert entry.bytes <= 128 * mib
    assert len(simulation.manifest.entries()) < 100 * 9 / 32 + 32
    assert simulation.merged_bytes < 2.5 * 900 * mib
    simulation = Simulation()
    for _ in range(20):
        simulation.second(40 * mib)
    assert simulation.merged_bytes == 0


def test_small_segments_between_big_ones_do_not_stay_small_for_ever() -> None:
    mib = 1024 * 1024
    simulation = Simulation()
    for _ in range(300):
        simulation.second(1000, 1000, 1000, 40 * mib)
    assert len(simulation.manifest.entries()) == 600
    assert simulation.merged_bytes == 300 * 3000
