"""What is told to those who do not look, and when a pipeline counts as healthy and as ready."""

from __future__ import annotations

import time
from typing import Any

from tests.telemetry_kit import capturing, look, status, table
from walrelay.config.observability import metrics_settings
from walrelay.errors import SlotLostError
from walrelay.telemetry.events import Watchman, ended
from walrelay.telemetry.health import health, readiness
from walrelay.workers.report import RunSummary
from walrelay.workers.status import PipelineStatus


def told(watchman: Watchman, seen: PipelineStatus | None, **more: Any) -> list[str]:
    return [one.name for one in watchman.news(look(seen, **more))]


def test_a_table_that_fails_again_and_again_is_told_once_and_when_it_is_back() -> None:
    watchman, broken = Watchman(), table("public.t", "errored", "source.rights")
    assert told(watchman, status(table("public.t", "init"))) == []
    (event,) = watchman.news(look(status(broken)))
    assert event.body() | {"id": "", "at": ""} == {
        "event": "table_failed", "id": "", "at": "", "pipeline": "shop", "table": "public.t",
        "code": "source.rights", "message": "it may not be read", "hint": "GRANT SELECT",
    }  # fmt: skip
    for phase in ("init", "data_sync", "errored", "catchup", "errored"):
        assert told(watchman, status(table("public.t", phase, "source.rights"))) == []
    assert told(watchman, status(table("public.t"))) == ["table_recovered"]
    assert told(watchman, status(table("public.t"))) == []
    assert told(watchman, status(broken)) == ["table_failed"]


def test_a_lag_is_told_when_it_passes_its_limit_and_not_while_it_is_unknown() -> None:
    watchman, limits = Watchman(), metrics_settings(lag_limit=10)
    unknown = status(lag_seconds=None, unknown_since=time.time(), capture=capturing(state="waiting"))
    assert told(watchman, status(lag_seconds=9.0), limits=limits) == []
    assert told(watchman, status(lag_seconds=11.0), limits=limits) == ["lag_over_limit"]
    assert told(watchman, status(lag_seconds=90.0), limits=limits) == []
    assert told(watchman, unknown, limits=limits) == []
    assert told(watchman, None, limits=limits) == []
    assert told(watchman, status(lag_seconds=0.0), limits=limits) == ["lag_under_limit"]


def test_a_slot_is_told_at_risk_and_safe_again() -> None:
    watchman = Watchman()
    risky, safe = capturing(wal_status="unreserved"), capturing()
    assert told(watchman, status(capture=risky)) == ["slot_at_risk"]
    assert told(watchman, status(capture=risky)) == []
    assert told(watchman, status(capture=None)) == []
    assert told(watchman, status(capture=safe)) == ["slot_safe"]


def test_the_end_says_how_it_came() -> None:
    body = ended("shop", time.time(), None, SlotLostError("the slot is gone")).body()
    assert (body["event"], body["outcome"], body["code"]) == ("pipeline_ended", "failed", SlotLostError.code)
    assert body["message"] == "the slot is gone" and body["hint"]
    body = ended("shop", time.time(), RunSummary((), 2.0, changes=7), None).body()
    assert (body["outcome"], body["changes"]) == ("stopped", 7)
    assert ended("shop", time.time(), None, KeyError("a row's value")).body()["message"] == "KeyError"


def test_a_pipeline_is_healthy_while_its_loop_moves_whatever_the_source_does() -> None:
    limits = metrics_settings(stall_limit=60)
    waiting = status(table("public.t", "errored"), lag_seconds=None, capture=capturing(state="waiting"))
    assert health(None).ok and health(look(None)).ok and health(look(waiting)).ok
    stalled = health(look(status(moved_at=time.monotonic() - 61), limits=limits))
    assert not stalled.ok and "has not moved for 61 s" in stalled.body["reasons"][0]
    assert not health(look(status(), ended=True)).ok
    assert health(look(status(paused=True))).body["state"] == "paused"


def reasons(seen: Any, **more: Any) -> list[str]:
    verdict = readiness(look(seen, **more) if seen != "nothing" else None)
    assert verdict.ok == (not verdict.body["reasons"]) == verdict.body["ready"]
    return [one["what"] for one in verdict.body["reasons"]]


def test_a_pipeline_is_ready_when_all_tables_are_and_the_lag_is_known_and_small() -> None:
    assert reasons(status(table("public.t"))) == []
    assert reasons("nothing") == reasons(None) == ["starting"]
    assert reasons(status(table("public.t", "catchup"), table("public.u", "errored"))) == [
        "table_failed", "table_not_ready",
    ]  # fmt: skip
    assert reasons(status(lag_seconds=61.0)) == ["lag_over_limit"]
    assert reasons(status(lag_seconds=None, unknown_since=time.time())) == ["lag_unknown"]
    assert reasons(status(), ended=True) == ["ended"]
    assert reasons(status(), at=time.time() - 40) == ["stale"]


def test_of_very_many_reasons_some_are_named_and_the_rest_counted() -> None:
    body = readiness(look(status(*(table(f"public.t{number}", "init") for number in range(500))))).body
    assert len(body["reasons"]) == 20 and body["more_reasons"] == 480 and body["tables"] == {"init": 500}
