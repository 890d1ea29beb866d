"""One suite for every store. Subclass it with a fixture `store_factory`, and it proves the contract of `stores.base`:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store_factory(self, tmp_path):
            return lambda pipeline_id: MyStore(tmp_path / "state", pipeline_id)

Each call of the factory opens the same place anew, for the pipeline of that id. For failures that explain themselves,
`pytest.register_assert_rewrite("walrelay.testing.store_contract")` before you import it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

from walrelay.model.lineage import Lineage
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    NoRetry,
    Ready,
    SyncDone,
    SyncWait,
    TableReplicationPhase,
    TimedRetry,
)
from walrelay.model.progress import Apply, TableSync
from walrelay.model.schema import Column, PgType, TableLeaf, TableSchema, TypeField
from walrelay.stores.base import WHOLE_PIPELINE, PipelineStore
from walrelay.stores.failures import NoEarlierPhaseError, StoreInUseError, StoreLineageError
from walrelay.stores.records import AppliedDestinationTableMetadata, DestinationTableMetadata

__all__ = ["StoreContract", "StoreFactory"]

StoreFactory = Callable[[str], PipelineStore]

LINEAGE = Lineage("walrelay_shop", "7423456789012345678", 1, Lsn(0x16B3748))
FURTHEST = Lsn(0xFFFFFFFF_FFFFFFFF)
LAST_OID = 0xFFFFFFFF
BROKEN = Errored('the column "naïve\u0000" broke: 50 % of {it}', "mend it; don't panic", NoRetry())

_INT = PgType(23, "int4", display="integer")
_PAIR = PgType(90001, "pair", kind="composite", schema="Odd", fields=(TypeField("a", _INT), TypeField("ü", _INT)))
_PAIRS = PgType(90002, "_pair", kind="array", element=_PAIR, dimensions=2, display='"Odd".pair[][]')


def sample_schema(table: int = 1, *columns: str) -> TableSchema:
    """A shape with something of everything, and these columns more."""
    more = tuple(Column(name, _INT, attnum=number) for number, name in enumerate(columns, start=3))
    return TableSchema(
        table,
        TableName("Odd schema", "tab'le"),
        (Column("id", _INT, nullable=False, attnum=1), Column("pairs", _PAIRS, attnum=2, as_text=True), *more),
        primary_key=("id",),
        row_filter="(note <> 'it''s')",
        leaves=(TableLeaf(table, TableName("public", "part"), 8192, 16384),),
        identity="full",
        identity_columns=("id", "pairs"),
    )


class StoreContract:
    """The obligations of a store, each as a test."""

    durable: ClassVar[bool] = True
    """False for a store that forgets when it is closed: it is then not opened again."""

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        raise NotImplementedError("a subclass gives the fixture store_factory")

    @pytest.fixture
    def store(self, store_factory: StoreFactory) -> Iterator[PipelineStore]:
        store = store_factory("orders")
        yield store
        store.close()

    @contextmanager
    def reopened(self, store: PipelineStore, store_factory: StoreFactory) -> Iterator[PipelineStore]:
        """The store as the next process finds it; one that forgets stays open."""
        if not self.durable:
            yield store
            return
        store.close()
        again = store_factory("orders")
        try:
            yield again
        finally:
            again.close()

    # ------------------------------------------------------------------------------------------------- phases

    def test_a_new_store_knows_nothing(self, store: PipelineStore) -> None:
        assert store.load_table_replication_states() == 0
        assert store.load_table_schemas() == 0
        assert store.load_destination_tables_metadata() == 0
        assert store.load_table_mappings() == 0
        assert store.get_table_replication_states() == {}
        assert store.get_table_replication_state(1) is None
        assert store.get_table_schema(1) is None
        assert store.get_table_schemas() == []
        assert store.get_destination_table_metadata(1) is None
        assert store.get_applied_destination_table_metadata(1) is None
        assert store.get_table_mappings() == {}
        assert store.get_durable_progress(Apply()) is None

    @pytest.mark.parametrize(
        "phase",
        [
            Init(),
            DataSync(),
            FinishedCopy(),
            SyncDone(FURTHEST),
            Ready(),
            BROKEN,
            Errored("lost", None, TimedRetry(3)),
        ],
        ids=lambda phase: type(phase).__name__,
    )
    def test_a_persisted_phase_survives_a_restart(
        self, store: PipelineStore, store_factory: StoreFactory, phase: TableReplicationPhase
    ) -> None:
        store.update_table_replication_state(LAST_OID, phase)
        assert store.get_table_replication_state(LAST_OID) == phase
        with self.reopened(store, store_factory) as again:
            assert again.load_table_replication_states() == 1
            assert again.get_table_replication_states() == {LAST_OID: phase}

    def test_a_read_before_any_load_finds_what_is_stored(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        store.update_table_replication_state(1, Ready())
        store.store_table_schema(sample_schema(), Lsn(10))
        store.store_table_mapping(1, "t")
        store.store_destination_table_metadata(1, DestinationTableMetadata("t", Lsn(10), (True,)))
        with self.reopened(store, store_factory) as again:
            assert again.get_table_replication_state(1) == Ready()
            assert again.get_table_schema(1) is not None
            assert again.get_table_mapping(1) == "t"
            assert again.get_destination_table_metadata(1) is not None

    def test_a_passing_phase_hides_the_persisted_one_until_the_restart(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        store.update_table_replication_state(1, FinishedCopy())
        store.update_table_replication_state(1, SyncWait())
        assert store.get_table_replication_state(1) == SyncWait()
        store.update_table_replication_state(1, Catchup(Lsn(7)))
        assert store.get_table_replication_states() == {1: Catchup(Lsn(7))}
        if not self.durable:
            return
        with self.reopened(store, store_factory) as again:
            assert again.get_table_replication_state(1) == FinishedCopy()

    def test_a_persisted_phase_ends_a_passing_one(self, store: PipelineStore) -> None:
        store.update_table_replication_states({1: FinishedCopy()})
        store.update_table_replication_state(1, Catchup(Lsn(7)))
        store.update_table_replication_state(1, SyncDone(Lsn(9)))
        assert store.get_table_replication_state(1) == SyncDone(Lsn(9))

    def test_several_phases_are_set_at_once(self, store: PipelineStore, store_factory: StoreFactory) -> None:
        store.update_table_replication_states({1: Init(), 2: Ready(), 3: SyncWait()})
        store.update_table_replication_states({})
        assert store.get_table_replication_states() == {1: Init(), 2: Ready(), 3: SyncWait()}
        if not self.durable:
            return
        with self.reopened(store, store_factory) as again:
            assert again.get_table_replication_states() == {1: Init(), 2: Ready()}

    def test_a_bulk_update_is_all_or_nothing(self, store: PipelineStore, store_factory: StoreFactory) -> None:
        store.update_table_replication_states({1: Init(), 2: Init()})
        with pytest.raises(Exception, match=r".*"):
            store.update_table_replication_states({1: Ready(), 2: "no phase"})  # type: ignore[dict-item]
        assert store.get_table_replication_states() == {1: Init(), 2: Init()}
        with self.reopened(store, store_factory) as again:
            assert again.get_table_replication_states() == {1: Init(), 2: Init()}

    # ----------------------------------------------------------------------------------------------- rollback

    def test_a_rollback_goes_back_step_by_step_to_the_first_phase(self, store: PipelineStore) -> None:
        for phase in (Init(), DataSync(), FinishedCopy(), SyncDone(Lsn(9)), Ready(), BROKEN):
            store.update_table_replication_state(1, phase)
        back = [store.rollback_table_replication_state(1) for _ in range(5)]
        assert back == [Ready(), SyncDone(Lsn(9)), FinishedCopy(), DataSync(), Init()]
        with pytest.raises(NoEarlierPhaseError):
            store.rollback_table_replication_state(1)
        assert store.get_table_replication_state(1) == Init()

    def test_a_rollback_of_an_unknown_table_is_refused(self, store: PipelineStore) -> None:
        with pytest.raises(NoEarlierPhaseError):
            store.rollback_table_replication_state(1)

    def test_the_history_and_a_rollback_survive_restarts(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        for phase in (Init(), DataSync(), BROKEN):
            store.update_table_replication_state(1, phase)
        with self.reopened(store, store_factory) as again:
            assert again.rollback_table_replication_state(1) == DataSync()
            with self.reopened(again, store_factory) as third:
                assert third.get_table_replication_state(1) == DataSync()
                assert third.rollback_table_replication_state(1) == Init()

    def test_errors_in_a_row_are_one_step_back(self, store: PipelineStore) -> None:
        store.update_table_replication_state(1, Ready())
        for attempt in (1, 2, 3):
            store.update_table_replication_state(1, Errored("lost", None, TimedRetry(attempt)))
        assert store.rollback_table_replication_state(1) == Ready()

    def test_a_rollback_never_leads_behind_a_newer_copy(self, store: PipelineStore) -> None:
        for phase in (Init(), DataSync(), FinishedCopy(), Ready(), DataSync(), BROKEN):
            store.update_table_replication_state(1, phase)
        assert store.rollback_table_replication_state(1) == DataSync()
        assert store.rollback_table_replication_state(1) == Init()
        with pytest.raises(NoEarlierPhaseError):
            store.rollback_table_replication_state(1)

    def test_a_rollback_of_a_passing_phase_shows_the_persisted_one(self, store: PipelineStore) -> None:
        store.update_table_replication_state(1, FinishedCopy())
        store.update_table_replication_state(1, SyncWait())
        assert store.rollback_table_replication_state(1) == FinishedCopy()
        assert store.get_table_replication_state(1) == FinishedCopy()

    # ----------------------------------------------------------------------------------------------- progress

    def test_progress_never_goes_back(self, store: PipelineStore, store_factory: StoreFactory) -> None:
        assert store.update_durable_progress(Apply(), LINEAGE, Lsn(100)) == Lsn(100)
        assert store.update_durable_progress(Apply(), LINEAGE, Lsn(50)) == Lsn(100)
        assert store.update_durable_progress(Apply(), LINEAGE, FURTHEST) == FURTHEST
        assert store.update_durable_progress(Apply(), LINEAGE, Lsn(0)) == FURTHEST
        with self.reopened(store, store_factory) as again:
            found = again.get_durable_progress(Apply())
            assert found is not None and (found.lineage, found.lsn) == (LINEAGE, FURTHEST)
            assert again.update_durable_progress(Apply(), LINEAGE, Lsn(1)) == FURTHEST

    def test_progress_is_greater_by_number_and_not_by_its_text(self, store: PipelineStore) -> None:
        store.update_durable_progress(Apply(), LINEAGE, Lsn.parse("9/0"))
        assert store.update_durable_progress(Apply(), LINEAGE, Lsn.parse("10/0")) == Lsn.parse("10/0")

    @pytest.mark.parametrize(
        "other",
        [
            replace(LINEAGE, slot="walrelay_other"),
            replace(LINEAGE, system_identifier="1"),
            replace(LINEAGE, timeline=2),
            replace(LINEAGE, created_lsn=Lsn(1)),
        ],
        ids=["slot", "system", "timeline", "created"],
    )
    def test_progress_of_another_lineage_is_refused_until_the_old_one_is_deleted(
        self, store: PipelineStore, other: Lineage
    ) -> None:
        store.update_durable_progress(Apply(), LINEAGE, Lsn(100))
        with pytest.raises(StoreLineageError, match="belongs to slot walrelay_shop"):
            store.update_durable_progress(Apply(), other, Lsn(200))
        found = store.get_durable_progress(Apply())
        assert found is not None and (found.lineage, found.lsn) == (LINEAGE, Lsn(100))
        store.delete_durable_progress(Apply())
        assert store.get_durable_progress(Apply()) is None
        assert store.update_durable_progress(Apply(), other, Lsn(20)) == Lsn(20)
        store.delete_durable_progress(Apply())
        store.delete_durable_progress(Apply())

    def test_each_worker_has_progress_of_its_own(self, store: PipelineStore) -> None:
        for worker, lsn in ((Apply(), 1), (TableSync(1), 2), (TableSync(11), 3)):
            store.update_durable_progress(worker, LINEAGE, Lsn(lsn))
        store.delete_durable_progress(TableSync(1))
        kept = [store.get_durable_progress(worker) for worker in (Apply(), TableSync(1), TableSync(11))]
        assert [progress and progress.lsn for progress in kept] == [1, None, 3]

    def test_progress_from_many_threads_ends_at_the_greatest(self, store: PipelineStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda lsn: store.update_durable_progress(Apply(), LINEAGE, Lsn(lsn)), [5, 9, 3, 12, 1, 7]))
        found = store.get_durable_progress(Apply())
        assert found is not None and found.lsn == 12

    # ------------------------------------------------------------------------------ what the destination has

    def test_what_the_destination_has_survives_a_restart(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        first = DestinationTableMetadata("öl_1", Lsn(10), (True, False, True))
        store.store_destination_table_metadata(1, first)
        assert store.get_destination_table_metadata(1) == first
        store.store_destination_table_metadata(1, first.applied())
        change = first.applied().applying(FURTHEST, (True, True, True, False))
        assert change.previous_snapshot_lsn == Lsn(10)
        store.store_destination_table_metadata(1, change)
        store.store_destination_table_metadata(2, DestinationTableMetadata("none", Lsn(0), ()))
        with self.reopened(store, store_factory) as again:
            assert again.load_destination_tables_metadata() == 2
            assert again.get_destination_table_metadata(1) == change
            assert again.get_destination_table_metadata(2) == DestinationTableMetadata("none", Lsn(0), ())

    def test_a_change_that_is_being_applied_is_not_shown_as_applied(self, store: PipelineStore) -> None:
        applying = DestinationTableMetadata("t", Lsn(10), (True,))
        store.store_destination_table_metadata(1, applying)
        assert store.get_applied_destination_table_metadata(1) is None
        store.store_destination_table_metadata(1, applying.applied())
        expected = AppliedDestinationTableMetadata("t", Lsn(10), (True,))
        assert store.get_applied_destination_table_metadata(1) == expected

    def test_names_at_the_destination_survive_a_restart(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        store.store_table_mapping(1, "public_orders")
        store.store_table_mapping(1, 'public."orders"')
        store.store_table_mappings({LAST_OID: "other", 1: 'public."orders"'})
        assert store.get_table_mapping(1) == 'public."orders"'
        assert store.get_table_mapping(2) is None
        with self.reopened(store, store_factory) as again:
            assert again.load_table_mappings() == 2
            assert again.get_table_mappings() == {1: 'public."orders"', LAST_OID: "other"}

    # ------------------------------------------------------------------------------------------------- shapes

    def test_the_greatest_version_not_beyond_the_lsn_is_found(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        lsns = [Lsn.parse("0/10"), Lsn.parse("9/0"), Lsn.parse("10/0")]
        for lsn in (lsns[2], lsns[0], lsns[1]):
            stored = store.store_table_schema(sample_schema(1, f"since_{lsn:x}"), lsn)
            assert (stored.schema, stored.snapshot_lsn) == (sample_schema(1, f"since_{lsn:x}"), lsn)
        store.store_table_schema(sample_schema(2), Lsn(1))

        def check(reader: PipelineStore) -> None:
            assert reader.get_table_schema(1, Lsn(0xF)) is None
            for asked, held in ((lsns[0], lsns[0]), (Lsn(lsns[1] - 1), lsns[0]), (lsns[1], lsns[1])):
                found = reader.get_table_schema(1, asked)
                assert found is not None and found.snapshot_lsn == held
                assert found.schema == sample_schema(1, f"since_{held:x}")
            for newest in (reader.get_table_schema(1), reader.get_table_schema(1, FURTHEST)):
                assert newest is not None and newest.snapshot_lsn == lsns[2]
            assert [found.snapshot_lsn for found in reader.get_table_schemas()] == [*lsns, Lsn(1)]

        check(store)
        with self.reopened(store, store_factory) as again:
            assert again.load_table_schemas() == 4
            check(again)

    def test_a_shape_stored_again_for_its_lsn_replaces_the_old_one(self, store: PipelineStore) -> None:
        store.store_table_schema(sample_schema(1), Lsn(10))
        store.store_table_schema(sample_schema(1, "new"), Lsn(10))
        assert [found.schema for found in store.get_table_schemas()] == [sample_schema(1, "new")]
        assert store.load_table_schemas() == 1

    def test_pruning_keeps_the_version_that_the_retention_needs_and_all_later_ones(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        for table in (1, 2, 3):
            for lsn in (10, 20, 30):
                store.store_table_schema(sample_schema(table), Lsn(lsn))
        assert store.prune_table_schemas({1: Lsn(29), 2: Lsn(9), 4: Lsn(30)}) == 1
        assert store.prune_table_schemas({1: Lsn(29)}) == 0
        assert store.prune_table_schemas({3: Lsn(30)}) == 2
        kept = [(1, 20), (1, 30), (2, 10), (2, 20), (2, 30), (3, 30)]
        assert [(found.schema.id, found.snapshot_lsn) for found in store.get_table_schemas()] == kept
        with self.reopened(store, store_factory) as again:
            assert [(found.schema.id, found.snapshot_lsn) for found in again.get_table_schemas()] == kept

    # --------------------------------------------------------------------------------------------- forgetting

    def test_clearing_for_a_copy_keeps_the_phases_and_the_name_at_the_destination(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        for table in (1, 11):
            _fill(store, table)
        store.update_durable_progress(Apply(), LINEAGE, Lsn(5))
        store.clear_table_copy_state(1)
        store.clear_table_copy_state(1)

        def check(reader: PipelineStore) -> None:
            assert reader.get_table_replication_states() == {1: DataSync(), 11: DataSync()}
            assert reader.get_table_mappings() == {1: "t1", 11: "t11"}
            _check_copy_state(reader, 1, there=False)
            _check_copy_state(reader, 11, there=True)
            assert reader.get_durable_progress(Apply()) is not None

        check(store)
        with self.reopened(store, store_factory) as again:
            check(again)
            assert again.rollback_table_replication_state(1) == Init()

    def test_deleting_a_table_leaves_nothing_of_it_and_all_of_the_others(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        for table in (1, 11):
            _fill(store, table)
        store.update_table_replication_state(1, SyncWait())
        store.update_durable_progress(Apply(), LINEAGE, Lsn(5))
        store.delete_table_pipeline_state(1)
        store.delete_table_pipeline_state(1)

        def check(reader: PipelineStore) -> None:
            assert reader.get_table_replication_states() == {11: DataSync()}
            assert reader.get_table_mappings() == {11: "t11"}
            _check_copy_state(reader, 1, there=False)
            _check_copy_state(reader, 11, there=True)
            assert reader.get_durable_progress(Apply()) is not None
            with pytest.raises(NoEarlierPhaseError):
                reader.rollback_table_replication_state(1)

        check(store)
        with self.reopened(store, store_factory) as again:
            check(again)

    # ----------------------------------------------------------------------------- several pipelines, threads

    def test_facts_survive_a_restart_and_go_with_their_table(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        store.store_fact(1, "print", {"a": [1, "é"]})
        store.store_fact(1, "print", {"a": [2]})
        store.store_fact(2, "print", "two")
        store.store_fact(2, "other", 7)
        store.store_fact(WHOLE_PIPELINE, "print", True)
        with self.reopened(store, store_factory) as again:
            assert again.get_facts("print") == {1: {"a": [2]}, 2: "two", WHOLE_PIPELINE: True}
            again.clear_table_copy_state(1)
            again.delete_table_pipeline_state(2)
            again.store_fact(WHOLE_PIPELINE, "print", None)
            assert again.get_facts("print") == {1: {"a": [2]}}
            assert again.get_facts("other") == {} == again.get_facts("unknown")

    def test_pipelines_that_share_a_place_do_not_see_each_other(self, store_factory: StoreFactory) -> None:
        ours, theirs = store_factory("orders"), store_factory("order's %")
        try:
            _fill(ours, 1)
            theirs.update_table_replication_state(1, Ready())
            assert theirs.update_durable_progress(TableSync(1), replace(LINEAGE, timeline=9), Lsn(1)) == 1
            theirs.delete_table_pipeline_state(1)
            assert ours.get_table_replication_states() == {1: DataSync()}
            _check_copy_state(ours, 1, there=True)
            assert ours.load_table_schemas() == 1
            assert theirs.load_table_schemas() == 0
        finally:
            ours.close()
            theirs.close()

    def test_writers_in_many_threads_lose_nothing(self, store: PipelineStore, store_factory: StoreFactory) -> None:
        barrier = threading.Barrier(4)

        def work(first: int) -> None:
            barrier.wait(30)
            for table in range(first, first + 5):
                store.update_table_replication_state(table, Init())
                store.store_table_schema(sample_schema(table), Lsn(table))
                store.update_table_replication_state(table, DataSync())
                assert store.get_table_replication_state(table) == DataSync()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, (10, 20, 30, 40)))
        assert len(store.get_table_replication_states()) == len(store.get_table_schemas()) == 20
        with self.reopened(store, store_factory) as again:
            assert set(again.get_table_replication_states().values()) == {DataSync()}
            assert again.load_table_replication_states() == again.load_table_schemas() == 20

    # ------------------------------------------------------------------------------------------------ the lock

    def test_a_pipeline_runs_once(self, store: PipelineStore, store_factory: StoreFactory) -> None:
        other = store_factory("orders")
        try:
            with store.acquire_pipeline_lock() as lock:
                lock.check()
                for second in (other, store):
                    with pytest.raises(StoreInUseError, match="orders") as caught, second.acquire_pipeline_lock():
                        pytest.fail("two run the same pipeline")
                    assert caught.value.hint
                lock.check()
            with other.acquire_pipeline_lock():
                pass
        finally:
            other.close()

    def test_who_only_looks_whether_a_pipeline_runs_does_not_keep_it_from_starting(
        self, store: PipelineStore, store_factory: StoreFactory
    ) -> None:
        status, held = store_factory("orders"), threading.Event()

        def look() -> None:
            with status.acquire_pipeline_lock():
                held.set()
                time.sleep(0.02)

        try:
            with ThreadPoolExecutor(1) as pool:
                looking = pool.submit(look)
                assert held.wait(30)
                with store.acquire_pipeline_lock():
                    pass
                looking.result()
        finally:
            status.close()

    def test_the_lock_is_let_go_when_the_block_fails(self, store: PipelineStore) -> None:
        with pytest.raises(ZeroDivisionError), store.acquire_pipeline_lock():
            raise ZeroDivisionError
        with store.acquire_pipeline_lock():
            pass

    def test_pipelines_of_different_names_run_side_by_side(self, store_factory: StoreFactory) -> None:
        ours, theirs = store_factory("orders"), store_factory("a/b " + "x" * 300)
        try:
            with ours.acquire_pipeline_lock(), theirs.acquire_pipeline_lock() as lock:
                lock.check()
        finally:
            ours.close()
            theirs.close()

    def test_closing_twice_does_no_harm(self, store: PipelineStore) -> None:
        store.close()
        store.close()


def _fill(store: PipelineStore, table: int) -> None:
    store.update_table_replication_state(table, Init())
    store.update_table_replication_state(table, DataSync())
    store.store_table_schema(sample_schema(table), Lsn(10))
    store.store_table_mapping(table, f"t{table}")
    store.store_destination_table_metadata(table, DestinationTableMetadata(f"t{table}", Lsn(10), (True,)).applied())
    store.update_durable_progress(TableSync(table), LINEAGE, Lsn(100 + table))


def _check_copy_state(store: PipelineStore, table: int, *, there: bool) -> None:
    kept = (
        store.get_table_schema(table),
        store.get_destination_table_metadata(table),
        store.get_durable_progress(TableSync(table)),
    )
    assert [part is not None for part in kept] == [there] * len(kept)
