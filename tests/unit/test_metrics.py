"""What a scrape is answered with: read by Prometheus' own client, and true of what was seen."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.telemetry_kit import capturing, look, status, table
from walrelay.config.observability import metrics_settings
from walrelay.log.status import SILENT_SECONDS
from walrelay.model.lsn import Lsn
from walrelay.model.names import TableName
from walrelay.model.phases import PHASE_NAMES
from walrelay.telemetry.look import Look, Stock
from walrelay.telemetry.metrics import METRICS, metrics_text
from walrelay.workers.batch_counts import BatchCounts


def samples(seen: Look) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and labels, without the pipeline's."""
    found = {}
    for family in text_string_to_metric_families(metrics_text(seen)):
        assert family.documentation and family.type in ("gauge", "counter", "histogram")
        for one in family.samples:
            labels = {name: value for name, value in one.labels.items() if name != "pipeline"}
            assert one.labels["pipeline"] == "shop"
            found[one.name, frozenset(labels.items())] = one.value
    return found


def value(seen: Look, name: str, **labels: str) -> float | None:
    return samples(seen).get((name, frozenset(labels.items())))


def test_every_metric_is_named_and_explained_as_prometheus_wants_it() -> None:
    names = [one.name for one in METRICS]
    assert len(set(names)) == len(names)
    for one in METRICS:
        assert one.name.startswith("walrelay_") and one.help.endswith("."), one.name
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name


def test_a_scrape_before_anything_is_known_says_only_what_runs() -> None:
    said = {name for name, _ in samples(look(None))}
    assert "walrelay_info" in said
    assert not said & {"walrelay_lag_seconds", "walrelay_source_up", "walrelay_changes_total", "walrelay_tables"}


def test_a_running_pipeline_tells_phases_lag_and_batches() -> None:
    batches = BatchCounts().written(0.2).written(2.0).failed()
    running = status(
        table("public.orders"), table("public.items", "data_sync"), changes=12, batches=batches, lag_seconds=1.5
    )
    seen = look(running, stock=Stock(2_000, 3, {"public.orders": {"copy": {"NUMERIC_NAN": 2}}}, {"public.orders": 4}))
    assert value(seen, "walrelay_changes_total") == 12
    assert value(seen, "walrelay_lag_seconds") == 1.5
    assert {phase: value(seen, "walrelay_tables", phase=phase) for phase in PHASE_NAMES} == {
        **dict.fromkeys(PHASE_NAMES, 0.0), "ready": 1.0, "data_sync": 1.0,
    }  # fmt: skip
    assert value(seen, "walrelay_batch_duration_seconds_bucket", le="0.5") == 1
    assert value(seen, "walrelay_batch_duration_seconds_bucket", le="+Inf") == 2
    assert value(seen, "walrelay_batch_duration_seconds_sum") == pytest.approx(2.2)
    assert value(seen, "walrelay_batch_retries_total") == 1
    assert value(seen, "walrelay_treated_values", table="public.orders", road="copy", kind="numeric_nan") == 2
    assert value(seen, "walrelay_quarantined_changes") == 4
    assert (value(seen, "walrelay_log_bytes"), value(seen, "walrelay_log_segments")) == (2_000, 3)


def test_the_lag_in_bytes_counts_what_capture_and_what_the_destination_lack() -> None:
    behind = status(table("public.t"), position=Lsn(1_000), log_end=Lsn(5_000), capture=capturing(lag_bytes=300))
    assert value(look(behind), "walrelay_lag_bytes") == 4_300
    idle = replace(behind, position=Lsn(5_000))
    assert value(look(idle), "walrelay_lag_bytes") == 300


@pytest.mark.parametrize(
    "capture", [capturing(state="waiting"), capturing(at=time.time() - SILENT_SECONDS - 5)], ids=["waiting", "silent"]
)
def test_while_the_source_is_not_heard_nobody_says_a_lag(capture: Any) -> None:
    seen = look(status(table("public.t"), lag_seconds=None, unknown_since=1.0, capture=capture))
    assert value(seen, "walrelay_source_up") == 0
    assert value(seen, "walrelay_lag_seconds") is None and value(seen, "walrelay_lag_bytes") is None


def test_tables_in_error_have_series_before_others_and_there_is_an_end() -> None:
    tables = [table(f"public.t{number:03}") for number in range(50)]
    tables[40] = table("public.t040", "errored", code="source.rights")
    seen = look(status(*tables), limits=metrics_settings(tables=3))
    named = {dict(labels)["table"] for name, labels in samples(seen) if name == "walrelay_table_phase"}
    assert named == {"public.t040", "public.t000", "public.t001"}
    assert value(seen, "walrelay_tables_without_series") == 47
    assert value(seen, "walrelay_table_error", table="public.t040", code="source.rights") == 1
    assert value(seen, "walrelay_tables", phase="ready") == 49


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "new\nline", "ünïcode", "{a=b}"])
def test_odd_names_of_tables_come_back_as_they_are(name: str) -> None:
    seen = look(status(table(f"public.{name}")))
    named = [dict(labels)["table"] for key, labels in samples(seen) if key == "walrelay_table_phase"]
    assert named == [str(TableName("public", name))]


@pytest.mark.parametrize(
    ("said", "risk"),
    [
        ({"retained_wal_bytes": None}, None),
        ({"retained_wal_bytes": 10}, 0),
        ({"retained_wal_bytes": 900, "safe_wal_bytes": 100}, 1),
        ({"retained_wal_bytes": 100, "safe_wal_bytes": 900}, 0),
        ({"retained_wal_bytes": 900, "safe_wal_bytes": -20}, 1),
        ({"retained_wal_bytes": 10, "wal_status": "unreserved"}, 1),
        ({"retained_wal_bytes": 10, "wal_status": "lost"}, 1),
        ({"retained_wal_bytes": 5_000}, 1),
    ],
)
def test_a_slot_is_at_risk_by_what_postgres_says_and_by_our_own_limit(said: dict[str, Any], risk: int | None) -> None:
    seen = look(status(table("public.t"), capture=capturing(**said)), limits=metrics_settings(wal_limit=4_000))
    assert value(seen, "walrelay_slot_at_risk") == risk


def test_nobody_else_can_ask_unless_that_was_wanted() -> None:
    assert metrics_settings().port is None
    assert metrics_settings(port=9187).host == "127.0.0.1"
