"""Values that the destination cannot hold, in changes: treated, counted and refused as in copies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.spark.live_kit import Live
from tests.spark.test_quarantine import in_file, phase_of
from walrelay.cli.app import app
from walrelay.config.settings import copy_settings
from walrelay.errors import CopyFailedError
from walrelay.model.phases import Errored
from walrelay.model.special import Special

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TABLES = (
    "CREATE TABLE amounts (id int PRIMARY KEY, price numeric(10, 2), took interval)",
    "CREATE TABLE others (id int PRIMARY KEY)",
    "INSERT INTO amounts VALUES (1, 'NaN', '1 day'), (2, 2, 'infinity')",
    "CREATE PUBLICATION p FOR TABLE amounts, others",
)
CHANGES = (
    "INSERT INTO amounts VALUES (3, 'NaN', '1 day'), (4, 4, 'infinity'), (5, 5, '-infinity')",
    "INSERT INTO others VALUES (1)",
)


def status(live: Live) -> Any:
    result = CliRunner().invoke(app, ["status", "--state", str(live.log.parent), "--json"])
    return json.loads(result.stdout)


def test_values_treated_in_changes_are_counted_durably_and_shown(live: Live) -> None:
    live.sql(*TABLES)
    first = live.pipeline().run(until="caught-up")
    assert first.treated == {Special.NUMERIC_NAN: 1, Special.INTERVAL_INFINITY: 1}
    live.sql(*CHANGES)
    second = live.pipeline().run(until="caught-up")
    assert second.treated == {Special.NUMERIC_NAN: 1, Special.INTERVAL_INFINITY: 2}
    third = live.pipeline().run(until="caught-up")
    assert third.treated == {}, "nothing came"
    assert status(live)["treated"] == {
        "public.amounts": {
            "copy": {"NUMERIC_NAN": 1, "INTERVAL_INFINITY": 1},
            "changes": {"NUMERIC_NAN": 1, "INTERVAL_INFINITY": 2},
        }
    }
    said = CliRunner().invoke(app, ["status", "--state", str(live.log.parent)]).stdout
    assert "public.amounts: 2 × interval ±infinity, treated by policy (changes)" in said


def test_by_policy_a_change_with_such_a_value_puts_its_table_in_error(live: Live) -> None:
    live.sql(*TABLES, "DELETE FROM public.amounts")
    refusing = copy_settings(special_values="error")
    live.pipeline(settings=refusing).run(until="caught-up")
    live.sql("INSERT INTO amounts VALUES (3, 'NaN', '1 day')", *CHANGES[1:])
    with pytest.raises(CopyFailedError) as caught:
        live.pipeline(settings=refusing).run(until="caught-up")
    assert caught.value.context["code"] == "value.special"
    assert "numeric NaN, in column price of public.amounts" in caught.value.message
    assert live.heard.started == [], "a copy would fail too"
    assert isinstance(phase_of(live, "amounts"), Errored)
    assert in_file(live, "SELECT * FROM public.others") == [(1,)]
    assert in_file(live, "SELECT * FROM public.amounts") == []
    with pytest.raises(CopyFailedError):
        live.pipeline(settings=refusing).run(until="caught-up")


KEYED = (
    "CREATE TABLE copied (id numeric(10, 2) PRIMARY KEY, n int)",
    "CREATE TABLE changed (id numeric(10, 2) PRIMARY KEY, n int)",
    "CREATE TABLE lasting (id interval PRIMARY KEY, n int)",
    "CREATE TABLE others (id int PRIMARY KEY)",
    "INSERT INTO copied VALUES ('NaN', 1)",
    "INSERT INTO changed VALUES (1, 1)",
    "CREATE PUBLICATION p FOR TABLE copied, changed, lasting, others",
)


def test_keys_are_never_treated_on_either_road(live: Live) -> None:
    live.sql(*KEYED)
    with pytest.raises(CopyFailedError) as caught:
        live.pipeline().run(until="caught-up")
    assert caught.value.context == {"code": "value.special_key", "tables": ["public.copied"]}
    assert "take the table out of the publication" in caught.value.hint
    live.sql(
        "INSERT INTO changed VALUES ('NaN', 2)",
        "UPDATE changed SET n = 3 WHERE id = 'NaN'",
        "INSERT INTO lasting VALUES ('infinity', 1)",
        "INSERT INTO others VALUES (1)",
    )
    with pytest.raises(CopyFailedError) as caught:
        live.pipeline().run(until="caught-up")
    failed = {str(one.name): one.error.code for one in caught.value.summary.failed if one.error is not None}
    assert {name: failed[name] for name in ("public.changed", "public.lasting")} == {
        "public.changed": "value.special_key",
        "public.lasting": "value.special_key",
    }
    assert live.heard.started == ["public.copied"], "a start tries again what had failed; no copy could help the others"
    assert in_file(live, "SELECT * FROM public.others") == [(1,)]
    assert in_file(live, "SELECT count(*) FROM public.changed") == [(1,)]
