"""Every key of a configuration is documented, and can be set by a file, by the environment and by the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from walrelay.config.keys import Key, all_keys
from walrelay.config.loading import Loaded, load, option_said
from walrelay.config.said import written
from walrelay.config.table_keys import TableKeys
from walrelay.control.config_page import PAGE, default_of, meaning, render
from walrelay.control.config_schema import config_schema
from walrelay.model.table_options import TableOptions

ROOT = Path(__file__).parents[2]
KEYS = all_keys()
LEAST = "source: {url: 'postgresql://h/d', publication: p}\ndestination: {url: 'null:'}\nstore: {path: s}\n"

# Of each key a value that is not its default, as YAML.
SAMPLES = {
    "pipeline.id": "shop",
    "pipeline.mode": "changes",
    "pipeline.begin_anew": "true",
    "pipeline.special_values": "clamp",
    "pipeline.unknown_types": "text",
    "pipeline.on_silent_change": "warn",
    "pipeline.on_bad_changes": "error",
    "pipeline.max_tables": "7",
    "pipeline.range_bytes": "3MiB",
    "pipeline.max_ranges": "9",
    "pipeline.chunk_bytes": "1MB",
    "pipeline.file_bytes": "2000000",
    "pipeline.staging": "/tmp/staging",
    "pipeline.retries": "0",
    "pipeline.retry_delay": "2s",
    "pipeline.late_retry_delay": "5m",
    "pipeline.stall_timeout": "1.5s",
    "pipeline.every": "10m",
    "pipeline.busy_timeout": "250ms",
    "source.url": "postgresql://me@h/d",
    "source.publication": "shop",
    "source.slot": "shop_slot",
    "source.migrate_source": "true",
    "store.path": "/var/lib/walrelay",
    "store.url": "postgresql://h/store",
    "log.location": "s3://bucket/log",
    "log.follow": "true",
    "log.ack": "log",
    "log.segment_bytes": "1MiB",
    "log.segment_age": "100ms",
    "log.segment_age_busy": "1s",
    "log.memory_bytes": "1GB",
    "log.spill": "/tmp/spill",
    "log.special_values": "error",
    "log.retain_age": "30d",
    "log.heartbeat": "20s",
    "log.failover": "true",
    "log.streaming": "false",
    "log.retry_delay": "1s",
    "log.slot_timeout": "2m",
    "log.stall_timeout": "40s",
    "log.compact": "false",
    "log.accept_timeline": "2",
    "destination.url": "duckdb:///out.duckdb",
    "destination.lane": "frames",
    "destinations": "[{url: 'null:', lane: files}]",
    "spark": "{spark.driver.memory: 2g, spark.cores.max: 4, spark.ui.enabled: false}",
    "metrics.host": "0.0.0.0",
    "metrics.port": "9187",
    "metrics.every": "5s",
    "metrics.tables": "7",
    "metrics.lag_limit": "5m",
    "metrics.wal_limit": "1GiB",
    "metrics.stall_limit": "1h",
    "logging.format": "json",
    "logging.level": "debug",
    "hooks.webhook": "https://h/x",
    "hooks.secret": "s3cret",
    "hooks.command": "[notify, x]",
    "hooks.events": "[table_failed]",
    "hooks.timeout": "3s",
    "hooks.retries": "0",
    "hooks.queue": "9",
    "tables": "{}",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded_with(key: Key, text: str) -> Loaded:
    """By a file that says the key as well as what must be said."""
    section, *rest = key.path
    Path("least.yaml").write_text(
        LEAST.replace("destination: {url: 'null:'}\n", "") if section == "destinations" else LEAST
    )
    Path("key.yaml").write_text(f"{section}:\n  {rest[0]}: {text}\n" if rest else f"{section}: {text}\n")
    return load(["least.yaml", "key.yaml"])


def value_of(loaded: Loaded, key: Key) -> Any:
    found: Any = loaded.config
    for step in key.path:
        found = getattr(found, str(step))
    return found


def test_the_samples_are_of_all_keys() -> None:
    assert SAMPLES.keys() == {written(key.path) for key in KEYS}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.variable)
def test_a_key_is_set_by_file_and_by_environment_and_by_the_command_line(
    key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SAMPLES[written(key.path)]
    by_file = loaded_with(key, text)
    said = value_of(by_file, key)
    assert said != key.default or text == "{}"
    if text != "{}":
        assert (by_file.origin(key.path).name, by_file.origin(key.path).line) == ("key.yaml", len(key.path))
    files = ["least.yaml"]
    by_option = load(files, dict([option_said(f"{written(key.path)}={text}")]))
    assert value_of(by_option, key) == said
    monkeypatch.setenv(key.variable, text)
    by_environment = load(files)
    assert value_of(by_environment, key) == said
    if text != "{}":
        assert by_environment.origin(key.path).name == key.variable


def test_the_command_line_wins_over_the_environment_and_that_over_files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.yaml").write_text(LEAST + "pipeline: {max_tables: 2, retries: 2, every: 2s}\n")
    Path("b.yaml").write_text("pipeline: {max_tables: 3}\nstore: {url: 'postgresql://h/s'}\n")
    monkeypatch.setenv("WALRELAY_RETRIES", "4")
    monkeypatch.setenv("WALRELAY_EVERY", "4s")
    monkeypatch.setenv("WALRELAY_STAGING", "")
    made = load(["a.yaml", "b.yaml"], dict([option_said("pipeline.every=5s")]), {("pipeline", "max_ranges"): 6})
    config = made.config
    assert (config.pipeline.max_tables, config.pipeline.retries, config.pipeline.max_ranges) == (3, 4, 6)
    assert config.pipeline.every is not None and config.pipeline.every.seconds == 5
    assert str(config.store.path) == "s" and config.store.url is not None
    assert config.pipeline.staging is None, "a variable that is empty says nothing"
    origins = {key: str(made.origin(("pipeline", key))) for key in ("max_tables", "retries", "every", "max_ranges")}
    assert origins == {
        "max_tables": "b.yaml line 1",
        "retries": "WALRELAY_RETRIES",
        "every": "--set",
        "max_ranges": "default",
    }


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.variable)
def test_every_key_is_explained(key: Key) -> None:
    assert meaning(key.field).endswith((".", ")")), "no text below it in the settings"
    assert f"`{key.variable}`" in render()


def test_every_option_of_tables_is_explained_once() -> None:
    assert list(TableKeys.model_fields) == [one.name for one in dataclasses.fields(TableOptions)]
    for name, field in TableKeys.model_fields.items():
        assert meaning(field), name
        assert f"`tables.PATTERN.{name}`" in render()


def test_defaults_are_written_as_a_file_says_them() -> None:
    fields = {written(key.path): default_of(key.field) for key in KEYS}
    assert fields["pipeline.range_bytes"] == "`256MiB`"
    assert fields["log.segment_age"] == "`30ms`"
    assert fields["source.url"] == "required"
    assert fields["pipeline.id"] == "–"


def test_the_page_is_the_one_that_the_code_makes() -> None:
    page = ROOT / PAGE
    assert page.read_text(encoding="utf-8") == render(), "run `python -m walrelay.control.config_page`"


def test_the_schema_knows_and_explains_every_key() -> None:
    schema = config_schema()
    for key in KEYS:
        section, *rest = (str(step) for step in key.path)
        found = schema["properties"][section]
        if rest:
            reference = next(iter(_references(found)))
            found = schema["$defs"][reference.rpartition("/")[2]]["properties"][rest[0]]
            assert found["description"], key.path
    assert schema["additionalProperties"] is False
    assert json.loads(json.dumps(schema)) == schema


def _references(found: Any) -> list[str]:
    match found:
        case {"$ref": str(reference)}:
            return [reference]
        case dict():
            return [one for value in found.values() for one in _references(value)]
        case list():
            return [one for value in found for one in _references(value)]
    return []
