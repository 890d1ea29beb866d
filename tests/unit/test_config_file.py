"""What a configuration file says: references, forms of writing, and what is shown of it."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from walrelay.config.loading import Loaded, load, unused_variables
from walrelay.config.masking import masked_url
from walrelay.config.references import BadReferenceError, resolved
from walrelay.config.shown import as_json, as_yaml, shown
from walrelay.config.table_keys import TableKeys
from walrelay.errors import ConfigError
from walrelay.model.table_options import Hash, KeepLast, Rename, TableOptions, WithConstant, WithNull

REST = "destination: {url: 'null:'}\nstore: {path: s}\n"
SECRET = "h/u@n:t er%2?"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", SECRET)


def loaded(text: str) -> Loaded:
    Path("pipeline.yaml").write_text(text)
    return load(["pipeline.yaml"])


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a ${USER_} b", "a me b"),
        ("${NO_SUCH:-other}", "other"),
        ("${NO_SUCH:-}", ""),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("$${USER_} costs $5", "${USER_} costs $5"),
        ("file:secret.txt", SECRET),
        ("${file:secret.txt}!", SECRET + "!"),
        ("postgresql://me:${SECRET}@h/d", "postgresql://me:h%2Fu%40n%3At%20er%252%3F@h/d"),
        ("postgresql://${USER_}:${file:secret.txt}@h/d", "postgresql://me:h%2Fu%40n%3At%20er%252%3F@h/d"),
        ("snowflake://h/d?token=${SECRET}&x=y", "snowflake://h/d?token=h%2Fu%40n%3At%20er%252%3F&x=y"),
        ("postgresql://${HOST_PORT}/d", "postgresql://h:5432/d"),
        ("${WHOLE}/d", "postgresql://me@h/d"),
    ],
)
def test_references_are_followed_and_a_password_is_given_as_it_is(
    text: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("secret.txt").write_text(SECRET + "\n")
    for name, value in {"USER_": "me", "EMPTY": "", "HOST_PORT": "h:5432", "WHOLE": "postgresql://me@h"}.items():
        monkeypatch.setenv(name, value)
    assert resolved(text) == made


@pytest.mark.parametrize("text", ["${NO_SUCH}", "${", "${}", "${a b}", "file:nowhere", "${file:nowhere}"])
def test_references_that_lead_nowhere_are_refused(text: str) -> None:
    with pytest.raises(BadReferenceError, match=r"NO_SUCH|reference|nowhere"):
        resolved(text)


def test_words_and_numbers_are_what_they_look_like(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loaded(
        "source: {url: 'postgresql://h/d', publication: on}\n"
        "pipeline: {id: 10:30, special_values: null}\n"
        "log: {retain_age: 7d, heartbeat: 90, segment_bytes: 1MiB}\n"
        "spark:\n" + REST
    ).config
    assert (made.source.publication, made.pipeline.id) == ("on", "10:30")
    assert made.pipeline.special_values == "null"
    assert (made.log.retain_age, made.log.heartbeat) == (timedelta(days=7), timedelta(seconds=90))
    assert made.log.segment_bytes == 1024**2
    assert made.spark == {}


def test_a_value_may_begin_with_file_where_that_is_a_place() -> None:
    made = loaded(
        "source: {url: 'postgresql://h/d', publication: p}\n"
        "spark: {spark.eventLog.dir: 'file:///var/log/spark', spark.x: '${NO:-file:y}'}\n" + REST
    ).config
    assert made.spark == {"spark.eventLog.dir": "file:///var/log/spark", "spark.x": "file:y"}


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({"history": True}, TableOptions(history="changes")),
        ({"history": False}, TableOptions(history="off")),
        ({"history": "scd2"}, TableOptions(history="scd2")),
        ({"hash": ["a", "b"]}, TableOptions(hash=Hash(("a", "b")))),
        ({"hash": {"columns": ["a"], "salt": "x"}}, TableOptions(hash=Hash(("a",), "x"))),
        ({"mask": ["a"]}, TableOptions(mask={"a": WithNull()})),
        (
            {"mask": {"a": None, "b": {"constant": 0}, "c": {"keep_last": 4}}},
            TableOptions(mask={"a": WithNull(), "b": WithConstant(0), "c": KeepLast(4)}),
        ),
        (
            {"rename": {"schema": "raw", "table": "r_{table}", "columns": {"a": "b"}}},
            TableOptions(rename=Rename("raw", "r_{table}", {"a": "b"})),
        ),
        ({"special_values": None, "columns": ["a"]}, TableOptions(special_values="null", columns=("a",))),
        ({"include": False, "soft_deletes": True}, TableOptions(include=False, soft_deletes=True)),
    ],
)
def test_options_of_tables_have_short_forms(said: dict[str, Any], options: TableOptions) -> None:
    assert TableKeys.model_validate(said).options() == options


def test_anchors_repeat_what_was_said() -> None:
    made = loaded(
        "source: {url: 'postgresql://h/d', publication: p}\nspark: {spark.a: &a x, spark.b: *a}\n" + REST
    ).config
    assert made.spark == {"spark.a": "x", "spark.b": "x"}


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:hunter2@h:1/d", "postgresql://me:********@h:1/d"),
        ("postgresql://me:hun@ter2@h/d", "postgresql://me:********@h/d"),
        ("postgresql://me:hun/ter2@h/d", "postgresql://me:********@h/d"),
        ("postgresql://me@h/d?password=hunter2&x=1", "postgresql://me@h/d?password=********&x=1"),
        ("host=h password=hunter2 dbname=d", "host=h password=******** dbname=d"),
        ("host=h password = 'hunter2 x' dbname=d", "host=h password = ******** dbname=d"),
        (
            "snowflake://me@account/db?private_key_password=hunter2",
            "snowflake://me@account/db?private_key_password=********",
        ),
        ("duckdb:///out.duckdb?threads=2", "duckdb:///out.duckdb?threads=2"),
        ("stdout:", "stdout:"),
        ("hunter2", "********"),
    ],
)
def test_no_password_of_a_url_is_shown(url: str, masked: str) -> None:
    assert masked_url(url) == masked


def test_what_holds_is_shown_with_where_it_was_said_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALRELAY_MAX_TABLES", "9")
    made = loaded(
        "source:\n  url: postgresql://me:${SECRET}@h/d\n  publication: p\n"
        "store: {url: 'postgresql://s:hunter2@h/s'}\n"
        "destination: {url: 'clickhouse://u:hunter2@h/d?api_key=hunter2'}\n"
        "spark: {spark.hadoop.fs.s3a.secret.key: hunter2, spark.x: '${SECRET}', spark.cores.max: 4}\n"
    )
    text, body = as_yaml(shown(made)), as_json(shown(made))
    assert "hunter2" not in text + json.dumps(body) and "h%2Fu" not in text + json.dumps(body)
    assert SECRET not in text + json.dumps(body)
    assert "publication: p  # pipeline.yaml line 3" in text
    assert "max_tables: 9  # WALRELAY_MAX_TABLES" in text
    assert "mode: both  # default" in text
    assert "spark.cores.max: 4  # pipeline.yaml line 6" in text
    assert body["source.url"] == {"value": "postgresql://me:********@h/d", "from": "pipeline.yaml", "line": 2}
    assert "hunter2" not in repr(made.config)
    # What is shown could be a file again, but for its secrets.
    Path("again.yaml").write_text(re.sub(r"spark.x: .*", "spark.x: y", text))
    assert load(["again.yaml"]).config.pipeline == made.config.pipeline


def test_an_error_of_whoever_takes_a_value_names_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loaded("source: {url: 'postgresql://h/d', publication: p}\n" + REST)
    named = r"source\.url, pipeline\.yaml line 1: bad"
    with pytest.raises(ConfigError, match=named) as caught, made.blaming("source", "url"):
        raise ConfigError("bad", hint="do this")
    assert caught.value.hint == "do this" and caught.value.__cause__ is None
    with pytest.raises(ConfigError, match=r"^bad"), made.blaming("source", "slot"):
        raise ConfigError("bad")


def test_a_variable_that_is_nearly_a_key_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALRELAY_MAX_TABELS", "7")
    monkeypatch.setenv("WALRELAY_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("WALRELAY_PORT_9187_TCP_ADDR", "10.0.0.1")
    assert unused_variables() == ["the variable WALRELAY_MAX_TABELS sets nothing; did you mean WALRELAY_MAX_TABLES?"]
