"""What is peculiar to the memory store; the contract is proved in tests/contract/test_stores.py."""

from __future__ import annotations

import pytest

from walrelay import MemoryStore
from walrelay.errors import ConfigError
from walrelay.model.phases import DataSync, Errored, Init, NoRetry
from walrelay.stores.failures import StoreInUseError


def test_phases_are_kept_with_their_history() -> None:
    store = MemoryStore()
    store.update_table_replication_states({1: Init(), 2: Init()})
    store.update_table_replication_state(1, DataSync())
    store.update_table_replication_state(1, Errored("broken", None, NoRetry()))
    assert store.load_table_replication_states() == 2
    assert store.get_table_replication_states() == {1: Errored("broken", None, NoRetry()), 2: Init()}
    assert store.rollback_table_replication_state(1) == DataSync()


def test_stores_without_an_id_do_not_exclude_each_other() -> None:
    with MemoryStore().acquire_pipeline_lock(), MemoryStore().acquire_pipeline_lock():
        pass


def test_who_holds_the_lock_is_told() -> None:
    with (
        MemoryStore("orders").acquire_pipeline_lock(),
        pytest.raises(StoreInUseError, match=r"runs the pipeline orders already \(thread MainThread\)"),
        MemoryStore("orders").acquire_pipeline_lock(),
    ):
        pass


@pytest.mark.parametrize("pipeline_id", ["", "a\0b"])
def test_a_pipeline_needs_an_id(pipeline_id: str) -> None:
    with pytest.raises(ConfigError, match="needs an id"):
        MemoryStore(pipeline_id)
