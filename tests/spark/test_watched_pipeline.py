"""A running pipeline, watched as an operator would: metrics, readiness, hooks and log, while things go wrong."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.spark.live_kit import PATIENCE, Live
from tests.telemetry_kit import Receiver
from walrelay.config.observability import Observability, hook_settings, logging_settings, metrics_settings
from walrelay.config.settings import copy_settings
from walrelay.pipeline import Pipeline
from walrelay.postgres.source import PostgresSource
from walrelay.telemetry.observe import observing
from walrelay.testing.proxy import FaultProxy

pytestmark = pytest.mark.spark
CANARY = "canary-7f3a"
TOKEN = "t0ken-9c1d"


class Watched:
    """A pipeline, and what is said of it."""

    def __init__(self, pipeline: Pipeline, url: str, log: io.StringIO, receiver: Receiver) -> None:
        self.pipeline = pipeline
        self._url = url
        self._log = log
        self._receiver = receiver
        self.served: list[str] = []
        """All that the endpoint has answered."""

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self._url + path, timeout=60) as answer:
                code, body = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            code, body = error.code, error.read().decode()
        self.served.append(body)
        return code, body

    def metrics(self) -> dict[str, float]:
        """By name; of those with labels the sum."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for one in family.samples:
                found[one.name] = found.get(one.name, 0.0) + one.value
        return found

    def reasons(self) -> list[str]:
        return [one["what"] for one in json.loads(self.get("/ready")[1])["reasons"]]

    def hooks(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self._receiver.heard]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"not {what}: {self.get('/ready')}, {self.lines()[-5:]}"
            time.sleep(0.1)

    def until_told(self, event: str) -> dict[str, Any]:
        self.until(lambda: any(one["event"] == event for one in self.hooks()), f"told {event}")
        return next(one for one in self.hooks() if one["event"] == event)


@contextmanager
def watched(live: Live, **more: Any) -> Iterator[Watched]:
    receiver, log = Receiver(), io.StringIO()
    settings = Observability(
        metrics_settings(port=0, every=0.2, lag_limit=1),
        logging_settings(level="debug"),
        hook_settings(webhook=f"{receiver.url}&token={TOKEN}", secret=TOKEN),
    )
    try:
        with observing("live", settings, log) as observer:
            pipeline = live.pipeline(**more)
            pipeline.listener = observer.listener(live.heard)
            assert observer.address is not None
            seen = Watched(pipeline, f"http://127.0.0.1:{observer.address[1]}", log, receiver)
            with observer.watching(pipeline), pipeline:
                yield seen
    finally:
        receiver.close()


def test_what_goes_wrong_is_told_and_no_value_of_a_row_nor_a_secret_with_it(live: Live) -> None:
    live.sql(
        "CREATE TABLE good (id int PRIMARY KEY, note text)",
        f"INSERT INTO good SELECT g, '{CANARY}' || g FROM generate_series(1, 100) g",
        "CREATE TABLE bad (id int PRIMARY KEY, amount numeric(8, 2), note text)",
        f"INSERT INTO bad VALUES (1, 'NaN', '{CANARY}')",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    settings = copy_settings(special_values="error", retry_delay=0.05)
    with watched(live, settings=settings) as seen:
        told = seen.until_told("table_failed")
        assert (told["table"], told["code"]) == ("public.bad", "value.special") and told["hint"]
        seen.until(lambda: seen.reasons() == ["table_failed"], "ready but for one table")
        found = seen.metrics()
        assert found["walrelay_table_error"] == 1 and found["walrelay_table_failures_total"] >= 1
        assert found["walrelay_copied_rows_total"] == 100 and found["walrelay_source_up"] == 1

        live.sql("UPDATE bad SET amount = 1")
        seen.pipeline.resync("public.bad")
        assert seen.until_told("table_recovered")["table"] == "public.bad"
        seen.until(lambda: seen.get("/ready")[0] == 200, "ready")

        before = seen.metrics()
        live.sql(f"INSERT INTO good SELECT g, '{CANARY}' || g FROM generate_series(101, 150) g")
        seen.until(lambda: seen.metrics()["walrelay_changes_total"] >= before["walrelay_changes_total"] + 50, "written")
        after = seen.metrics()
        assert after["walrelay_batches_total"] > before["walrelay_batches_total"]
        assert after["walrelay_batch_duration_seconds_count"] == after["walrelay_batches_total"]
        assert after["walrelay_log_segments"] >= 0 and after["walrelay_memory_bytes"] > 50_000_000

        seen.pipeline.pause()
        seen.until(lambda: seen.metrics()["walrelay_paused"] == 1, "paused")
        live.sql("DELETE FROM good WHERE id > 100")
        told = seen.until_told("lag_over_limit")
        assert told["lag_seconds"] > told["limit_seconds"] == 1.0 and told["lag_bytes"] > 0
        assert "lag_over_limit" in seen.reasons() and seen.metrics()["walrelay_paused"] == 1
        assert json.loads(seen.get("/health")[1])["state"] == "paused"
        seen.pipeline.resume()
        seen.until_told("lag_under_limit")
    assert seen.hooks()[-1]["event"] == "pipeline_ended" and seen.hooks()[-1]["outcome"] == "stopped"
    events = {one["event"] for one in seen.lines()}
    assert events >= {
        "table copy started", "table copied", "table is put aside", "table failed", "table recovered", "paused",
        "resync", "resumed", "lag is over its limit", "lag is under its limit again", "pipeline ended",
    }  # fmt: skip
    said = json.dumps([seen.lines(), seen.hooks(), seen.served])
    assert "public.good" in said and CANARY not in said and TOKEN not in said


def test_while_the_source_is_away_nobody_pretends_to_know_the_lag(live: Live) -> None:
    live.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    parts = urlsplit(live.url)
    assert parts.hostname is not None and parts.port is not None
    with FaultProxy(parts.hostname, parts.port) as proxy:
        live.source = PostgresSource(proxy.url(live.url) + "?connect_timeout=2", publication="p")
        with watched(live) as seen:
            seen.until(lambda: seen.get("/ready")[0] == 200, "ready")
            assert seen.metrics()["walrelay_source_up"] == 1 and "walrelay_lag_seconds" in seen.metrics()
            proxy.refuse(True)
            proxy.drop()
            live.sql("INSERT INTO t VALUES (1)")
            seen.until(lambda: seen.reasons() == ["lag_unknown"], "unknown")
            away = seen.metrics()
            assert away["walrelay_source_up"] == 0
            assert "walrelay_lag_seconds" not in away and "walrelay_lag_bytes" not in away
            assert seen.get("/health")[0] == 200  # who waits for a source is well
            proxy.refuse(False)
            seen.until(lambda: seen.get("/ready")[0] == 200, "ready again")
            seen.until(lambda: seen.metrics()["walrelay_changes_total"] == 1, "written")
            assert seen.metrics()["walrelay_capture_reconnects_total"] >= 1
    assert "capture connects again" in {one["event"] for one in seen.lines()}
