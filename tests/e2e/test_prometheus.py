"""A real Prometheus with our rules: nothing fires under load, and what should fire does when things go wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.unit.test_monitoring_files import ALERTS, dashboard_expressions
from walrelay.testing.background import in_background
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".prometheus" / "usr" / "bin"
LOAD_SECONDS = float(os.environ.get("WALRELAY_LOAD_SECONDS", "300"))
PATIENCE = 600.0
MOST_WAL = 256
"""What Postgres lets the slot keep, in MB."""


@pytest.fixture(scope="module")
def tools() -> Path:
    """Where prometheus and promtool are."""
    done = subprocess.run([ROOT / "scripts" / "get-prometheus"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing = f"there is no Prometheus: {done.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return TOOLS


def promtool(tools: Path, *arguments: object, given: str | None = None) -> str:
    done = subprocess.run(
        [tools / "promtool", *map(str, arguments)], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rules_configuration_and_dashboard_are_what_prometheus_understands(tools: Path, tmp_path: Path) -> None:
    promtool(tools, "check", "rules", ALERTS)
    promtool(tools, "check", "config", ALERTS.with_name("prometheus.yml"))
    asked = [one.replace("$__rate_interval", "1m").replace("$pipeline", ".*") for one in dashboard_expressions()]
    rules = [{"record": f"walrelay:panel_{number}", "expr": one} for number, one in enumerate(asked)]
    board = tmp_path / "board.yml"
    board.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    promtool(tools, "check", "rules", board)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Prometheus:
    """Scrapes one address every second, under the project's own rules."""

    def __init__(self, tools: Path, directory: Path, target: str) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        config = directory / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(ALERTS)],
                    "scrape_configs": [{"job_name": "walrelay", "static_configs": [{"targets": [target]}]}],
                }
            )
        )
        self._log = directory.joinpath("prometheus.log").open("wb")
        self._child = subprocess.Popen(
            [
                tools / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={self._url.removeprefix('http://')}",
            ],
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def ask(self, query: str) -> list[dict[str, Any]]:
        where = f"{self._url}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(where, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def value(self, query: str) -> float | None:
        found = self.ask(query)
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        return {one["metric"]["alertname"] for one in self.ask('ALERTS{alertstate="firing"}')}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if holds():
                    return
                said: object = (self.firing(), self.ask('ALERTS{alertstate="pending"}'))
            except OSError as error:  # it is starting
                said = error
            assert time.monotonic() < deadline and self._child.poll() is None, f"not {what}: {said}"
            time.sleep(0.5)

    def close(self) -> None:
        self._child.terminate()
        self._child.wait(60)
        self._log.close()


class Shop:
    """A server of its own, since what is done to it concerns all slots, and a pipeline that reads what it may."""

    def __init__(self, server: EmbeddedPostgres, directory: Path) -> None:
        self.url = server.create_database("shop")
        self.directory = directory
        self.port = free_port()
        self.written = 0
        self.sql(
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '{MOST_WAL}MB'", "SELECT pg_reload_conf()",
            "CREATE ROLE follower LOGIN REPLICATION", "CREATE SCHEMA shop", "GRANT USAGE ON SCHEMA shop TO follower",
            "CREATE TABLE shop.orders (id bigint PRIMARY KEY, note text)", "CREATE TABLE noise (filler text)",
            "GRANT SELECT ON shop.orders TO follower", "CREATE PUBLICATION p FOR TABLES IN SCHEMA shop",
        )  # fmt: skip
        self._err = directory.joinpath("err").open("wb")
        self._child: subprocess.Popen[bytes] | None = None

    def sql(self, *statements: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows: list[Any] = []
            for one in statements:
                cursor = connection.execute(one)  # type: ignore[call-overload]
                rows = cursor.fetchall() if cursor.description is not None else []
        return rows

    def walrelay(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).parent / "walrelay"), *arguments, "--state", str(self.directory / "state")]

    def start(self) -> None:
        follower = self.url.replace("postgres@", "follower@")
        assert "follower@" in follower
        self._child = subprocess.Popen(
            self.walrelay(
                "replicate", follower, f"duckdb:///{self.directory}/out.duckdb", "--publication", "p",
                "--metrics", str(self.port), "--lag-limit", "20s", "--log-format", "json",
            ),
            stderr=self._err,
        )  # fmt: skip

    def tell(self, command: str) -> None:
        subprocess.run(self.walrelay(command), check=True, capture_output=True)

    def load(self, stop: threading.Event) -> None:
        """Some hundred changes a second."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not stop.wait(0.2):
                ids = range(self.written, self.written + 50)
                rows = ", ".join(f"({one}, 'note {one}')" for one in ids)
                connection.execute(f"INSERT INTO shop.orders VALUES {rows}")  # type: ignore[arg-type]
                self.written += 50

    def endanger_slot(self) -> None:
        """Write WAL that concerns no published table until Postgres is about to give the slot up, and no more."""
        filler = "INSERT INTO noise SELECT repeat(md5(random()::text), 32) FROM generate_series(1, 4000)"
        while True:
            ((safe, status),) = self.sql(
                "SELECT safe_wal_size, wal_status FROM pg_replication_slots WHERE database = 'shop'"
            )
            assert status in ("reserved", "extended"), status
            if safe < 0.15 * MOST_WAL * 1024 * 1024:
                return
            self.sql(filler, "TRUNCATE noise")

    def stop(self) -> int:
        if self._child is None or self._child.poll() is not None:
            return 0
        self._child.send_signal(signal.SIGTERM)
        return self._child.wait(60)

    def close(self) -> None:
        self.stop()
        self._err.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with EmbeddedPostgres() as server:
        made = Shop(server, tmp_path)
        yield made
        made.close()


@pytest.fixture
def prometheus(tools: Path, shop: Shop, tmp_path: Path) -> Iterator[Prometheus]:
    made = Prometheus(tools, tmp_path, f"127.0.0.1:{shop.port}")
    yield made
    made.close()


def test_alerts_are_silent_under_load_and_fire_when_something_is_wrong(
    shop: Shop, prometheus: Prometheus, tools: Path
) -> None:
    shop.start()
    prometheus.until(lambda: prometheus.value('walrelay_tables{phase="ready"}') == 1, "ready")
    began = time.monotonic()
    fired: set[str] = set()
    with in_background(shop.load, "load"):
        while time.monotonic() - began < LOAD_SECONDS:
            time.sleep(1)
            fired |= prometheus.firing() - {"WalrelayNotRunning"}  # of the seconds before it had started
    assert fired == set()
    prometheus.until(lambda: prometheus.value("walrelay_changes_total") == shop.written, "all written")
    span = f"[{max(10, int(LOAD_SECONDS) - 10)}s]"
    scrapes = prometheus.value(f"count_over_time(up{span})")
    assert scrapes and scrapes > 0.8 * (int(LOAD_SECONDS) - 10) and prometheus.value(f"min_over_time(up{span})") == 1
    for name in ("walrelay_lag_seconds", "walrelay_slot_retained_bytes", 'walrelay_memory_bytes{process="jvm"}'):
        assert prometheus.value(f"count_over_time({name}{span})") == pytest.approx(scrapes, abs=5), name
    assert (prometheus.value(f"rate(walrelay_changes_total{span})") or 0) > 20
    assert (prometheus.value(f"increase(walrelay_batch_duration_seconds_count{span})") or 0) > 10
    with urllib.request.urlopen(f"http://127.0.0.1:{shop.port}/metrics", timeout=60) as answer:
        promtool(tools, "check", "metrics", given=answer.read().decode())

    shop.sql("CREATE TABLE shop.secret (id int PRIMARY KEY)")  # which nobody may read
    prometheus.until(lambda: prometheus.firing() == {"WalrelayTableFailed"}, "table failed")
    (alert,) = prometheus.ask('ALERTS{alertname="WalrelayTableFailed",alertstate="firing"}')
    assert (alert["metric"]["table"], alert["metric"]["code"]) == ("shop.secret", "source.missing_rights")

    shop.tell("pause")
    prometheus.until(lambda: prometheus.value("walrelay_paused") == 1, "paused")
    shop.sql("INSERT INTO shop.orders VALUES (-1, 'waits')")
    shop.endanger_slot()
    wanted = {"WalrelayTableFailed", "WalrelayLagOverLimit", "WalrelaySlotAtRisk"}
    prometheus.until(lambda: prometheus.firing() == wanted, "lag over its limit, slot at risk")

    shop.tell("resume")
    shop.sql("GRANT SELECT ON shop.secret TO follower", "INSERT INTO shop.orders VALUES (-2, 'moves the slot')")
    prometheus.until(lambda: prometheus.firing() == set(), "all well again")

    assert shop.stop() == 0
    prometheus.until(lambda: prometheus.firing() == {"WalrelayNotRunning"}, "not running")
