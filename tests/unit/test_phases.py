"""Phases follow each other as SEMANTICS 10 says, and come back from JSON as they were."""

from __future__ import annotations

import json
from itertools import product

import pytest

from walrelay.model.lsn import Lsn
from walrelay.model.phases import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    LateRetry,
    NoRetry,
    Ready,
    SyncDone,
    SyncWait,
    TableReplicationPhase,
    TimedRetry,
    advanced,
    may_follow,
    phase_from_json,
    phase_name,
    phase_to_json,
)

BROKEN = Errored("broken", "mend it", TimedRetry(2))
ALL = (Init(), DataSync(), FinishedCopy(), SyncWait(), Catchup(Lsn(5)), SyncDone(Lsn(5)), Ready(), BROKEN)
# Read off the table in docs/semantics.md, by name. Whatever a table's phase, it may fail, or begin anew.
NEXT = {
    None: {"init"},
    "init": {"init", "data_sync", "errored"},
    "data_sync": {"init", "data_sync", "finished_copy", "errored"},
    "finished_copy": {"init", "data_sync", "sync_wait", "errored"},
    "sync_wait": {"init", "catchup", "errored"},
    "catchup": {"init", "sync_done", "errored"},
    "sync_done": {"init", "sync_done", "ready", "errored"},
    "ready": {"init", "ready", "errored"},
    "errored": {"init", "data_sync", "finished_copy", "sync_done", "ready", "errored"},
}


def test_phases_follow_each_other_as_the_table_says() -> None:
    for before, after in product((None, *ALL), ALL):
        expected = phase_name(after) in NEXT[None if before is None else phase_name(before)]
        assert may_follow(before, after) is expected, (before, after)


def test_a_catch_up_ends_at_its_target_or_beyond() -> None:
    assert may_follow(Catchup(Lsn(5)), SyncDone(Lsn(6)))
    assert not may_follow(Catchup(Lsn(5)), SyncDone(Lsn(4)))


GIVEN_UP = (Errored("x", None, NoRetry(), "source.rights"), Errored("x", None, LateRetry(), "x", 1.5))


@pytest.mark.parametrize("phase", [*ALL, *GIVEN_UP], ids=phase_name)
def test_phases_come_back_from_json(phase: TableReplicationPhase) -> None:
    assert phase_from_json(json.loads(json.dumps(phase_to_json(phase)))) == phase


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"phase": "unheard_of"},
        {"phase": "sync_done"},
        {"phase": "sync_done", "lsn": "?"},
        {"phase": "errored", "reason": "x", "solution": None, "retry_policy": {"kind": "daily"}},
    ],
    ids=str,
)
def test_what_is_no_phase_is_refused(body: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError)):
        phase_from_json(body)


def test_an_error_of_an_earlier_version_has_no_code() -> None:
    body = {"phase": "errored", "reason": "x", "solution": None, "retry_policy": {"kind": "none"}}
    assert phase_from_json(body) == Errored("x", None, NoRetry(), "walrelay", None)


def test_a_history_rises_and_forgets_what_a_newer_copy_undid() -> None:
    history = ()
    for phase in (Init(), DataSync(), BROKEN, DataSync(), FinishedCopy(), SyncDone(Lsn(5)), Ready(), BROKEN):
        history = advanced(history, phase)
    assert history == (Init(), DataSync(), FinishedCopy(), SyncDone(Lsn(5)), Ready(), BROKEN)
    assert advanced(history, DataSync()) == (Init(), DataSync())
    assert advanced(history, Init()) == (Init(),)
