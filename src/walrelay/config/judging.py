"""What is wrong with what was said, key by key, in words for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from walrelay.config.keys import annotation_at, kinds, names_at, type_in_words
from walrelay.config.problems import Problem, nearest
from walrelay.config.said import Path, Said, written
from walrelay.config.sections import PipelineConfig
from walrelay.model.table_options import TablePattern

UNAVAILABLE: Final = {"special_values": None, "on_removed": "drop", "history": "scd2"}
"""The options of tables that a pipeline does nothing about yet: whatever is said (None), or for one value."""
_ALL_KEYS = "docs/reference/config.md explains every key."
_MEANS = {
    "string_type": ("a text", "Put it in quotes."),
    "model_type": ("made of keys", "Keys of a section stand below it, each on its own line."),
    "dict_type": ("made of keys", "Keys of a section stand below it, each on its own line."),
    "tuple_type": ("a list", "Write [one, two], or each on its own line after a hyphen."),
    "list_type": ("a list", "Write [one, two], or each on its own line after a hyphen."),
    "bool_type": ("true or false", "Write true or false."),
    "bool_parsing": ("true or false", "Write true or false."),
    "int_type": ("a whole number", "Write digits alone."),
    "int_parsing": ("a whole number", "Write digits alone, or for a size as in 64MiB."),
    "int_from_float": ("a whole number", "Write digits alone."),
    "path_type": ("a path", "Put it in quotes."),
    "time_delta_type": ("a length of time", "Write 30s, 10m, 1h or 7d; a bare number is seconds."),
    "time_delta_parsing": ("a length of time", "Write 30s, 10m, 1h or 7d; a bare number is seconds."),
}
"""By pydantic's word for what is wrong: what the value must be, and how that is written."""


def problems_of(error: ValidationError, said: Said) -> list[Problem]:
    """Each in the words and at the place of whoever wrote it."""
    made = []
    for one in error.errors(include_url=False, include_context=True):
        problem = _problem(one, said)
        if problem not in made:
            made.append(problem)
    return made


def _problem(one: ErrorDetails, said: Said) -> Problem:
    path = _path_in(one["loc"], said)
    origin = said.nearest(path).origin
    match one["type"]:
        case "extra_forbidden":
            known = names_at(path[:-1])
            what = f"no such key{nearest(str(path[-1]), known)}"
            return Problem(path, origin, what, f"{_where(path[:-1])} has: {', '.join(known)}.")
        case "missing":
            return Problem(path, origin, "it is missing", f"Add it: {_example(path)}. {_ALL_KEYS}")
        case "literal_error":
            words = [
                str(word)
                for kind in kinds(annotation_at(path))
                if get_origin(kind) is Literal
                for word in get_args(kind)
            ]
            what = f"it must be one of {', '.join(words)}{nearest(str(one['input']), words)}"
            return Problem(path, origin, what, f"Write {' or '.join(words)}.")
        case kind if kind in _MEANS:
            what, hint = _MEANS[kind]
            return Problem(path, origin, f"it must be {what}", hint)
        case _:
            what = one["msg"].removeprefix("Value error, ").replace("Input should", "it must").replace("String", "it")
            return Problem(
                path, origin, what, f"It takes: {type_in_words(annotation_at(path)) or 'see the message'}. {_ALL_KEYS}"
            )


def _path_in(loc: tuple[str | int, ...], said: Said) -> Path:
    """Without what pydantic adds for itself: the alternatives of a type, and marks like `[key]`."""
    made: list[str | int] = []
    for step in loc:
        if annotation_at((*made, step)) is None and said.at((*made, step)) is None and step != loc[-1]:
            continue
        if step == "[key]":
            continue
        made.append(step)
    return tuple(made)


def _where(path: Path) -> str:
    return written(path) if path else "a configuration"


def _example(path: Path) -> str:
    examples: dict[Path, str] = {
        ("source",): "source: {url: postgresql://user@host:5432/database, publication: NAME}",
        ("source", "url"): "source: {url: postgresql://user@host:5432/database}",
        ("source", "publication"): "source: {publication: NAME}",
        ("destination", "url"): "destination: {url: duckdb:///out.duckdb}",
    }
    return examples.get(path, written(path))


def judged(config: PipelineConfig, said: Said) -> Iterator[Problem]:
    """What is wrong though each key for itself is right."""
    yield from _destinations(config, said)
    yield from _store(config, said)
    yield from _patterns(config, said)
    yield from _not_honoured(config, said)
    for name in config.spark:
        if not name.startswith("spark."):
            path = ("spark", name)
            what = "not a setting of Spark's, which begin with spark."
            yield Problem(path, said.nearest(path).origin, what, "For instance spark.driver.memory: 2g.")


def _not_honoured(config: PipelineConfig, said: Said) -> Iterator[Problem]:
    """An option that would be ignored is refused by its name."""
    for pattern, keys in config.tables.items():
        options = keys.options()
        for name in options.said():
            if name in UNAVAILABLE and UNAVAILABLE[name] in (None, getattr(options, name)):
                path = ("tables", pattern, name)
                yield Problem(path, said.nearest(path).origin, "this version cannot do that", f"Leave {name} out.")


def _destinations(config: PipelineConfig, said: Said) -> Iterator[Problem]:
    several = ("destinations",)
    count = len(config.destinations or ())
    if config.destination is not None and config.destinations is not None:
        origin = said.nearest(several).origin
        yield Problem(several, origin, "there is a key destination too", "Keep one of the two.")
    elif config.destination is None and count == 0:
        path = ("destination",)
        yield Problem(path, said.nearest(path).origin, "it is missing", f"Add it: {_example((*path, 'url'))}.")
    elif count > 1:
        what = f"this version takes one destination, not {count}"
        hint = "Keep one; for others run pipelines of their own, with log.follow on the same log."
        yield Problem(several, said.nearest((*several, 1)).origin, what, hint)


def _store(config: PipelineConfig, said: Said) -> Iterator[Problem]:
    if config.pipeline.mode == "copy":
        return
    if config.store.path is None and config.store.url is None:
        path = ("store",)
        hint = "Add store: {path: DIR}, a directory that outlives the process; or a Postgres, store: {url: postgresql://…}."
        yield Problem(path, said.nearest(path).origin, "it is missing: where the state lives", hint)


def _patterns(config: PipelineConfig, said: Said) -> Iterator[Problem]:
    for text, keys in config.tables.items():
        path: Path = ("tables", text)
        try:
            pattern = TablePattern.parse(text)
        except ValueError as error:
            yield Problem(path, said.nearest(path).origin, str(error), "Write schema.table, schema.* or *.")
            continue
        name = keys.rename.table if keys.rename is not None else None
        if name is not None and not pattern.is_exact and "{table}" not in name:
            inner = (*path, "rename", "table")
            what = "several tables cannot have one name"
            yield Problem(inner, said.nearest(inner).origin, what, "Use {table} in it: raw_{table}.")
