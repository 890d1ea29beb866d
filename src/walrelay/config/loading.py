"""A pipeline's configuration, from its files, the environment and the command line, in this order from the weakest; and
for every value where it came from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from pydantic import ValidationError

from walrelay.config.judging import judged, problems_of
from walrelay.config.keys import ENVIRONMENT, all_keys
from walrelay.config.problems import Problem, ProblemsError, nearest, refusal
from walrelay.config.references import BadReferenceError
from walrelay.config.said import DEFAULT, Origin, Path, Said, as_said, laid_over, nested, written
from walrelay.config.sections import PipelineConfig
from walrelay.config.yaml_file import reference_hint, said_in_file, said_in_text, text_said
from walrelay.errors import ConfigError, WalrelayError

_OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)\b|_PORT_\d+_")
"""Variables that Kubernetes makes for a service of our name."""


@dataclass(frozen=True)
class Loaded:
    """A configuration that is right in itself, and what was said of it."""

    config: PipelineConfig
    said: Said
    files: tuple[str, ...] = ()

    def origin(self, path: Path) -> Origin:
        found = self.said.at(path)
        return DEFAULT if found is None else found.origin

    def warnings(self) -> list[str]:
        """What is allowed, and perhaps a mistake."""
        return unused_variables()

    @contextmanager
    def blaming(self, *path: str | int) -> Iterator[None]:
        """What is found to be wrong meanwhile, in the words of whoever finds it, is this key's fault."""
        try:
            yield
        except WalrelayError as error:
            origin = self.origin(path)
            if not (origin.line or origin.name.startswith(ENVIRONMENT)):
                raise
            # Without its cause: that may be what the caller has taken care not to show.
            said = f"{written(path)}, {origin}: {error.message}"
            raise type(error)(said, hint=error.hint, context=error.context) from None


def load(
    files: Sequence[str | FilePath] = (),
    options: Mapping[Path, tuple[str, object]] | None = None,
    defaults: Mapping[Path, object] | None = None,
) -> Loaded:
    """Of the files a later one wins, key by key. `options` are of the command line, each with its name there;
    `defaults` are what the command does when nothing is said. Raises `ConfigError` that names all that is wrong."""
    problems: list[Problem] = []
    made = nested({path: Said(value, DEFAULT) for path, value in (defaults or {}).items()}, DEFAULT)
    parts: list[Callable[[], Said]] = [
        *(partial(said_in_file, file) for file in files),
        _environment,
        partial(_given, options),
    ]
    for part in parts:
        try:
            made = laid_over(made, _without_empty_sections(part()))
        except ProblemsError as error:
            problems += error.problems
    if problems:
        raise refusal(problems)
    return Loaded(_valid(made), made, tuple(map(str, files)))


def _valid(said: Said) -> PipelineConfig:
    try:
        made = PipelineConfig.model_validate(said.plain())
    except ValidationError as error:
        raise refusal(problems_of(error, said)) from None  # its own text repeats values
    if problems := list(judged(made, said)):
        raise refusal(problems)
    return made


def _environment() -> Said:
    """What the variables `WALRELAY_…` say. One that is empty says nothing."""
    there = {name.upper(): value for name, value in os.environ.items() if value}
    found: dict[Path, Said] = {}
    problems: list[Problem] = []
    for key in all_keys():
        text = there.get(key.variable)
        if text is None:
            continue
        origin = Origin(key.variable)
        try:
            if key.is_free:
                found[key.path] = said_in_text(text, key.variable, key.path)
            else:
                found[key.path] = text_said(text, key.path, origin)
        except BadReferenceError as error:
            problems.append(Problem(key.path, origin, str(error), reference_hint(text)))
        except ProblemsError as error:
            problems += error.problems
    if problems:
        raise ProblemsError(*problems)
    return nested(found, Origin("the environment"))


def unused_variables() -> list[str]:
    """Variables of the environment that are nearly a key's. Others are somebody else's: Kubernetes makes some for
    every service."""
    known = [key.variable for key in all_keys()]
    made = []
    for name in sorted(os.environ):
        if _OF_A_SERVICE.search(name):
            continue
        if name.startswith(ENVIRONMENT) and name.upper() not in known and (meant := nearest(name, known, cutoff=0.85)):
            made.append(f"the variable {name} sets nothing{meant}")
    return made


def _given(options: Mapping[Path, tuple[str, object]] | None) -> Said:
    origin = Origin("the command line")
    said = {path: as_said(value, Origin(name)) for path, (name, value) in (options or {}).items() if value is not None}
    return nested(said, origin)


def option_said(text: str) -> tuple[Path, tuple[str, object]]:
    """`source.publication=shop`, as `--set` takes it; the value is YAML."""
    key, equals, value = text.partition("=")
    path: Path = tuple(key.split(".", 1)) if key.partition(".")[0] != "tables" else (key,)
    if not equals or not all(path):
        raise ConfigError("--set takes KEY=VALUE", hint="For instance --set pipeline.max_tables=8.")
    try:
        return path, ("--set", said_in_text(value, "--set", path).plain() if value else "")
    except ProblemsError as error:
        raise refusal(error.problems) from None


def _without_empty_sections(said: Said) -> Said:
    """A section with nothing below it says nothing."""
    return Said({key: one for key, one in said.value.items() if one.value is not None}, said.origin)
