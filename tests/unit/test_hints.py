"""Every error code that can be printed has a test that follows its hint, or a reason why not (SEMANTICS 26)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from walrelay.control.error_page import error_classes, is_family

ROOT = Path(__file__).parents[2]
CODES = {kind.code for kind in error_classes() if not is_family(kind)}
HERE = ("tests/integration/test_hints.py", "tests/integration/test_hints_places.py", "tests/spark/test_hints.py")
"""There the code stands in `refused(code)`, and what its hint says is done after that."""

ELSEWHERE = {
    "config.no_place_for_kernels": "unit/test_kernel_places.py"
    "::test_where_nothing_can_be_written_the_error_says_what_to_set",
    "config.listen_address": "unit/test_telemetry_server.py"
    "::test_an_address_that_is_taken_is_refused_by_name_and_another_one_is_not",
    "changes.undecoded": "spark/test_quarantine.py::test_by_policy_the_table_waits_for_a_person_and_the_others_go_on",
    "destination.login": "warehouse/test_clickhouse_refusals.py::test_a_wrong_password_and_a_server_that_is_not_there",
    "destination.copy_again": "spark/test_altered_tables.py"
    "::test_tables_whose_older_rows_have_got_values_are_copied_again_and_no_others",
    "destination.rights": "warehouse/test_clickhouse_refusals.py"
    "::test_rights_that_are_missing_are_named_with_the_grant",
    "destination.missing_row": "spark/test_keys.py"
    "::test_a_partition_that_gets_another_identity_while_it_is_followed_is_refused",
    "destination.no_such_place": "warehouse/test_warehouse_refusals.py"
    "::test_a_place_that_is_not_there_is_named_and_found_once_it_is_made",
    "destination.not_durable": "spark/test_live_pipeline.py"
    "::test_what_is_only_accepted_is_sent_again_until_it_is_durable",
    "destination.other_destination": "spark/test_begin_anew.py::test_another_file_in_the_place_of_the_destination",
    "destination.unreachable": "warehouse/test_clickhouse_refusals.py"
    "::test_a_server_that_went_away_comes_back_with_what_it_had",
    "destination.postgres_locked": "warehouse/test_postgres_refusals.py"
    "::test_a_reader_s_lock_is_not_waited_for_for_ever",
    "destination.postgres_rights": "warehouse/test_postgres_refusals.py"
    "::test_missing_rights_are_named_with_the_grant_that_brings_them",
    "destination.postgres_type": "warehouse/test_postgres_refusals.py"
    "::test_a_type_of_an_extension_that_is_missing_is_named_with_what_to_run",
    "destination.postgres_unreachable": "warehouse/test_postgres_refusals.py"
    "::test_a_connection_that_is_lost_is_made_anew",
    "destination.unsent_value": "spark/test_keys.py"
    "::test_a_row_that_a_filter_lets_in_without_a_value_is_refused_by_name_and_copied_after_the_remedy",
    "log.gone": "spark/test_identity.py::test_a_backup_that_the_log_does_not_reach_is_copied_again",
    "log.in_use": "faults/test_capture_refusals.py::test_a_second_capture_on_the_same_log",
    "log.not_fed": "spark/test_followed_log.py::test_a_log_that_nobody_writes_is_not_waited_for_for_ever",
    "source.connection_lost": "faults/test_lost_connection.py::test_the_table_is_copied_again_from_its_start",
    "source.leaf_identity": "spark/test_keys.py"
    "::test_a_partition_with_another_identity_than_its_root_is_refused_by_name",
    "source.log_ahead": "faults/test_wrong_server.py::test_a_promoted_server_that_is_behind_the_log_is_refused",
    "source.migration_rights": "integration/test_migrate_source.py::test_a_role_that_may_not_is_told_what_it_can_do",
    "source.migration_schema": "integration/test_migrate_source.py::test_a_schema_of_another_role_is_not_built_upon",
    "source.publication_younger": "spark/test_begin_anew.py::test_a_publication_that_was_dropped_and_made_again",
    "source.put_back": "faults/test_wrong_server.py::test_a_server_that_was_put_back_is_refused",
    "source.slot_lost": "faults/test_capture_refusals.py::test_a_slot_whose_wal_is_gone",
    "source.table_locked": "spark/test_live_pipeline.py"
    "::test_a_truncate_that_comes_while_a_table_is_copied_stops_neither",
    "source.slot_not_ours": "integration/test_slots.py::test_a_slot_that_is_missing_or_not_ours_is_refused",
    "source.tls_client_certificate": "integration/test_tls.py::test_client_certificates",
    "source.tls_host_name": "integration/test_tls.py::test_a_certificate_for_another_host",
    "source.tls_not_offered": "integration/test_tls.py::test_a_server_without_tls",
    "source.tls_required": "integration/test_tls.py::test_a_server_that_takes_no_unencrypted_connection",
    "source.tls_untrusted": "integration/test_tls.py::test_a_server_whose_authority_is_not_trusted",
    "spark.lost": "faults/test_killed_pipeline.py"
    "::test_spark_killed_in_a_copy_and_among_changes_is_named_and_the_next_run_goes_on",
    "spark.worker_lost": "spark/test_live_pipeline.py::test_a_copy_whose_spark_worker_is_killed_begins_again",
    "table.option": "spark/test_shaped_pipeline.py::test_tables_that_are_put_aside_come_back_by_their_hints",
    "table.options_lost": "spark/test_shaped_pipeline.py::test_tables_that_are_put_aside_come_back_by_their_hints",
    "table.schema_changed": "spark/test_shaped_pipeline.py::test_tables_that_are_put_aside_come_back_by_their_hints",
    "table.transform_failed": "spark/test_shaping_functions.py"
    "::test_a_function_that_fails_on_a_row_puts_its_table_aside_and_the_others_go_on",
    "table.truncated": "spark/test_shaped_pipeline.py::test_tables_that_are_put_aside_come_back_by_their_hints",
}
"""The test that goes the whole way, below tests/."""

_NEWER = "only a newer walrelay writes what this one refuses, and the hint is to use that one"
_DISK = "a disk that is full, and then is not, needs one to be mounted; tests/faults/test_full_disk.py fills a file"
_DEBUG = "what is meant is not known beforehand; the hint shows how to see more"
_STANDBY = "by itself, as tests/spark/test_standby_source.py shows, but for the moment it takes luck to meet"

_TARGET = "no test follows it yet: it is done at the database that is written to, as source.* do it at the source"

NOT_WALKED = {
    "destination.throttled": "the emulators of warehouses have no quotas; the pipeline sends again what may be",
    "capture.died": _DEBUG,
    "demo.pipeline_ended": "it repeats the hint of the error that ended the demo's pipeline",
    "destination": _DEBUG,
    "destination.not_verifiable": "its destination has no way to compare; the hint names those that have",
    "destination.unnamed_row": "tests/unit/test_duckdb_collapse.py makes it; a server that sends such a change only "
    "does so while an identity is altered, which source.leaf_identity and destination.missing_row walk through",
    "destination.own_source": "the hint is to give another database",
    "destination.postgres_full": _DISK,
    "destination.postgres_login": _TARGET,
    "destination.postgres_read_only": _TARGET,
    "log.disk_full": _DISK,
    "destination.newer_format": _NEWER,
    "log.newer_format": _NEWER,
    "log.schema_changed": "tests/unit/test_change_rows.py makes it; it needs a shape that nobody has seen",
    "log.unlike_schemas": "compaction leaves such files apart and goes on; nobody sees it",
    "log.unreachable": "tried again by itself; tests/integration/test_log_on_s3.py has the object store",
    "log.xids_unknown": "copied again by itself; it needs a transaction of half an epoch of xids",
    "pipeline.phase_order": "a mistake of walrelay's own",
    "pipeline.stopped": "somebody stopped it; the next run copies the table",
    "source": _DEBUG,
    "source.migration_newer": _NEWER,
    "source.tls": _DEBUG,
    "source.recovery_conflict": _STANDBY,
    "source.standby_behind": _STANDBY,
    "source.uncertain_cut": _STANDBY,
    "spark.job_failed": _DEBUG,
    "staging": _DEBUG,
    "staging.disk_full": _DISK,
    "store": _DEBUG,
    "store.disk_full": _DISK,
    "store.lineage": "a pipeline finds that out before, as source.other_server",
    "store.newer_schema": _NEWER,
    "wire.bad_bytes": "a broken server or a mistake of walrelay's own; the hint is to report it",
}


def _functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _walked() -> set[str]:
    """Every code that a test gives to `refused`, by itself or by a table that is called EXPECTED."""
    found: set[str] = set()
    for file in HERE:
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            asks = isinstance(node, ast.Call) and ast.unparse(node.func) == "refused"
            lists = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPECTED"
            if asks or lists:
                found |= {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)} & CODES
    return found


def test_every_code_is_walked_or_excused() -> None:
    known = _walked() | ELSEWHERE.keys() | NOT_WALKED.keys()
    assert known - CODES == set(), "no such code, or no longer"
    assert CODES - known == set(), "follow its hint in a test, or say why that cannot be done"
    assert NOT_WALKED.keys() & (_walked() | ELSEWHERE.keys()) == set(), "it is walked, and needs no excuse"


@pytest.mark.parametrize("code", ELSEWHERE)
def test_what_is_said_to_be_elsewhere_is_there(code: str) -> None:
    file, _, name = ELSEWHERE[code].partition("::")
    assert name in _functions(f"tests/{file}")
