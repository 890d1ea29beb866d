"""The chain of entries: strict in what it takes, and the same for everyone who looks while it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walrelay.log.failures import LogDamagedError, LogGoneError
from walrelay.log.manifest import DataFile, Entry, Manifest, SentPart, cover, data_path, epoch_of
from walrelay.log.storage import LocalStorage
from walrelay.model.lsn import Lsn


def entry(first: int, last: int | None = None, *, files: bool = True) -> Entry:
    """Segment n covers the LSNs after 100 n up to 100 (n + 1)."""
    last = last or first
    start, end = Lsn(first * 100), Lsn(last * 100 + 100)
    file = DataFile(data_path(first, last, 1, 7, 2), 7, "public.orders", 2, 3, 50, Lsn(start + 1), Lsn(end - 1))
    named = (file,) if files else ()
    return Entry(first, last, start, end, 2, 3 if files else 0, 50 if files else 0, 1_700_000_000_000_000, 5.5, named)


def names(entries: list[Entry] | tuple[Entry, ...]) -> list[tuple[int, int]]:
    return [(e.first, e.last) for e in entries]


class Counting(LocalStorage):
    """Counts what is read, and lets a test act between a listing and what follows it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads = 0
        self.after_list: list[Callable[[], None]] = []
        self.hidden: list[set[str]] = []

    def read(self, path: str) -> bytes:
        self.reads += 1
        return super().read(path)

    def list(self, directory: str) -> list[str]:
        found = super().list(directory)
        if self.hidden:
            hidden = self.hidden.pop(0)
            found = [name for name in found if name not in hidden]
        if self.after_list:
            self.after_list.pop(0)()
        return found


