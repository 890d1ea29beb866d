"""Readers' positions only go forward, and what a reader needs is never removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from walrelay.log.failures import LogDamagedError, LogGoneError
from walrelay.log.manifest import DataFile, Entry, Manifest, data_path
from walrelay.log.readers import ReaderPositions
from walrelay.log.retention import Retention
from walrelay.log.storage import LocalStorage, Storage, open_storage
from walrelay.model.lsn import Lsn


def entry(first: int, last: int | None = None) -> Entry:
    """Segment n covers the LSNs after 100 n up to 100 (n + 1) and was published at the second n."""
    last = last or first
    start, end = Lsn(first * 100), Lsn(last * 100 + 100)
    file = DataFile(data_path(first, last, 1, 7, 2), 7, "public.orders", 2, 3, 50, Lsn(start + 1), Lsn(end - 1))
    return Entry(first, last, start, end, 2, 3, 50, 0, float(last), (file,))


def publish(storage: Storage, *entries: Entry) -> Manifest:
    manifest = Manifest(storage)
    for one in entries:
        for file in one.files:
            storage.put(file.path, b"")
        manifest.publish(one)
    return manifest


def first_numbers(manifest: Manifest) -> list[int]:
    return [one.first for one in manifest.entries()]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


# ------------------------------------------------------------------------------------------------------ readers


def test_a_position_never_goes_back(storage: Storage) -> None:
    readers = ReaderPositions(storage)
    readers.record("duckdb", Lsn(200))
    readers.record("duckdb", Lsn(100))
    assert ReaderPositions(storage).positions() == {"duckdb": Lsn(200)}
    ReaderPositions(storage).record("duckdb", Lsn(150))
    readers.record("duckdb", Lsn(201))
    assert ReaderPositions(storage).positions() == {"duckdb": Lsn(201)}


def test_the_slowest_counts_until_it_is_removed(storage: Storage) -> None:
    readers = ReaderPositions(storage)
    assert readers.slowest() is None
    readers.record("fast", Lsn(300))
    readers.record("slow", Lsn(100))
    assert readers.slowest() == Lsn(100)
    readers.remove("slow")
    readers.remove("slow")
    assert readers.slowest() == Lsn(300)


@pytest.mark.parametrize("name", ["..", ".hidden", "a/b", "ünï cödé", "x" * 200, "per%20cent", "lake.json"])
def test_any_name_is_a_file_of_its_own(storage: Storage, name: str) -> None:
    readers = ReaderPositions(storage)
    readers.record(name, Lsn(1))
    readers.record(name + "2", Lsn(2))
    assert readers.positions() == {name: Lsn(1), name + "2": Lsn(2)}
    assert len(storage.list("readers")) == 2


def test_a_garbled_position_stops_rather_than_being_left_out(storage: Storage) -> None:
    storage.put("readers/a.json", b"{}")
    with pytest.raises(LogDamagedError, match=r"a\.json"):
        ReaderPositions(storage).slowest()


# ---------------------------------------------------------------------------------------------------- retention


def retention(storage: Storage, manifest: Manifest, seconds: float | None, keep_after: int | None = None) -> Retention:
    return Retention(
        storage,
        manifest,
        ReaderPositions(storage),
        max_age=None if seconds is None else timedelta(seconds=seconds),
        keep_after=None if keep_after is None else Lsn(keep_after),
    )


def test_old_entries_go_with_their_files(storage: Storage) -> None:
    manifest = publish(storage, *(entry(n) for n in range(1, 6)))
    assert retention(storage, manifest, 10).run_once(now=13.5) == 3
    assert first_numbers(manifest) == [4, 5]
    assert storage.list("data") == [Path(entry(n).files[0].path).name for n in (4, 5)]
    with pytest.raises(LogGoneError):
        manifest.between(Lsn(100), Lsn(999))


def test_the_last_entry_stays_however_old_it_is(storage: Storage) -> None:
    manifest = publish(storage, *(entry(n) for n in range(1, 6)))
    assert retention(storage, manifest, 0).run_once(now=1e9) == 4
    assert retention(storage, manifest, 0).run_once(now=1e9) == 0
    assert first_numbers(manifest) == [5]


def test_what_a_reader_has_not_applied_stays(storage: Storage) -> None:
    manifest = publish(storage, *(entry(n) for n in range(1, 6)))
    readers = ReaderPositions(storage)
    readers.record("fast", Lsn(600))
    readers.record("slow", Lsn(399))
    assert retention(storage, manifest, 0).run_once(now=1e9) == 2
    assert [one.first for one in manifest.between(Lsn(399), Lsn(600))] == [3, 4, 5]
    readers.record("slow", Lsn(400))
    assert retention(storage, manifest, 0).run_once(now=1e9) == 1
    assert [one.first for one in manifest.between(Lsn(400), Lsn(600))] == [4, 5]


def test_what_is_to_be_kept_stays(storage: Storage) -> None:
    manifest = publish(storage, *(entry(n) for n in range(1, 6)))
    assert retention(storage, manifest, None).run_once(now=1e9) == 0
    assert retention(storage, manifest, None, keep_after=300).run_once(now=0) == 2
    assert retention(storage, manifest, 10, keep_after=999).run_once(now=13.5) == 1
    assert first_numbers(manifest) == [4, 5]


def test_an_old_entry_behind_a_young_one_stays(storage: Storage) -> None:
    manifest = publish(storage, entry(1), replace(entry(2), created_at=1e9), entry(3), entry(4))
    assert retention(storage, manifest, 10).run_once(now=1000) == 1
    assert first_numbers(manifest) == [2, 3, 4]


def test_what_a_merged_entry_replaced_does_not_come_back(storage: Storage) -> None:
    manifest = publish(storage, *(entry(n) for n in range(1, 7)), entry(1, 4))
    assert retention(storage, manifest, 10).run_once(now=14.5) == 1
    assert manifest.look() == ((entry(5), entry(6)), ())
    assert len(storage.list("data")) == 2


def test_the_chain_is_whole_and_has_its_files_after_every_single_step(tmp_path: Path) -> None:
    class Watched(LocalStorage):
        looks = 0

        def delete(self, path: str) -> None:
            super().delete(path)
            chain = Manifest(self).entries()
            data = set(self.list("data"))
            assert all(file.path.removeprefix("data/") in data for one in chain for file in one.files)
            assert chain[-1].last == 9
            self.looks += 1

    storage = Watched(tmp_path)
    manifest = publish(storage, *(entry(n) for n in range(1, 10)), entry(1, 4), entry(5, 8))
    assert retention(storage, manifest, 1).run_once(now=100) == 2
    assert storage.looks == 20


def test_it_asks_the_lease_before_it_removes(storage: Storage) -> None:
    manifest = publish(storage, entry(1), entry(2))

    def lost() -> None:
        raise LogDamagedError("lost")

    keeper = Retention(storage, manifest, ReaderPositions(storage), max_age=timedelta(0), check=lost)
    with pytest.raises(LogDamagedError):
        keeper.run_once(now=1e9)
    assert first_numbers(manifest) == [1, 2]
