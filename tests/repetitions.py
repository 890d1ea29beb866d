"""How much of a long repetition runs: `make test` takes a part of it, `make kills` and `make long` all."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
ALL_KILLS = bool(os.environ.get("WALRELAY_ALL_KILLS"))
LONG = (
    # Each of these starts several JVMs or servers; beside each stands what `make test` has of the same.
    "tests/e2e/test_demo.py::test_killed_demo_takes_its_processes_along",  # the demo interrupted at two moments
    "tests/e2e/test_examples.py::test_tables_in_a_lake[into_delta.py]",  # Delta's page
    "tests/faults/test_killed_copy.py::test_copies_killed_at_random_moments",  # drivers killed at every place
    "tests/faults/test_killed_helpers.py::test_spark_workers_killed",  # tests/spark/test_live_pipeline.py kills one
    "tests/faults/test_killed_pipeline.py::test_spark_killed_in_a_copy",  # tests/faults/test_orderly_ends.py
    "tests/integration/test_change_road.py::test_every_sample_of_a_wild_workload_is_found_in_the_log[2]",  # seed 1
    "tests/integration/test_migrate_source.py::test_it_is_installed_once_and_removed_without_a_trace[15]",  # 14, 18
    "tests/integration/test_migrate_source.py::test_it_is_installed_once_and_removed_without_a_trace[16]",
    "tests/integration/test_migrate_source.py::test_it_is_installed_once_and_removed_without_a_trace[17]",
    "tests/integration/test_verify.py::test_nothing_is_reported_under_load",  # where nothing differs; one wrong row
    "tests/lake/test_iceberg_catalog.py::test_tables_made_side_by_side",  # pipelines make tables side by side too
    "tests/lake/test_lake_contract.py::TestDeltaDestination::test_a_batch_may_come_again",  # Iceberg's
    "tests/lake/test_lake_contract.py::TestDeltaDestination::test_a_key_is_held_exactly",
    "tests/lake/test_lake_contract.py::TestDeltaDestination::test_a_table_that_catches_up",
    "tests/lake/test_lake_contract.py::TestDeltaDestination::test_what_was_durable_is_there",
    "tests/lake/test_lake_maintenance.py",
    "tests/lake/test_lake_pages.py::test_the_page_works_as_it_stands[iceberg]",  # its example
    "tests/lake/test_lake_pipeline.py::test_a_pipeline_into_a_lake_keeps_tables_equal_through_changes_and_altered"
    "_columns[delta]",  # Iceberg's, which takes half the time
    "tests/lake/test_lake_types.py",  # the contract's special values; tests/roundtrip for the decoders
    "tests/roundtrip/test_large_values.py::test_text_and_bytes_of_100_mb_each",
    "tests/roundtrip/test_stream_types.py::test_streamed_value_is_what_a_copy_gives_and_what_postgres_prints[16-",
    "tests/roundtrip/test_types.py::test_value_reads_back_as_postgres_prints_it[16-",  # 14 and 18
    "tests/spark/test_cluster.py::test_a_pipeline_on_a_cluster_that_is_killed",  # a copy and a read on a cluster
    "tests/spark/test_duckdb_frames.py::test_every_type_comes_through_spark",
    "tests/spark/test_handover.py::test_transactions_around_the_snapshot_arrive_once[3]",  # run 0
    "tests/spark/test_random_worlds.py::test_a_random_world_arrives_whole[1-plain]",  # the one with the trigger
    "tests/spark/test_shape_matrix.py::test_both_sides_are_equal_whatever_happened_to_the_tables[tables-one",  # live
    "tests/spark/test_shape_matrix.py::test_both_sides_are_equal_whatever_happened_to_the_tables[tables-backlog",
    "tests/spark/test_shape_matrix.py::test_both_sides_are_equal_whatever_happened_to_the_tables[listed-backlog",
    "tests/spark/test_shape_matrix.py::test_both_sides_are_equal_whatever_happened_to_the_tables[root-backlog",
    "tests/spark/test_standby_source.py::test_a_transaction_that_is_open_during_the_copy_arrives[18]",  # 16
    "tests/spark/test_standby_source.py::test_tables_without_a_key_get_every_row_once_under_load[18]",
)
"""How the names of tests begin that `make test` leaves to `make long`, besides those that are marked `long`."""


def some(short: T, whole: T) -> T:
    """What is to be done now."""
    return whole if ALL_KILLS else short