@pytest.fixture
def storage(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def test_an_entry_is_read_back_as_it_was_written() -> None:
    messages = DataFile(data_path(7, 7, 1, None), None, "", 0, 1, 9, Lsn(0x16B3748), Lsn(0x16B3748))
    one = entry(7)
    parts = (SentPart(16_400, 16_390, Lsn(710)),)
    one = replace(one, rows=4, bytes=59, files=(*one.files, messages), parts=parts)
    assert one.name == "00000000000000000007-00000000000000000007.json"
    assert b'"0/16B3748"' in one.to_json()
    assert Entry.from_json(one.to_json(), one.name) == one


@pytest.mark.parametrize(
    "damage",
    [
        {"first": "7"},
        {"first": True},
        {"first": 0, "last": 0},
        {"last": 6},
        {"start_lsn": "16B3748"},
        {"start_lsn": "0/FFFFFFFF"},
        {"end_lsn": 5},
        {"rows": -1},
        {"rows": 4},
        {"bytes": 51},
        {"files": None},
        {"files": [{}]},
        {"files": ["data/x"]},
        {"created_at": None},
        {"parts": [7]},
        {"parts": [[7, 8]]},
        {"parts": [[7, 8, 9]]},
        {"more": 1},
    ],
)
def test_a_damaged_entry_is_refused_with_its_name(damage: dict[str, object]) -> None:
    body = json.dumps({**json.loads(entry(7).to_json()), **damage}).encode()
    with pytest.raises(LogDamagedError, match=r"00000000000000000007-00000000000000000007\.json"):
        Entry.from_json(body, entry(7).name)


@pytest.mark.parametrize("path", ["/etc/passwd", "data/../x", "manifest/x", "data/", "data/.x"])
def test_an_entry_names_files_of_the_log_only(path: str) -> None:
    body = json.loads(entry(7).to_json())
    body["files"][0]["path"] = path
    with pytest.raises(LogDamagedError):
        Entry.from_json(json.dumps(body).encode(), entry(7).name)


def test_half_an_entry_is_refused() -> None:
    body = entry(7).to_json()
    for end in range(len(body)):
        with pytest.raises(LogDamagedError):
            Entry.from_json(body[:end], entry(7).name)


def test_the_name_of_a_data_file_tells_its_epoch() -> None:
    for path in (data_path(1, 1, 42, 7, 3), data_path(1, 16, 42, 7, 3), data_path(1, 1, 42, None)):
        assert epoch_of(path.removeprefix("data/")) == 42
    assert epoch_of(data_path(1, 16, 42, None).removeprefix("data/")) == 42
    assert epoch_of("notes.txt") is None
    assert data_path(7, 7, 3, 16385, 1) == "data/00000000000000000007-3-16385-1.parquet"


def test_the_cover_takes_the_widest() -> None:
    mixed = [entry(n) for n in range(1, 20)] + [entry(1, 16), entry(1, 4), entry(17, 18)]
    assert names(cover(mixed)) == [(1, 16), (17, 18), (19, 19)]
    assert cover([]) == []


@pytest.mark.parametrize(
    "broken",
    [
        [entry(1), entry(3)],
        [entry(1, 4), entry(6), entry(3)],
        [entry(1, 4), entry(3, 6)],
        [entry(1), replace(entry(2), start_lsn=Lsn(201))],
    ],
)
def test_a_hole_is_a_damaged_log(broken: list[Entry]) -> None:
    with pytest.raises(LogDamagedError):
        cover(broken)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_the_cover_is_the_chain_whatever_was_merged(widths: list[int], data: st.DataObject) -> None:
    """Merged entries and any part of what they replaced: the cover is the merged ones, each LSN exactly once."""
    wide, parts, at = [], [], 1
    for width in widths:
        wide.append(entry(at, at + width - 1))
        parts += [entry(n) for n in range(at, at + width)]
        at += width
    left = data.draw(st.lists(st.sampled_from(parts), unique=True))
    chain = cover(data.draw(st.permutations([*wide, *(part for part in left if part not in wide)])))
    assert chain == wide


def test_an_entry_is_read_once_and_forgotten_when_it_is_gone(storage: Counting) -> None:
    writer = Manifest(storage)
    for n in range(1, 6):
        writer.publish(entry(n))
    assert names(writer.entries()) == [(n, n) for n in range(1, 6)]
    assert storage.reads == 0
    reader = Manifest(storage)
    assert reader.entries() == writer.entries() == reader.entries()
    assert storage.reads == 5
    writer.publish(entry(1, 4))
    assert names(reader.entries()) == [(1, 4), (5, 5)]
    assert storage.reads == 6
    assert names(reader.look()[1]) == [(n, n) for n in range(1, 5)]
    for n in range(1, 5):
        storage.delete(entry(n).path)
    assert reader.look() == ((entry(1, 4), entry(5)), ())


def test_other_files_in_the_manifest_are_not_entries(storage: Counting) -> None:
    storage.put("manifest/README", b"")
    storage.put("manifest/1-1.json", b"")
    assert Manifest(storage).entries() == ()


def test_an_entry_that_vanishes_after_the_listing_makes_it_list_again(storage: Counting) -> None:
    writer = Manifest(storage)
    for n in range(1, 5):
        writer.publish(entry(n))

    def compact() -> None:
        writer.publish(entry(1, 4))
        for n in range(1, 5):
            storage.delete(entry(n).path)

    storage.after_list.append(compact)
    assert names(Manifest(storage).entries()) == [(1, 4)]


def test_a_torn_listing_is_not_taken_for_a_hole(storage: Counting) -> None:
    writer = Manifest(storage)
    for n in range(1, 5):
        writer.publish(entry(n))
    storage.hidden = [{entry(3).name}]
    assert names(Manifest(storage).entries()) == [(n, n) for n in range(1, 5)]
    storage.delete(entry(3).path)
    with pytest.raises(LogDamagedError, match="hole"):
        Manifest(storage).entries()


def test_between_gives_the_entries_that_hold_the_changes(storage: Counting) -> None:
    manifest = Manifest(storage)
    assert manifest.between(Lsn(0), Lsn(999)) == []
    for n in range(1, 6):
        manifest.publish(entry(n, files=n != 3))

    def between(after: int, to: int) -> list[int]:
        return [e.first for e in manifest.between(Lsn(after), Lsn(to))]

    assert between(0, 10_000) == [1, 2, 4, 5]
    assert between(200, 300) == [2]
    assert between(199, 301) == [1, 2]
    assert between(500, 500) == []
    assert between(600, 10_000) == []
    # Nothing was removed: the log simply begins later.
    assert between(0, 150) == [1]


def test_between_refuses_what_retention_has_removed(storage: Counting) -> None:
    manifest = Manifest(storage)
    for n in range(1, 6):
        manifest.publish(entry(n))
    for n in (1, 2):
        storage.delete(entry(n).path)
    assert [e.first for e in manifest.between(Lsn(300), Lsn(999))] == [3, 4, 5]
    with pytest.raises(LogGoneError, match=r"0/12B.*0/12C"):
        manifest.between(Lsn(299), Lsn(999))
