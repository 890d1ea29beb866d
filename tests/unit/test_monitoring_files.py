"""Page, dashboard and alert rules speak of metrics that there are, with the labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from walrelay.config.choices import HookEvent
from walrelay.telemetry.events import PHRASES
from walrelay.telemetry.metrics import METRICS
from walrelay.telemetry.metrics_page import FIELDS, PAGE, render

ROOT = Path(__file__).parents[2]
ALERTS, DASHBOARD = ROOT / "deploy/prometheus/alerts.yml", ROOT / "deploy/grafana/walrelay.json"
LABELS = {one.name: {*one.labels, "pipeline"} for one in METRICS}
_SELECTOR = re.compile(r"(walrelay_\w+)(?:\{([^}]*)\})?")


def test_the_page_is_the_one_that_the_code_makes() -> None:
    page = ROOT / PAGE
    assert page.read_text(encoding="utf-8") == render(), "run `python -m walrelay.telemetry.metrics_page`"


def test_every_event_can_be_chosen_and_is_explained() -> None:
    assert set(get_args(HookEvent)) == set(PHRASES) == set(FIELDS)


def dashboard_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def alert_expressions() -> list[str]:
    return re.findall(r"^\s+expr: (.+)$", ALERTS.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("expression", dashboard_expressions() + alert_expressions())
def test_an_expression_asks_for_what_there_is(expression: str) -> None:
    found = _SELECTOR.findall(expression)
    assert found or 'up{job="walrelay"}' in expression
    for name, selector in found:
        metric = re.sub(r"_(bucket|sum|count)$", "", name) if name not in LABELS else name
        assert metric in LABELS, name
        wanted = {part.split("=")[0].strip("!~ ") for part in selector.split(",") if part}
        assert wanted <= LABELS[metric] | {"le"}, expression


def test_the_dashboard_is_one_that_can_be_imported() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) and board["uid"] == "walrelay"
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and panel["datasource"]["uid"] == "${datasource}"
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "pipeline"}
