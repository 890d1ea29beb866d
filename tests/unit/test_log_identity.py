"""A log belongs to one slot lineage, and says in which format it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from walrelay.log.failures import LogDamagedError, LogLineageError, LogNewerFormatError
from walrelay.log.identity import claim, read_lineage
from walrelay.log.storage import Storage, open_storage
from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn

OURS = Lineage("walrelay", "7301234567890123456", 1, Lsn(0x16B3748))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def test_the_first_claim_begins_the_log_and_the_next_finds_it(storage: Storage) -> None:
    assert read_lineage(storage) is None
    claim(storage, OURS)
    claim(storage, OURS)
    assert read_lineage(storage) == OURS
    assert json.loads(storage.read("log.json"))["lineage"]["created_lsn"] == "0/16B3748"


@pytest.mark.parametrize(
    "other",
    [
        replace(OURS, slot="another"),
        replace(OURS, system_identifier="1"),
        replace(OURS, timeline=2),
        replace(OURS, created_lsn=Lsn(1)),
    ],
)
def test_another_lineage_is_refused_naming_both(storage: Storage, other: Lineage) -> None:
    claim(storage, OURS)
    with pytest.raises(LogLineageError) as refused:
        claim(storage, other)
    assert str(OURS) in refused.value.message and str(other) in refused.value.message
    assert "another log directory" in refused.value.hint


def test_a_newer_format_is_refused(storage: Storage) -> None:
    storage.put("log.json", b'{"format": 2, "anything": 1}')
    with pytest.raises(LogNewerFormatError, match="format 2"):
        read_lineage(storage)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"format": "1"}', b'{"format": 1}', b'{"format": 1, "lineage": {"slot": 1}}']
)
def test_a_damaged_identity_is_refused(storage: Storage, body: bytes) -> None:
    storage.put("log.json", body)
    with pytest.raises(LogDamagedError, match=r"log\.json"):
        read_lineage(storage)


def test_entries_without_an_identity_are_not_taken_over(storage: Storage) -> None:
    storage.put("manifest/00000000000000000001-00000000000000000001.json", b"{}")
    with pytest.raises(LogDamagedError, match="missing"):
        claim(storage, OURS)
