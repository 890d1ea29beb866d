"""Wrong configurations: each is refused with the key, the file, the line and what to do, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from walrelay.cli.app import main

SECRET = "hunter2"
RIGHT = """\
pipeline:
  mode: both
  max_tables: 4
  every: 5s
  range_bytes: 64MiB
source:
  url: postgresql://me:hunter2@127.0.0.1:1/app
  publication: shop
  slot: shop_slot
store:
  path: state
log:
  ack: destination
  retain_age: 7d
  compact: true
destination:
  url: duckdb:///out.duckdb
  lane: files
spark:
  spark.driver.memory: 2g
"""

# The line that is changed, what stands there instead, and what the error says: the key, and a part of the words.
CHANGED = [
    (1, "pipelines:", "pipelines", "did you mean pipeline?"),
    (1, "4:", "4", "no such key"),
    (2, "  mode: bth", "pipeline.mode", "did you mean both?"),
    (2, "  mode: [both]", "pipeline.mode", "must be one of copy, changes, both"),
    (2, "  mode: null", "pipeline.mode", "must be one of"),
    (2, "  mod: both", "pipeline.mod", "did you mean mode?"),
    (2, "  max_tables: 8", "pipeline.max_tables", "stands in pipeline.yaml line 2 already"),
    (2, "  mode: !!python/object:os.system both", "pipeline.mode", "knows no tags"),
    (2, "  id: ''", "pipeline.id", "at least 1 character"),
    (2, "  id: 7", "pipeline.id", "must be a text"),
    (3, "  max_tables: four", "pipeline.max_tables", "whole number"),
    (3, "  max_tables: 0", "pipeline.max_tables", "greater than 0"),
    (3, "  max_tables: 1.5", "pipeline.max_tables", "whole number"),
    (3, "  max_tables: true", "pipeline.max_tables", "true or false says nothing"),
    (3, "  max_tables: '${NO_SUCH_VARIABLE}'", "pipeline.max_tables", "no variable NO_SUCH_VARIABLE"),
    (3, "  max_table: 4", "pipeline.max_table", "did you mean max_tables?"),
    (3, "  max_tables:", "pipeline.max_tables", "whole number"),
    (3, "  retries: -1", "pipeline.retries", "greater than or equal to 0"),
    (3, "  unknown_types: byte", "pipeline.unknown_types", "did you mean bytes?"),
    (3, "  begin_anew: perhaps", "pipeline.begin_anew", "true or false"),
    (3, "  staging: [a]", "pipeline.staging", "a path"),
    (3, "  special_values: clmap", "pipeline.special_values", "did you mean clamp?"),
    (4, "  every: 5 fortnights", "pipeline.every", "length of time"),
    (4, "  every: -1s", "pipeline.every", "length of time"),
    (4, "  every: true", "pipeline.every", "true or false says nothing"),
    (4, "  stall_timeout: 0s", "pipeline.stall_timeout", "greater than"),
    (5, "  range_bytes: 64MeB", "pipeline.range_bytes", "whole number"),
    (5, "  range_bytes: 1kB", "pipeline.range_bytes", "greater than or equal to"),
    (6, "sources:", "sources", "did you mean source?"),
    (7, "  url: ''", "source.url", "at least 1"),
    (7, "  url: 5432", "source.url", "must be a text"),
    (7, "  url: mysql://me:hunter2@h/app", "source.url", "libpq"),
    (7, "  url: postgresql://me:hun@hunter2@h/app", "source.url", "cannot be taken apart"),
    (7, "  url: postgresql://me@h:hunter2/app", "source.url", "URL"),
    (7, "  url: 'postgresql://me:${NO_PASSWORD}@h/app'", "source.url", "no variable NO_PASSWORD"),
    (7, "  url: file:/no/such/secret", "source.url", "/no/such/secret cannot be read"),
    (7, "  url: 'postgresql://me:${file:/no/such/secret}@h/app'", "source.url", "cannot be read"),
    (7, "  url: 'postgresql://${me'", "source.url", "does not end with }"),
    (7, "  url: '${1}'", "source.url", "a reference is written"),
    (8, "  publicaton: shop", "source.publicaton", "did you mean publication?"),
    (8, "  publication: 2024", "source.publication", "must be a text"),
    (8, "  publication: [shop]", "source.publication", "must be a text"),
    (9, "  slot: Shop-Slot", "source.slot", "match pattern"),
    (9, f"  slot: {'x' * 64}", "source.slot", "at most 63"),
    (9, "  migrate_sources: true", "source.migrate_sources", "did you mean migrate_source?"),
    (11, "  paht: state", "store.paht", "did you mean path?"),
    (11, "  url: mysql://me:hunter2@h/store", "store.url", "libpq"),
    (13, "  ack: destinatoin", "log.ack", "did you mean destination?"),
    (13, "  segment_bytes: 1", "log.segment_bytes", "greater than or equal to"),
    (13, "  accept_timeline: two", "log.accept_timeline", "whole number"),
    (14, "  retain_age: a week", "log.retain_age", "length of time"),
    (14, "  location: ''", "log.location", "at least 1"),
    (15, "  compact: 7", "log.compact", "true or false"),
    (15, "  follows: true", "log.follows", "did you mean follow?"),
    (17, "  url: kafka://broker/topic", "destination.url", "no such destination: kafka"),
    (17, "  url: hunter2", "destination.url", "no such destination"),
    (17, "  url: 'duckdb:'", "destination.url", "needs a path"),
    (17, "  url: duckdb:///out.duckdb?colour=red", "destination.url", "unknown option"),
    (17, "  url: 'stdout:x'", "destination.url", "takes neither"),
    (18, "  lane: file", "destination.lane", "did you mean files?"),
    (18, "  lanes: files", "destination.lanes", "did you mean lane?"),
    (20, "  driver.memory: 2g", 'spark."driver.memory"', "begin with spark."),
    (20, "  spark.driver.memory: [2g]", 'spark."spark.driver.memory"', "must be a text"),
]

# What is put below the rest, the line in it that is at fault, the key and the words.
ADDED = [
    ("table:\n  public.*: {}", 1, "table", "did you mean tables?"),
    ("tables: [orders]", 1, "tables", "made of keys"),
    ("tables:\n  a.b.c: {}", 2, 'tables."a.b.c"', "not a table, nor a pattern"),
    ("tables:\n  shop.*:\n    hsah: [a]", 3, 'tables."shop.*".hsah', "did you mean hash?"),
    ("tables:\n  shop.*:\n    columns: id", 3, 'tables."shop.*".columns', "must be a list"),
    ("tables:\n  shop.*:\n    mask: {a: {keep: 1}}", 3, 'tables."shop.*".mask.a.keep', "did you mean keep_last?"),
    ("tables:\n  shop.*:\n    mask: {a: {}}", 3, 'tables."shop.*".mask.a', "one of them"),
    ("tables:\n  shop.*:\n    hash: {salt: hunter2}", 3, 'tables."shop.*".hash.columns', "is missing"),
    ("tables:\n  shop.*:\n    history: scd3", 3, 'tables."shop.*".history', "did you mean scd2?"),
    ("tables:\n  shop.*:\n    rename: {table: raw}", 3, 'tables."shop.*".rename.table', "several tables"),
    ("tables:\n  shop.*:\n    rename: {table: '{tabel}'}", 2, 'tables."shop.*"', "no {tabel}"),
    ("tables:\n  orders:\n    columns: [a]\n    leave_out: [b]", 2, "tables.orders", "cannot both"),
    ("tables:\n  orders:\n    on_removed: delete", 3, "tables.orders.on_removed", "keep, drop"),
    ("destinations: [{url: 'null:'}]", 1, "destinations", "a key destination too"),
    ("spark: {}", 1, "spark", "already"),
]

ALIASES_OF_ALIASES = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments, "--until", "caught-up"])
    said = capsys.readouterr().err
    assert ended.value.code == 1, said
    assert "what to do" in said
    assert SECRET not in said, "an error repeats a secret"
    return said


def changed(line: int, text: str) -> str:
    lines = RIGHT.splitlines()
    lines[line - 1] = text
    return "\n".join(lines) + "\n"


def test_there_are_more_than_fifty() -> None:
    assert len(CHANGED) + len(ADDED) >= 50


@pytest.mark.parametrize(("line", "text", "key", "words"), CHANGED, ids=[f"{one[0]} {one[1]}" for one in CHANGED])
def test_a_line_that_is_wrong_is_named(
    line: int, text: str, key: str, words: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pipeline.yaml").write_text(changed(line, text))
    said = refused(capsys, "-c", "pipeline.yaml")
    # What is named twice stands where it is met the second time.
    at = 3 if "already" in words else line
    assert f"{key}, pipeline.yaml line {at}: " in said
    assert words in said
    assert [entry.name for entry in elsewhere.iterdir()] == ["pipeline.yaml"]


@pytest.mark.parametrize(("text", "line", "key", "words"), ADDED, ids=[one[0] for one in ADDED])
def test_a_section_that_is_wrong_is_named(
    text: str, line: int, key: str, words: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pipeline.yaml").write_text(f"{RIGHT}{text}\n")
    said = refused(capsys, "-c", "pipeline.yaml")
    assert f"{key}, pipeline.yaml line {len(RIGHT.splitlines()) + line}: " in said
    assert words in said
    assert [entry.name for entry in elsewhere.iterdir()] == ["pipeline.yaml"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source: {url: a", "line 1: not YAML"),
        ("source:\n\turl: a", "line 2: not YAML"),
        ("- source", "line 1: this is no mapping"),
        ("a: 1\n---\nb: 2", "line 2: not YAML"),
        ("source: &a [*a]", "holds itself"),
        ("source: *nothing", "not YAML"),
        ("? [a]\n: b", "line 1: a key is a word"),
        ("", "source, pipeline.yaml line 1: it is missing"),
        (RIGHT.replace("store:\n  path: state\n", ""), "store, pipeline.yaml line 1: it is missing"),
        (RIGHT.replace("  publication: shop\n", ""), "source.publication, pipeline.yaml line 6: it is missing"),
        (RIGHT.partition("destination:")[0], "destination, pipeline.yaml line 1: it is missing"),
        (
            RIGHT.partition("destination:")[0] + "destinations:\n  - url: 'null:'\n  - url: 'stdout:'\n",
            "destinations, pipeline.yaml line 18: this version takes one destination, not 2",
        ),
        (ALIASES_OF_ALIASES, "too large"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_named(
    text: str, words: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pipeline.yaml").write_text(text)
    assert words in refused(capsys, "-c", "pipeline.yaml")
    assert [entry.name for entry in elsewhere.iterdir()] == ["pipeline.yaml"]


def test_a_file_that_is_not_there_or_no_text_is_named(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing.yaml: the file cannot be read" in refused(capsys, "-c", "nothing.yaml")
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "binary.yaml: the file is no text in UTF-8" in refused(capsys, "-c", "binary.yaml")
    Path("control.yaml").write_text("a: \x07")
    assert "control.yaml: not YAML" in refused(capsys, "-c", "control.yaml")
    assert len(list(elsewhere.iterdir())) == 2


def test_all_that_is_wrong_is_said_at_once_also_in_the_environment_and_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALRELAY_RETRIES", "many")
    monkeypatch.setenv("WALRELAY_SPARK", "{spark.a: {b: c}}")
    Path("pipeline.yaml").write_text(changed(3, "  max_tables: four"))
    Path("more.yaml").write_text("log: {ack: nowhere}\n")
    said = refused(capsys, "-c", "pipeline.yaml", "-c", "more.yaml", "--set", "source.slot=No")
    for words in (
        "5 settings are wrong",
        "pipeline.max_tables, pipeline.yaml line 3: ",
        "log.ack, more.yaml line 1: ",
        "pipeline.retries, WALRELAY_RETRIES: ",
        'spark."spark.a", WALRELAY_SPARK line 1: ',
        "source.slot, --set: ",
    ):
        assert words in said


def test_what_contradicts_itself_is_refused_before_anything_is_made(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pipeline.yaml").write_text(changed(9, "  migrate_source: true").replace("mode: both", "mode: copy"))
    assert "mode copy follows no DDL" in refused(capsys, "-c", "pipeline.yaml")
    Path("pipeline.yaml").write_text(RIGHT.replace("every: 5s", "begin_anew: true").replace("compact: ", "follow: "))
    assert "neither makes one anew nor does without" in refused(capsys, "-c", "pipeline.yaml")
    assert [entry.name for entry in elsewhere.iterdir()] == ["pipeline.yaml"]


def test_a_set_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pipeline.yaml").write_text(RIGHT)
    for wrong in ("pipeline.max_tables", "=3", "pipeline.=3"):
        assert "--set" in refused(capsys, "-c", "pipeline.yaml", "--set", wrong)
    assert "not YAML" in refused(capsys, "-c", "pipeline.yaml", "--set", "spark=[")
