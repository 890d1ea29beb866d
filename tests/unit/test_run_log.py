"""The log of a run: a constant phrase and fields, as JSON or text; nothing of rows, secrets or other people's words."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
from collections import Counter
from pathlib import Path

import pytest

from walrelay.config.observability import Observability, address, hook_settings, logging_settings, metrics_settings
from walrelay.errors import ConfigError, CopyAgainError, RightsError
from walrelay.model.names import TableName
from walrelay.model.notice import Notice
from walrelay.model.special import Special
from walrelay.telemetry.listeners import Several
from walrelay.telemetry.log import LogListener, log_event, logging_to
from walrelay.telemetry.observe import observing
from walrelay.workers.report import TableReport

SOURCE = Path(__file__).parents[2] / "src" / "walrelay"
ORDERS = TableName("public", "orders")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell_everything(listener: LogListener | Several) -> None:
    listener.run_started({ORDERS: 10})
    listener.table_started(ORDERS, 1)
    listener.table_retrying(ORDERS, RightsError("orders may not be read", hint="GRANT SELECT"), 1.5)
    listener.table_retrying(ORDERS, CopyAgainError("orders has changed"), 0.0)
    listener.table_finished(TableReport(ORDERS, 10, 2.5, 2, Counter({Special.NUMERIC_NAN: 3})))
    listener.table_finished(TableReport(ORDERS, 0, 0.1, error=RightsError("orders may not be read")))
    listener.notice(Notice.warning("capture starts again", "capture died; it starts again", why="died"))
    listener.notice("somebody else's destination says this")


def lines(level: str = "info") -> list[dict[str, object]]:
    out = io.StringIO()
    with logging_to(out, "auto", level, "shop"):  # type: ignore[arg-type]
        tell_everything(LogListener())
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_elsewhere_than_on_a_terminal_each_event_is_a_json_object_a_line() -> None:
    said = lines()
    assert [(one["level"], one["event"]) for one in said] == [
        ("info", "copies begin"),
        ("info", "table copy started"),
        ("warning", "table is tried again"),
        ("info", "table is copied again"),
        ("info", "table copied"),
        ("error", "table is put aside"),
        ("warning", "capture starts again"),
        ("info", "notice"),
    ]
    for one in said:
        assert one["pipeline"] == "shop"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(one["at"]))
    failed, copied = said[2], said[4]
    assert failed["code"] == RightsError.code and failed["hint"] == "GRANT SELECT" and failed["after_seconds"] == 1.5
    assert copied["rows"] == 10 and copied["treated_numeric_nan"] == 3 and copied["table"] == "public.orders"


def test_the_level_says_what_is_left_out() -> None:
    assert [one["event"] for one in lines("warning")] == [
        "table is tried again", "table is put aside", "capture starts again",
    ]  # fmt: skip
    assert [one["event"] for one in lines("error")] == ["table is put aside"]


def test_text_is_one_line_an_event_that_no_name_can_break() -> None:
    out = Terminal()
    with logging_to(out, "auto", "info", "shop"):
        log_event(logging.INFO, "table copied", {"table": 'public.a b\n\x1b[31m"x"', "rows": 5})
    (line,) = out.getvalue().splitlines()
    assert line.endswith(r'INFO    table copied pipeline=shop table="public.a b\n\u001b[31m\"x\"" rows=5')


def test_of_other_packages_only_their_name_is_told_since_their_words_may_hold_anything() -> None:
    out = io.StringIO()
    with logging_to(out, "json", "debug", "shop"):
        logging.getLogger("psycopg").warning("row %s", "CANARY")
        logging.getLogger("psycopg").info("CANARY")
    assert [json.loads(line)["logger"] for line in out.getvalue().splitlines()] == ["psycopg"]
    assert "CANARY" not in out.getvalue()


def test_afterwards_logging_is_as_it_was() -> None:
    ours, root = logging.getLogger("walrelay"), logging.getLogger()
    before = ours.level, ours.propagate, list(ours.handlers), list(root.handlers)
    with logging_to(io.StringIO(), "json", "debug", "shop"):
        assert (ours.level, ours.propagate) != before[:2]
    assert (ours.level, ours.propagate, list(ours.handlers), list(root.handlers)) == before


def test_on_a_terminal_auto_is_the_view_and_not_the_log() -> None:
    settings = Observability(metrics_settings(), logging_settings(), hook_settings())
    with observing("shop", settings, Terminal()) as observer:
        assert not observer.is_logged
    with observing("shop", settings, io.StringIO()) as observer:
        assert observer.is_logged


def test_what_is_refused_before_anything_began_is_left_to_who_started_it() -> None:
    out = io.StringIO()
    settings = Observability(metrics_settings(), logging_settings(), hook_settings())
    with pytest.raises(ConfigError), observing("shop", settings, out) as observer:
        raise ConfigError("no such mode: x", hint="use both")
    assert out.getvalue() == "" and not observer.has_told


FOR_PEOPLE = ("cli/progress", "cli/live", "cli/demo", "testing/")
TELLERS = {"notify", "_notify", "notice", "say"}
LOGGERS = {"Notice": 0, "Notice.warning": 0, "log_event": 1}
"""Which of their arguments is the phrase."""


def _calls(*names: str) -> list[tuple[str, str, ast.Call]]:
    """Every call of these in the source, outside of what shows a run to people."""
    found = []
    for file in SOURCE.rglob("*.py"):
        name, text = str(file.relative_to(SOURCE)), file.read_text(encoding="utf-8")
        if name.startswith(FOR_PEOPLE) or not any(f"{one}(" in text for one in names):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called == "warning":
                    called = ast.unparse(node.func)
                if called in names:
                    found.append((f"{name}:{node.lineno}", called, node))
    return found


def test_whatever_is_told_is_a_constant_phrase_and_fields() -> None:
    calls = _calls(*TELLERS)
    assert len(calls) > 25
    for where, _, call in calls:
        for said in call.args:
            assert not isinstance(said, ast.JoinedStr | ast.Constant | ast.BinOp), f"{where}: a Notice has fields"


def test_the_phrase_of_a_notice_never_varies() -> None:
    phrases = set()
    for where, called, call in _calls(*LOGGERS):
        event = call.args[LOGGERS[called]] if len(call.args) > LOGGERS[called] else None
        assert not isinstance(event, ast.JoinedStr | ast.BinOp), where
        if isinstance(event, ast.Constant):  # else it is handed on from where it was made
            assert re.fullmatch(r"[a-z][a-z ]+", event.value), f"{where}: {event.value}"
            phrases.add(event.value)
    assert len(phrases) > 40


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("9187", None, 9187), (":9187", None, 9187), ("0.0.0.0:1", "0.0.0.0", 1), ("[::1]:0", "::1", 0), ("h:9", "h", 9)],
)
def test_an_address_is_read_as_people_write_it(text: str, host: str | None, port: int) -> None:
    assert address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "x", "host:", "host:99999", "::1:9187", "1.2.3.4:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        address(text)
