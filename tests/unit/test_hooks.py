"""Hooks over real HTTP and real processes: what arrives, how often, and that nobody waits for them."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry_kit import PATIENCE, Receiver
from walrelay.config.observability import hook_settings
from walrelay.errors import ConfigError
from walrelay.telemetry.events import Event
from walrelay.telemetry.hooks import Messenger

SOON = timedelta(milliseconds=10)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@contextmanager
def messenger(**settings: object) -> Iterator[Messenger]:
    made = Messenger(hook_settings(**settings), first_delay=SOON)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def event(name: Any = "table_failed", **fields: object) -> Event:
    return Event(name, "shop", time.time(), {"table": "public.orders", **fields})


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_webhook_gets_the_event_as_json_signed(receiver: Receiver) -> None:
    told = event()
    with messenger(webhook=receiver.url, secret="s3cret") as sending:
        sending.tell(told)
    ((headers, body),) = receiver.heard
    assert json.loads(body) == told.body()
    assert headers["Content-Type"] == "application/json" and headers["X-Walrelay-Event"] == "table_failed"
    signed = headers["X-Walrelay-Timestamp"].encode() + b"." + body
    assert headers["X-Walrelay-Signature"] == "sha256=" + hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert sending.counts() == {"delivered": 1, "failed": 0, "dropped": 0}


def test_an_event_is_tried_again_under_the_same_id_and_order_is_kept(receiver: Receiver) -> None:
    receiver.answers = [503, 429]
    with messenger(webhook=receiver.url) as sending:
        sending.tell(event())
        sending.tell(event("table_recovered"))
        eventually(lambda: len(receiver.heard) == 4)
    bodies = [json.loads(body) for _, body in receiver.heard]
    assert [one["event"] for one in bodies] == ["table_failed"] * 3 + ["table_recovered"]
    assert len({one["id"] for one in bodies[:3]}) == 1
    assert sending.counts()["delivered"] == 2


@pytest.mark.parametrize("code", [400, 401, 404, 302])
def test_what_cannot_succeed_is_not_tried_again_nor_sent_elsewhere(receiver: Receiver, code: int) -> None:
    receiver.answers = [code]
    with messenger(webhook=receiver.url) as sending:
        sending.tell(event())
        eventually(lambda: sending.counts()["failed"] == 1)
    assert len(receiver.heard) == 1


def test_an_event_is_given_up_after_its_retries_and_the_log_says_it_without_the_url(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500] * 9
    with messenger(webhook=receiver.url, retries=2) as sending:
        sending.tell(event())
        eventually(lambda: sending.counts()["failed"] == 1)
    assert len(receiver.heard) == 3
    assert [one.message for one in caplog.records] == ["hook is tried again"] * 2 + ["hook was not told"]
    assert "t0ken" not in str([one.__dict__ for one in caplog.records])


def test_the_pipeline_never_waits_and_what_finds_no_place_is_dropped_and_counted(receiver: Receiver) -> None:
    receiver.held.clear()
    with messenger(webhook=receiver.url, queue=3) as sending:
        sending.tell(event())
        eventually(sending._waiting.empty)
        for _ in range(10):
            sending.tell(event())
        assert sending.counts()["dropped"] == 7 and receiver.heard == []
        receiver.held.set()
        eventually(lambda: sending.counts()["delivered"] == 4)


def test_only_the_events_that_are_wanted_are_told(receiver: Receiver) -> None:
    with messenger(webhook=receiver.url, events="slot_at_risk, pipeline_ended") as sending:
        for name in ("table_failed", "slot_at_risk", "lag_over_limit", "pipeline_ended"):
            sending.tell(event(name))
    assert [headers["X-Walrelay-Event"] for headers, _ in receiver.heard] == ["slot_at_risk", "pipeline_ended"]


def test_a_server_that_is_not_there_ends_nothing() -> None:
    with messenger(webhook="http://127.0.0.1:9/", retries=1) as sending:
        sending.tell(event())
        eventually(lambda: sending.counts()["failed"] == 1)


def test_a_command_gets_the_event_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    script, out = tmp_path / "hook.py", tmp_path / "out"
    script.write_text(
        "import os, sys\n"
        f"with open({str(out)!r}, 'a') as out:\n"
        "    out.write(os.environ['WALRELAY_EVENT'] + ' ' + sys.stdin.read() + '\\n')\n"
    )
    told = event()
    with messenger(command=f"'{sys.executable}' '{script}'", timeout=PATIENCE) as sending:
        sending.tell(told)
        eventually(lambda: sending.counts()["delivered"] == 1)
    name, _, body = out.read_text().partition(" ")
    assert name == "table_failed" and json.loads(body) == told.body()


def test_a_command_that_hangs_fails_or_is_missing_is_a_failure_and_no_more(tmp_path: Path) -> None:
    for command, least in (("sleep 1000", 0.2), ("false", PATIENCE), ("/no/such/program", PATIENCE)):
        with messenger(command=command, timeout=least, retries=0) as sending:
            sending.tell(event())
            eventually(lambda sending=sending: sending.counts()["failed"] == 1)  # type: ignore[misc]


def test_the_end_does_not_wait_for_ever_for_a_hook(receiver: Receiver) -> None:
    receiver.held.clear()
    sending = Messenger(hook_settings(webhook=receiver.url), first_delay=SOON)
    sending.start()
    sending.tell(event())
    sending.stop(patience=0.05)
    assert sending._thread.is_alive()
    receiver.held.set()


@pytest.mark.parametrize("wrong", ["ftp://x/y", "file:///etc/passwd", "https://", "nonsense"])
def test_a_webhook_that_is_no_web_address_is_refused_without_repeating_it(wrong: str) -> None:
    with pytest.raises(ConfigError, match="webhook") as caught:
        hook_settings(webhook=wrong + "?token=t0ken")
    assert "t0ken" not in str(caught.value)
