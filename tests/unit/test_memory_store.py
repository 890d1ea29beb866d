"""The memory store keeps its contract."""

from __future__ import annotations

import pytest

from walrelay import MemoryStore
from walrelay.model.names import TableName
from walrelay.model.phases import DataSync, Errored, Init, NoRetry, SyncWait
from walrelay.model.schema import TableSchema


def test_phases_are_kept_with_their_history() -> None:
    store = MemoryStore()
    store.update_table_replication_states({1: Init(), 2: Init()})
    store.update_table_replication_state(1, DataSync())
    store.update_table_replication_state(1, Errored("broken", None, NoRetry()))
    assert store.get_table_replication_states() == {1: Errored("broken", None, NoRetry()), 2: Init()}
    assert store.rollback_table_replication_state(1) == DataSync()
    assert store.rollback_table_replication_state(1) == Init()
    with pytest.raises(KeyError):
        store.rollback_table_replication_state(1)


def test_a_passing_phase_hides_the_kept_one_but_does_not_replace_it() -> None:
    store = MemoryStore()
    store.update_table_replication_state(1, DataSync())
    store.update_table_replication_state(1, SyncWait())
    assert store.get_table_replication_state(1) == SyncWait()
    store.update_table_replication_state(1, Init())
    assert store.rollback_table_replication_state(1) == DataSync()


def test_clearing_keeps_the_phase_and_deleting_keeps_nothing() -> None:
    store = MemoryStore()
    schema = TableSchema(1, TableName("public", "t"), ())
    store.store_table_schema(schema)
    store.update_table_replication_state(1, DataSync())
    assert store.get_table_schema(1) == schema
    store.clear_table_copy_state(1)
    assert (store.get_table_schema(1), store.get_table_replication_state(1)) == (None, DataSync())
    store.delete_table_pipeline_state(1)
    assert store.get_table_replication_states() == {}
