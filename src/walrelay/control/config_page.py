"""The page of all keys of a configuration, docs/reference/config.md, made from the settings themselves:
`python -m walrelay.control.config_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from walrelay.config.keys import Key, all_keys, annotation_at, kinds, model_of, type_in_words
from walrelay.config.sections import PipelineConfig
from walrelay.config.settings import MiB
from walrelay.config.shown import time_in_words
from walrelay.config.table_keys import HashKeys, MaskKeys, RenameKeys, TableKeys

PAGE: Final = Path("docs/reference/config.md")
_BEGINNING: Final = """\
# Configuration

Made from the code by `python -m walrelay.control.config_page`; do not edit.

`walrelay run -c pipeline.yaml` runs the pipeline that a YAML file describes; `walrelay init` writes a first one. This
is enough:

```yaml
source:
  url: postgresql://me:${PGPASSWORD}@db.example.com/app
  publication: shop
destination:
  url: duckdb:///shop.duckdb
store:
  path: walrelay-state
```

- **Strict.** A key that is not on this page, a value of another kind and a key that stands twice are refused, with
  the key, the file, the line and the nearest key that there is. Nothing is made before that: no slot, no state, no
  table.
- **Three ways to set a key.** The command line (`--set pipeline.max_tables=8`; `walrelay replicate` has options for
  the usual ones) wins over the environment, that over the files, and these over the defaults. Of several files (`-c`
  twice or more) a later one wins, key by key; lists are replaced. Every key has a variable of its own, in the
  tables below. What is a mapping or a list in a file is YAML in the variable too:
  `WALRELAY_SPARK='{spark.driver.memory: 2g}'`. A variable that is empty says nothing.
- An option that a hint of walrelay's names is a key here: `--accept-timeline 2` is `--set log.accept_timeline=2`, and
  `walrelay run` has `--begin-anew` itself.
- **References.** In any text of a file or a variable `${NAME}` stands for a variable of the environment,
  `${NAME:-default}` has a default, and `${file:/run/secrets/x}` stands for the content of a file, as does a whole
  value `file:/run/secrets/x` (but in `spark` and `log.location`, which have such values of their own). `$${` is `${`
  itself. One that leads nowhere is an error that names it. In the place of a URL's password, and of its options, what
  a reference brings is escaped: give a password as it is.
- **Secrets** are masked in `walrelay config show` and in errors.
- A time is written 500ms, 30s, 10m, 1h or 7d, and a bare number is seconds; a size is 64MiB, 1GB, or bytes. Relative
  paths begin where the command is run.

```sh
walrelay config check -c pipeline.yaml    # is it right? --connect: and is the source ready? --json
walrelay config show -c pipeline.yaml     # what holds, and where each value was said. --json
walrelay config schema                    # the JSON schema, for editors
```

The exit code of `config check` is 0 when nothing is wrong, 1 when something is, and 2 when the command itself is
wrong.
"""
_TABLES: Final = """
`PATTERN` is a table or several: `shop.orders`, `shop.*`, `*.audit_?`, `*` for all; what has no schema is in `public`,
and what is in double quotes is taken as it is. Of all patterns that a table matches the more exact one wins, option
by option, and of equally exact ones the later. Columns are called by their names at the source. An option that this
version does nothing about is refused by its name.
"""
_FORMS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("tables.PATTERN", TableKeys),
    ("tables.PATTERN.rename", RenameKeys),
    ("tables.PATTERN.hash", HashKeys),
    ("tables.PATTERN.mask.COLUMN", MaskKeys),
)


def render() -> str:
    """The page."""
    parts = [_BEGINNING]
    keys = all_keys()
    for name, field in PipelineConfig.model_fields.items():
        parts.append("\n".join(_section(name, field, [key for key in keys if key.path[0] == name])))
    return "\n".join(parts)


def _section(name: str, field: FieldInfo, keys: list[Key]) -> Iterator[str]:
    yield f"## {name}\n"
    yield meaning(field)
    if name == "tables":
        yield _TABLES
        yield from _table_options()
        return
    if model_of(field.annotation) is None:
        yield f"\nIn the environment: `{keys[0].variable}`.\n"
        return
    yield "\n| Key | Environment | Takes | Default | Meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for key in keys:
        cells = (
            f"`{'.'.join(map(str, key.path))}`",
            f"`{key.variable}`",
            _takes(key),
            default_of(key.field),
            meaning(key.field),
        )
        yield _row(cells)
    yield ""


def _table_options() -> Iterator[str]:
    yield "In the environment: `WALRELAY_TABLES`.\n"
    yield "| Key | Takes | Meaning |"
    yield "| --- | --- | --- |"
    for path, model in _FORMS:
        for name, field in model.model_fields.items():
            words = type_in_words(field.annotation).replace(
                "mapping", "mapping, below" if name == "rename" else "mapping"
            )
            yield _row((f"`{path}.{field.alias or name}`", words, meaning(field)))
    yield ""


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def meaning(field: FieldInfo) -> str:
    """What the settings say of it, on one line."""
    return " ".join((field.description or "").split())


def _takes(key: Key) -> str:
    return type_in_words(annotation_at(key.path), size=_is_size(key))


def _is_size(key: Key) -> bool:
    return str(key.path[-1]).endswith("_bytes") or str(key.path[-1]) == "wal_limit"


def default_of(field: FieldInfo) -> str:
    """As a file would say it; a dash where the text says what happens without it, and `required`."""
    if field.is_required():
        return "required"
    return _in_words(field.get_default(call_default_factory=True), SecretStr in kinds(field.annotation))


def _in_words(value: Any, is_secret: bool) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "`true`" if value else "`false`"
        case timedelta():
            return f"`{time_in_words(value)}`"
        case int() if value >= MiB and value % MiB == 0:
            return f"`{value // MiB}MiB`"
        case tuple():
            return f"`[{', '.join(map(str, value))}]`"
        case _:
            return "–" if is_secret else f"`{value}`"


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(render(), encoding="utf-8")
